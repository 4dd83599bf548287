"""``--float32-matmul-precision int8``: quantised products for inference on the CPU."""

import argparse

import pytest
import torch
from fairseq import options
from fairseq.sequence_generator import SequenceGenerator
from helpers import (
    assert_close,
    every_compiled_family,
    flat,
    gradients,
    rand,
    weighted,
)
from models import common
from models.common import build, dictionary, make_task

from fairseq_casrnn import precision
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import LSTM, SentenceStateLSTM
from fairseq_casrnn.patches import checks
from fairseq_casrnn.recurrence import cpp, products

int8_only = pytest.mark.skipif(
    precision.why_not_int8() is not None, reason=str(precision.why_not_int8())
)

EXACT = {"rtol": 1e-5, "atol": 1e-5}
"""Only the multiplication by the two scales and the addition of the bias are rounded."""
ONE_STEP = {"rtol": 0, "atol": 5e-3}
"""A state near a tie may be rounded to the other side: 1/254 of the row's largest, times a
weight."""
CLOSE = {"rtol": 0.05, "atol": 0.05}
"""Compared with float32: factors have 8 bits, in sums of 200 products of either sign."""


@pytest.fixture(autouse=True)
def _restore_precision(monkeypatch):
    monkeypatch.setenv(precision.VARIABLE, "")
    monkeypatch.delenv("CASRNN_ENGINE", raising=False)
    before = torch.get_float32_matmul_precision()
    yield
    precision.set_precision(before)


@pytest.fixture
def int8():
    precision.set_precision("int8")


def integers(x):
    """Return rows rounded to 8 bits, and their scales, in double."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x.double() * (1 / scale).double()).round(), scale.double()


def product(x, weight):
    """Return x times weight transposed in double, each row quantised with its own scale."""
    (a, a_scale), (b, b_scale) = integers(x), integers(weight)
    return (a @ b.t()) * a_scale * b_scale.t()


@int8_only
@pytest.mark.usefixtures("int8")
@pytest.mark.parametrize("rows", [1, 3, 70, 300])
@pytest.mark.parametrize(("inner", "columns"), [(301, 111), (2601, 130), (6, 9001)])
@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize("threads", [1, 2])
@torch.no_grad()
def test_products_of_integers(rows, inner, columns, order, threads):
    """Any number of rows is quantised, unlike with bfloat16."""
    x, weight, bias = (
        rand(*shape, seed=i, dtype=torch.float32)
        for i, shape in enumerate([(rows, inner), (columns, inner), (columns,)])
    )
    if order == "columns":
        weight = weight.t().contiguous().t()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        y = products.linear(x, weight, bias)
    finally:
        torch.set_num_threads(before)
    expected = product(x, weight) + bias.double()
    close = EXACT | {"atol": 2e-6 * inner}
    assert_close([y.double()], [expected], close)
    assert_close([products.linear(x[:, None], weight)[:, 0]], [y - bias], close)


@int8_only
@pytest.mark.usefixtures("int8")
@torch.no_grad()
def test_negated_views():
    inputs = [rand(*shape, dtype=torch.float32) for shape in [(5, 200), (300, 200), (300,)]]
    negated = [torch._neg_view(-tensor) for tensor in inputs]
    assert torch.equal(products.linear(*negated), products.linear(*inputs))


@int8_only
@pytest.mark.usefixtures("int8")
@torch.no_grad()
def test_rows_without_a_scale():
    x, weight, bias = rand(5, 200).float(), rand(300, 200).float(), rand(300).float()
    expected = products.linear(x, weight, bias)
    x[0, 3], x[1, 199], x[2, 0], x[3] = float("nan"), float("inf"), -float("inf"), 0
    weight[7] = 0
    y = products.linear(x, weight, bias)
    assert y[:3].isnan().all()
    assert torch.equal(y[3], bias)
    assert torch.equal(y[4, 8:], expected[4, 8:])
    assert y[4, 7] == bias[7]
    x[3] = 1e-44  # the reciprocal of its scale is infinite
    assert_close([products.linear(x, weight, bias)[3]], [bias])


@int8_only
@pytest.mark.usefixtures("int8")
@torch.no_grad()
def test_small_matrices_and_double_are_not_quantised():
    for dtype, size in ((torch.float32, 128), (torch.float64, 300)):
        x, weight = rand(30, 256, dtype=dtype), rand(size, 256, dtype=dtype)
        assert not products.is_quantised(x, weight)
        assert torch.equal(products.linear(x, weight), torch.nn.functional.linear(x, weight))
    x, weight = rand(30, 256).float(), rand(300, 256).float()
    assert products.is_quantised(x, weight)
    assert not products.is_quantised(x, weight, engine="eager")


@int8_only
@pytest.mark.usefixtures("int8")
@torch.no_grad()
def test_layer_with_quantised_products():
    size, steps, batch = 200, 3, 5
    layer = LSTM(size, size, engine="cpp")
    x = rand(steps, batch, size, dtype=torch.float32)
    h = c = torch.zeros(batch, size, dtype=torch.double)
    outputs = []
    for t in range(steps):
        gates = product(x[t], layer.weight_ih_l0) + layer.bias_l0.double()
        if t > 0:  # the first state is zero and its product exact
            gates = gates + product(h.float(), layer.weight_hh_l0)
        i, f, g, o = gates.chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    output, _ = layer(x)
    assert_close([output.double()], [torch.stack(outputs)], ONE_STEP)


@int8_only
@every_compiled_family
@torch.no_grad()
def test_layers_agree_with_float32(case):
    layer = case.layer(192, 192, engine="cpp").eval()
    x = rand(6, 20, 192, dtype=torch.float32)
    exact = flat(layer(x))
    precision.set_precision("int8")
    quantised = flat(layer(x))
    assert_close(quantised, exact, CLOSE)
    assert not torch.equal(quantised[0], exact[0])


@int8_only
@pytest.mark.usefixtures("int8")
@every_compiled_family
@torch.no_grad()
def test_sequences_do_not_depend_on_the_batch(case):
    layer = case.layer(192, 192, engine="cpp").eval()
    x, lengths = rand(9, 40, 192, dtype=torch.float32), torch.arange(40) % 9 + 1
    together = flat(layer(x, lengths=lengths))
    for place in (0, 4, 30):
        length = int(lengths[place])
        alone = flat(layer(x[:length, place : place + 1].contiguous()))
        assert torch.equal(alone[0][:, 0], together[0][:length, place])
        for own, among in zip(alone[1:], together[1:], strict=True):
            assert torch.equal(own[:, 0], among[:, place])


@int8_only
@torch.no_grad()
def test_sentence_state_lstm_agrees_with_float32():
    layer = SentenceStateLSTM(192, 192, num_steps=3, engine="cpp").eval()
    x = rand(6, 20, 192, dtype=torch.float32)
    exact = layer(x)
    precision.set_precision("int8")
    quantised = layer(x)
    assert_close(quantised, exact, CLOSE)
    assert not torch.equal(quantised[0], exact[0])


# --- translation ------------------------------------------------------------------------------

WORDS, SIZE = 300, 192


def translator(arch="cas_lstm", **options):
    """Return a model large enough to be quantised, with uneven probabilities."""
    torch.manual_seed(0)
    sizes = dict.fromkeys(common.EQUAL, SIZE)
    layers = {"encoder_layers": 2, "decoder_layers": 2}
    model = build(arch, make_task(WORDS, WORDS), **sizes, **layers, **options).eval()
    with torch.no_grad():
        model.decoder.vocabulary[0].mul_(5)
    return model


def sentences():
    tokens = torch.randint(4, WORDS, (12, 7), generator=torch.Generator().manual_seed(0))
    tokens[3, :4] = tokens[8, :2] = 1  # padding on the left
    return {"src_tokens": tokens, "src_lengths": tokens.ne(1).sum(1)}


def translate(model, net_input):
    generator = SequenceGenerator([model], dictionary(WORDS), beam_size=4, max_len_b=9)
    with torch.no_grad():
        return generator._generate({"net_input": net_input})


@int8_only
@pytest.mark.usefixtures("int8")
@pytest.mark.parametrize("arch", ["cas_lstm", "stacked_gru", "second_order_lstm"])
@pytest.mark.parametrize("no_input_feed", [False, True], ids=["fed", "not fed"])
def test_beam_search_scores_equal_the_models(arch, no_input_feed):
    model, net_input = translator(arch, no_input_feed=no_input_feed), sentences()
    for place, hypotheses in enumerate(translate(model, net_input)):
        for hypothesis in hypotheses[:2]:
            words = hypothesis["tokens"]
            previous = torch.cat([words.new_tensor([2]), words[:-1]])
            own = {name: value[place : place + 1] for name, value in net_input.items()}
            with torch.no_grad():
                logits, extra = model(**own, prev_output_tokens=previous.unsqueeze(0))
                lprobs = model.get_normalized_probs((logits, extra), log_probs=True)[0]
            scores = lprobs.gather(1, words.unsqueeze(1))[:, 0]
            # The model computes one sentence without padding, all steps at once.
            assert_close([hypothesis["positional_scores"]], [scores], ONE_STEP)


@int8_only
def test_translations_do_not_depend_on_the_batch():
    model, net_input = translator(), sentences()
    exact = translate(model, net_input)
    precision.set_precision("int8")
    together = translate(model, net_input)
    assert not torch.equal(together[0][0]["score"], exact[0][0]["score"])
    for place in (0, 3, 8):
        own = {name: value[place : place + 1] for name, value in net_input.items()}
        for ours, theirs in zip(translate(model, own)[0], together[place], strict=True):
            assert torch.equal(ours["tokens"], theirs["tokens"])
            assert torch.equal(ours["positional_scores"], theirs["positional_scores"])


# --- training ---------------------------------------------------------------------------------


@int8_only
@pytest.mark.parametrize("kind", ["linear", "layer", "sentence state", "translator"])
def test_with_gradients_int8_equals_medium(kind):
    x = rand(6, 20, 192, dtype=torch.float32).requires_grad_()
    if kind == "linear":
        weight = rand(300, 192, dtype=torch.float32).requires_grad_()
        inputs, run = [x, weight], lambda: [products.linear(x, weight)]
    elif kind == "translator":
        model = translator()
        source, previous = sentences(), torch.randint(4, WORDS, (12, 6))
        inputs = list(model.parameters())
        run = lambda: [model(**source, prev_output_tokens=previous)[0]]  # noqa: E731
    else:
        layer = LSTM(192, 192, 2, engine="cpp")
        if kind == "sentence state":
            layer = SentenceStateLSTM(192, 192, num_steps=2, engine="cpp")
        inputs, run = [x, *layer.parameters()], lambda: flat(layer(x))
    found = []
    for value in ("medium", "int8"):
        precision.set_precision(value)
        result = run()
        found.append([*result, *gradients(weighted(result), inputs)])
    for medium, int8 in zip(*found, strict=True):
        assert torch.equal(medium, int8)


@int8_only
def test_environment_variable(monkeypatch):
    monkeypatch.setenv(precision.VARIABLE, "int8")
    precision.set_precision_from_environment()  # worker processes inherit the variable
    x, weight = rand(30, 256).float(), rand(300, 256).float()
    assert products.is_quantised(x, weight)
    assert torch.get_float32_matmul_precision() == "medium"  # for products that are not quantised
    precision.set_precision("highest")
    assert not products.is_quantised(x, weight)
    assert torch.get_float32_matmul_precision() == "highest"


# --- where it is refused ----------------------------------------------------------------------


def test_other_engines_are_refused(monkeypatch):
    monkeypatch.setattr(cpp, "extension", lambda: (None, "it was not compiled; install again"))
    with pytest.raises(UserError, match=r"^--x int8: .* not compiled; .* again; choose medium$"):
        precision.set_precision("int8", "--x")
    monkeypatch.undo()
    monkeypatch.setenv("CASRNN_ENGINE", "eager")
    with pytest.raises(UserError, match=r"CASRNN_ENGINE is eager, and only cpp .*; choose medium"):
        precision.set_precision("int8")
    assert torch.get_float32_matmul_precision() == "highest"


@int8_only
def test_other_processors_are_refused(monkeypatch):
    class NoInt8:
        can_quantise = staticmethod(lambda: False)

    monkeypatch.setattr(cpp, "extension", lambda: (NoInt8, None))
    with pytest.raises(UserError, match=r"AVX512_VNNI\); choose medium"):
        precision.set_precision("int8")


@int8_only
def test_training_is_refused(monkeypatch):
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    argv = ["data", "--arch=cas_lstm_iwslt", "--float32-matmul-precision=int8"]
    with pytest.raises(UserError, match=r"is for inference only.* train with medium"):
        options.parse_args_and_arch(options.get_training_parser(), argv)
    # fairseq-hydra-train has no such option and reads the variable.
    with pytest.raises(UserError, match="is for inference only"):
        checks.check_trainer(None, None, argparse.Namespace())


@int8_only
def test_a_gpu_is_refused(monkeypatch):
    monkeypatch.setattr("sys.argv", ["fairseq-generate"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    argv = ["data", "--path=x.pt", "--float32-matmul-precision=int8"]

    def parse(*argv):
        return options.parse_args_and_arch(options.get_generation_parser(), argv)

    with pytest.raises(UserError, match=r"for the CPU, and there is a GPU; add --cpu, or choose"):
        parse(*argv)
    assert parse(*argv, "--cpu").cpu
    assert not parse(*argv[:2], "--float32-matmul-precision=medium").cpu

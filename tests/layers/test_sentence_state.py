"""Sentence-state LSTM: against a word-by-word reference, by hand, and with padding."""

import math
from functools import partial

import pytest
import torch
from helpers import DOUBLE, ENGINES, LENGTHS, assert_close, gradients, rand, randomize, weighted
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import SentenceStateLSTM

from .sentence_state_reference import sentence_state_lstm

I, H = 3, 4
SHAPES = [(1, 1), (2, 1), (1, 2), (3, 3), (2, 0)]  # window, nodes
every_shape = pytest.mark.parametrize(("window", "nodes"), SHAPES)
every_engine = pytest.mark.parametrize("engine", [e for e in ENGINES if e != "reference"])


def layer_of(window=1, nodes=1, steps=3, **kwargs):
    layer = SentenceStateLSTM(I, H, steps, window, nodes, **kwargs)
    return randomize(layer.double())


def parameters(layer):
    return dict(layer.named_parameters())


def test_packed_sequence():
    layer, x = layer_of(), rand(5, 3, I)
    expected = layer(x, torch.tensor(LENGTHS))
    packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    output, g = layer(packed)
    assert_close([pad_packed_sequence(output)[0], g], expected)
    with pytest.raises(UserError, match="leave lengths out"):
        layer(packed, torch.tensor(LENGTHS))


@every_engine
@every_shape
def test_equals_the_reference(window, nodes, engine):
    """Values and the gradients of every parameter agree, on a batch with padding."""
    layer, x = layer_of(window, nodes, engine=engine), rand(5, 3, I).requires_grad_()
    lengths = torch.tensor(LENGTHS)
    output, g = layer(x, lengths)
    ours = gradients(weighted([output, g]), [x, *layer.parameters()])
    expected, expected_g = [], []
    for b, length in enumerate(LENGTHS):
        h, node = sentence_state_lstm(parameters(layer), x[:length, b], 3, window, nodes)
        expected.append(torch.cat([h, h.new_zeros(5 - length, H)]))
        expected_g.append(node)
    expected, expected_g = torch.stack(expected, 1), torch.stack(expected_g)
    assert output.shape == (5, 3, H)
    assert g.shape == (3, nodes * H)
    assert_close([output, g], [expected, expected_g])
    theirs = gradients(weighted([expected, expected_g]), [x, *layer.parameters()])
    assert all(grad.abs().max() > 0 for grad in theirs)  # the loss depends on every parameter
    assert_close(ours, theirs)


@pytest.mark.sampled(every=2)
@every_engine
def test_gradcheck(engine):
    layer = SentenceStateLSTM(2, 2, 2, window=1, num_sentence_nodes=2, engine=engine)
    randomize(layer.double())
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(x, *values):
        given = dict(zip(names, values, strict=True))
        return torch.func.functional_call(layer, given, (x, torch.tensor([2, 3])))

    assert torch.autograd.gradcheck(run, (rand(3, 2, 2).requires_grad_(), *values))


@pytest.mark.skipif("cpp" not in ENGINES, reason="not compiled")
@pytest.mark.parametrize("size", [1, 7, 16, 37])
def test_engines_agree_in_single_precision(size):
    """Sizes that are and are not multiples of a vector agree to within 2e-6."""
    results = []
    for engine in ("eager", "cpp"):
        torch.manual_seed(0)
        layer = SentenceStateLSTM(I, size, 4, window=2, num_sentence_nodes=2, engine=engine)
        x = rand(6, 3, I).float().requires_grad_()
        out = layer(x, torch.tensor([6, 1, 4]))
        results.append([*out, *gradients(weighted(out), [x, *layer.parameters()])])
    for ours, theirs in zip(*results, strict=True):
        scale = theirs.abs().max().clamp(min=1)
        assert ours.sub(theirs).abs().max() < 2e-6 * scale


@pytest.mark.skipif("cpp" not in ENGINES, reason="not compiled")
def test_padding_is_not_computed(monkeypatch):
    """The compiled engine multiplies one row per word, and none for padding."""
    rows = []

    def product(x, weight, bias=None, engine=None):
        rows.append(x.shape[:-1].numel())
        return torch.nn.functional.linear(x, weight, bias)

    monkeypatch.setattr("fairseq_casrnn.layers.sentence_state.linear", product)
    monkeypatch.setattr(
        "fairseq_casrnn.layers.sentence_state.SharedWeightLinear",
        lambda weight, times, engine: partial(product, weight=weight),
    )
    layer_of(engine="cpp")(rand(5, 3, I), torch.tensor(LENGTHS))
    assert sum(LENGTHS) < 5 * 3
    assert set(rows) == {sum(LENGTHS), 3}  # words, sentences


@pytest.mark.skipif("cpp" not in ENGINES, reason="not compiled")
@pytest.mark.parametrize("batch", [1, 70])
def test_number_of_threads_has_no_effect(batch):
    """There are enough words that the threads share the units among themselves."""
    torch.manual_seed(0)
    layer = SentenceStateLSTM(I, 40, 2, num_sentence_nodes=2, engine="cpp")
    x = rand(5000 // batch, batch, I).float().requires_grad_()
    lengths = torch.linspace(1, len(x), batch).long() if batch > 1 else None
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            out = layer(x, lengths)
            results.append([*out, *gradients(weighted(out), [x, *layer.parameters()])])
    finally:
        torch.set_num_threads(before)
    for one, several in zip(*results, strict=True):
        scale = one.abs().max().clamp(min=1)
        assert one.sub(several).abs().max() < 1e-5 * scale


@pytest.mark.skipif("cpp" not in ENGINES, reason="not compiled")
def test_second_derivatives_are_refused_by_cpp():
    layer, x = layer_of(engine="cpp"), rand(2, 1, I).requires_grad_()
    with pytest.raises(UserError, match="no second derivatives"):
        torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)


@every_engine
@pytest.mark.parametrize("recompute", [False, True])
def test_a_graph_can_be_kept(engine, recompute):
    """The backward pass does not overwrite the gates."""
    layer, x = layer_of(engine=engine, recompute=recompute), rand(4, 2, I).requires_grad_()
    loss = weighted(layer(x))
    first = torch.autograd.grad(loss, [x, *layer.parameters()], retain_graph=True)
    second = torch.autograd.grad(loss, [x, *layer.parameters()])
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))


@every_engine
def test_recomputing_changes_nothing(engine):
    layer, x = layer_of(engine=engine), rand(5, 3, I)
    first = gradients(weighted(layer(x, torch.tensor(LENGTHS))), layer.parameters())
    layer.recompute = True
    second = gradients(weighted(layer(x, torch.tensor(LENGTHS))), layer.parameters())
    if engine == "triton":  # it then sums the weights' gradients over steps in another order
        assert_close(first, second)
    else:
        assert all(a.equal(b) for a, b in zip(first, second, strict=True))


@every_engine
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_in_half_precision_by_autocast(engine, lengths):
    """bfloat16 has 8 bits, so three steps of gates below 1 stay within 0.02."""
    layer, x = layer_of(engine=engine).float(), rand(5, 3, I).float()
    lengths = None if lengths is None else torch.tensor(lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, g = layer(x, lengths)
    for ours, exact in zip((output, g), layer(x, lengths), strict=True):
        assert ours.shape == exact.shape
        assert ours.float().sub(exact).abs().max() < 0.02


def test_on_the_meta_device():
    """Shapes do not depend on data, which tracing and CUDA graphs rely on."""
    layer = SentenceStateLSTM(I, H, 2).to("meta")
    output, g = layer(torch.zeros(5, 2, I, device="meta"))
    assert output.shape == (5, 2, H)
    assert g.shape == (2, H)


@every_engine
def test_negated_view(engine):
    layer, x = layer_of(engine=engine), rand(1, 1, I)
    given = {"h0": torch._neg_view(-layer.h0.detach())}
    assert_close(torch.func.functional_call(layer, given, x), layer(x))


def test_parameters():
    layer = SentenceStateLSTM(I, H, 5)
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert shapes == {
        "weight_hh": (7 * H, 3 * H),
        "weight_ih": (7 * H, I),
        "weight_gh": (7 * H, H),
        "bias": (7 * H,),
        "weight_sg": (3 * H, H),
        "weight_sh": (3 * H, H),
        "bias_s": (3 * H,),
        "h0": (H,),
    }
    assert layer.bias.view(7, H)[:, 0].tolist() == [0, 0, 1, 0, 0, 0, 0]  # i l f r s o u
    assert layer.bias_s.view(3, H)[:, 0].tolist() == [1, 0, 0]  # g f o
    wide = SentenceStateLSTM(I, H, 5, window=2, num_sentence_nodes=3)
    assert wide.weight_hh.shape == (11 * H, 5 * H)  # i l2 l1 f r1 r2 s1 s2 s3 o u
    assert wide.weight_gh.shape == (11 * H, 3 * H)
    assert wide.bias.view(11, H)[:, 0].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]


def test_one_word_one_step_by_hand():
    """Only u has a weight, so every gate is σ(0) = 1/2 and each of the five shares is 1/5."""
    layer = SentenceStateLSTM(1, 1, 1).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.weight_ih[6] = 2.0  # u
    output, g = layer(torch.tensor([[[0.3]]], dtype=torch.float64))
    assert output.item() == pytest.approx(0.5 * math.tanh(math.tanh(0.6) / 5))
    assert g.item() == 0  # the cells were zero before the first step
    layer.num_steps = 2
    first, u = math.tanh(0.6) / 5, math.tanh(0.6)
    output, g = layer(torch.tensor([[[0.3]]], dtype=torch.float64))
    assert output.item() == pytest.approx(0.5 * math.tanh((u + first) / 5))  # i and f
    assert g.item() == pytest.approx(0.5 * math.tanh(first / 2))  # one word and the node


def test_gates_of_missing_neighbours_count_in_the_softmax():
    """The first word's gate l takes its share, although there is no cell on its left."""
    layer = SentenceStateLSTM(1, 1, 2).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias[6] = 1.0  # u
        layer.bias[1] = 50.0  # l: σ = 1
    output, _ = layer(torch.zeros(2, 1, 1, dtype=torch.float64))
    total, u = math.e + 4 * math.exp(0.5), math.tanh(1)
    share, share_l = math.exp(0.5) / total, math.e / total
    c = share * u
    first = share * (u + c + c)  # i, f, r; nothing on the left
    second = share * (u + c) + share_l * c  # i, f; the first word on the left
    assert output[:, 0, 0].tolist() == pytest.approx(
        [0.5 * math.tanh(first), 0.5 * math.tanh(second)]
    )


@every_engine
@every_shape
def test_padding_and_order_of_the_batch_have_no_effect(window, nodes, engine):
    layer, x = layer_of(window, nodes, engine=engine), rand(5, 3, I)
    lengths = torch.tensor(LENGTHS)
    output, g = layer(x, lengths)
    with_nan = x.clone()
    for b, length in enumerate(LENGTHS):
        with_nan[length:, b] = torch.nan
        assert not output[length:, b].any()
        alone, alone_g = layer(x[:length, b : b + 1])
        assert_close([output[:length, b], g[b]], [alone[:, 0], alone_g[0]])
    again, again_g = layer(with_nan, lengths)
    assert again.equal(output)
    assert again_g.equal(g)
    grads = gradients(again.sum() + again_g.sum(), layer.parameters())
    assert all(grad.isfinite().all() for grad in grads)
    order = torch.tensor([2, 0, 1])
    shuffled, shuffled_g = layer(x[:, order], lengths[order])
    assert_close([shuffled, shuffled_g], [output[:, order], g[order]])
    longer = torch.cat([x, rand(2, 3, I, seed=9)])
    more, more_g = layer(longer, lengths)
    assert_close([more[:5], more_g], [output, g], DOUBLE)


@pytest.mark.parametrize("window", [1, 2])
def test_how_far_a_word_reaches(window):
    """The second step reaches the neighbours; from the third on, the sentence node reaches all."""
    layer, x = layer_of(window), rand(9, 1, I)
    changed = x.clone()
    changed[0] += 1
    for steps, reached in ((1, 1), (2, 1 + window), (3, 9)):
        layer.num_steps = steps
        differs = (layer(x)[0] - layer(changed)[0]).abs().sum((1, 2)) > 0
        assert differs.tolist() == [i < reached for i in range(9)]


@every_engine
def test_window_wider_than_the_sentence(engine):
    output, g = layer_of(window=4, engine=engine)(rand(1, 2, I))
    assert output.isfinite().all()
    assert g.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 4, 1), "input_size"),
        ((3, 0, 1), "hidden_size"),
        ((3, 4, 0), "num_steps"),
        ((3, 4, 1, 0), "window"),
    ],
)
def test_sizes_below_one(arguments, name):
    with pytest.raises(UserError, match=f"{name} is 0"):
        SentenceStateLSTM(*arguments)


def test_negative_number_of_sentence_nodes():
    with pytest.raises(UserError, match=r"num_sentence_nodes is -1; it must be .* at least 0"):
        SentenceStateLSTM(3, 4, 1, 1, -1)


def test_invalid_shapes():
    layer = SentenceStateLSTM(I, H, 1)
    with pytest.raises(UserError, match=r"shape \(2, 3, 5\); expected \(time, batch, 3\)"):
        layer(torch.zeros(2, 3, 5))
    with pytest.raises(UserError, match="lengths run from 0 to 2"):
        layer(torch.zeros(2, 2, I), torch.tensor([0, 2]))

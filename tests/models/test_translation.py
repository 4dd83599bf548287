"""All cells in all variants of the translation model."""

import pytest
import torch
from helpers import (
    DOUBLE,
    ENGINES,
    FAMILIES,
    SINGLE,
    Case,
    assert_close,
    every_case,
    every_engine,
    every_family,
    gradients,
    weighted,
)

from fairseq_casrnn import recurrence
from fairseq_casrnn.models import decoder
from fairseq_casrnn.models.decoder import Attention
from fairseq_casrnn.recurrence import decoding

from .common import (
    PAD,
    SIZES,
    SOURCE_LENGTHS,
    TARGET,
    TARGET_LENGTHS,
    VARIANTS,
    random_model,
    run,
    source,
    target,
)

pytestmark = pytest.mark.sampled(1)

every_variant = pytest.mark.parametrize("variant", VARIANTS)
every_other = pytest.mark.parametrize("engine", [name for name in ENGINES if name != "reference"])


@every_family
@every_variant
def test_shapes_distribution_and_gradients(case, variant):
    model = random_model(case, variant)
    src, prev = source(), target()
    net_output = model.eval()(src, src.ne(PAD).sum(1), prev)
    lprobs = model.get_normalized_probs(net_output, log_probs=True).detach()
    attn = net_output[1]["attn"][0]
    assert lprobs.shape == (*prev.shape, TARGET)
    assert attn.shape == (*prev.shape, src.size(1))
    ones = torch.ones(prev.shape)
    assert_close([lprobs.exp().sum(-1).float(), attn.sum(-1).float()], [ones, ones], SINGLE)
    # Every parameter is used.
    outputs = [run(model.train())[0]]
    if model.decoder.adaptive_softmax is not None:
        words = (3 * torch.arange(prev.numel()) % TARGET).view_as(prev)  # words of all clusters
        outputs = list(model.decoder.adaptive_softmax(outputs[0], words)[0])
    names, parameters = zip(*model.named_parameters(), strict=True)
    for name, grad in zip(names, gradients(weighted(outputs), parameters), strict=True):
        assert grad.isfinite().all(), name
        if model.decoder.rnn.num_layers == model.encoder.rnn.num_layers or "hidden" not in name:
            assert grad.abs().max() > 1e-9, name


@every_case
@every_other
@pytest.mark.parametrize("variant", ["sizes", "plain", "no-input-feed"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_engines_agree(case, engine, variant, training):
    """Dropout is active in training, and all engines draw the same masks."""
    compare_engines(case, engine, variant, training)


@every_family
@every_other
@pytest.mark.parametrize("variant", ["bidirectional", "deeper-encoder", "deeper-decoder"])
def test_engines_agree_in_other_shapes(case, engine, variant):
    compare_engines(case, engine, variant, training=True)


def compare_engines(case, engine, variant, training):
    results = []
    for name in (engine, "reference"):
        model = random_model(case, variant, dropout=0.3, engine=name).train(training)
        torch.manual_seed(5)
        result = run(model)
        results.append([*result, *gradients(weighted(result), model.parameters())])
    names = ["output", "attention", *(name for name, _ in model.named_parameters())]
    assert_close(*results, names=names)


@every_family
@every_variant
def test_a_sentence_alone_equals_its_row(case, variant):
    model = random_model(case, variant).eval()
    src, prev = source(), target()
    together, attn = run(model, src, prev)
    for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        alone, own = run(model, src[row : row + 1, -s:], prev[row : row + 1, :t])
        assert_close([alone[0], own[0]], [together[row, :t], attn[row, :t, -s:]])


@every_family
@every_variant
def test_left_and_right_padding_give_the_same_output(case, variant):
    """The attention is on the positions of src_tokens, too."""
    model = random_model(case, variant).eval()
    left, left_attn = run(model, source(left=True))
    right, right_attn = run(model, source(left=False))
    assert_close([left], [right])
    steps = max(SOURCE_LENGTHS)
    for row, length in enumerate(SOURCE_LENGTHS):
        assert_close([left_attn[row, :, steps - length :]], [right_attn[row, :, :length]])
        assert not left_attn[row, :, : steps - length].any()
        assert not right_attn[row, :, length:].any()


@every_engine
@every_family
def test_a_source_of_only_padding(case, engine):
    """An empty source has finite outputs, and changes neither other sentences nor gradients."""
    model = random_model(case).eval()
    model.encoder.rnn.engine = model.decoder.rnn.engine = engine
    found = []
    for src in (source(), torch.cat([source(), torch.full_like(source()[:1], PAD)])):
        prev = torch.cat([target(), target()[:1]])[: len(src)]
        out, attn = run(model, src, prev)
        assert out.isfinite().all()
        assert attn.isfinite().all()
        grads = gradients(out[:3].square().sum(), model.parameters())
        found.append([out[:3], attn[:3], *grads])
    assert_close(*found)


@every_engine
def test_empty_batch(engine):
    model = random_model(FAMILIES[0]).eval()
    model.encoder.rnn.engine = model.decoder.rnn.engine = engine
    out, attn = run(model, source()[:0], target()[:0])
    assert out.shape[:2] == attn.shape[:2] == (0, target().size(1))


@every_family
def test_target_padding_changes_nothing_before_it(case):
    model = random_model(case).eval()
    prev = target()
    longer = torch.cat([prev, torch.full((len(prev), 3), PAD)], dim=1)
    out, attn = run(model, prev=prev)
    padded, padded_attn = run(model, prev=longer)
    steps = prev.size(1)
    assert_close([padded[:, :steps], padded_attn[:, :steps]], [out, attn])


@every_family
def test_outputs_do_not_depend_on_later_words(case):
    model = random_model(case).eval()
    prev = target(lengths=(5, 5, 5))
    out, _ = run(model, prev=prev)
    for t in range(1, 5):
        changed = prev.clone()
        changed[:, t:] = 7 + t
        assert_close([run(model, prev=changed)[0][:, :t]], [out[:, :t]])


@every_family
def test_encoder_output(case):
    """Outputs (S, B, D*H) are at the positions of src_tokens, and final states are (L, B, D*H)."""
    model = random_model(case, "bidirectional").eval()
    src = source()
    encoded = model.encoder(src)
    size = 2 * SIZES["encoder_hidden_size"]
    assert encoded["encoder_out"].shape == (src.size(1), len(src), size)
    assert not encoded["encoder_out"].transpose(0, 1)[src.eq(PAD)].any()
    assert encoded["encoder_padding_mask"].equal(src.eq(PAD))
    assert encoded["encoder_hidden"].shape == (SIZES["encoder_layers"], len(src), size)
    # The top layer's final states are its outputs at the last word and, reversed, at the first.
    top, half = encoded["encoder_hidden"][-1], size // 2
    first = torch.tensor([src.size(1) - length for length in SOURCE_LENGTHS])
    rows = torch.arange(len(src))
    assert_close([top[:, :half]], [encoded["encoder_out"][-1, :, :half]])
    assert_close([top[:, half:]], [encoded["encoder_out"][first, rows, half:]])
    if encoded["encoder_cell"] is not None:
        assert encoded["encoder_cell"].shape == encoded["encoder_hidden"].shape
    assert model.encoder(src[1:2])["encoder_padding_mask"] is None


@every_family
def test_reorder_encoder_out(case):
    model = random_model(case, "bidirectional").eval()
    order = torch.tensor([2, 0, 0, 1])
    encoded = model.encoder(source())
    prev = target(lengths=(3, 3, 3, 3))
    expected, attn = run(model, source()[order], prev)
    actual, extra = model.decoder(
        prev, encoder_out=model.encoder.reorder_encoder_out(encoded, order)
    )
    assert_close([actual, extra["attn"][0]], [expected, attn])


def test_reorder_encoder_out_twice():
    """The second order refers to the rows after the first."""
    model = random_model(Case("cas_lstm")).eval()
    encoded, prev = model.encoder(source()), target(lengths=(3, 3))
    for order in ([2, 0, 1, 1], [3, 0]):
        encoded = model.encoder.reorder_encoder_out(encoded, torch.tensor(order))
    expected, attn = run(model, source()[[1, 2]], prev)
    for state in (None, {}):
        actual, extra = model.decoder(prev[:, :1] if state == {} else prev, encoded, state)
        width = actual.size(1)
        assert_close([actual, extra["attn"][0]], [expected[:, :width], attn[:, :width]])


@pytest.mark.parametrize(
    ("encoder_layers", "decoder_layers", "start"),
    [(2, 2, [0, 1]), (3, 1, [2]), (1, 3, [0, 0, 0]), (2, 3, [0, 0, 1]), (3, 2, [1, 2])],
)
def test_decoder_starts_from_the_encoders_final_states(encoder_layers, decoder_layers, start):
    layers = {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers}
    model = random_model(Case("cas_lstm"), "plain", **layers)
    encoded = model.encoder(source())
    hidden, cell = model.decoder.initial_state(encoded)
    assert_close([hidden], [encoded["encoder_hidden"][start]])
    assert_close([cell], [encoded["encoder_cell"][start]])


def test_attention_by_hand():
    """a = softmax(mᵀ W_a h) and out = tanh(W_o [Σ a m; h]), without padding."""
    torch.manual_seed(0)
    attention = Attention(source_size=3, hidden_size=4).double()
    m, h = torch.randn(5, 1, 3).double(), torch.randn(1, 1, 4).double()
    out, alpha = attention(h, *attention.project(m), None)
    scores = torch.stack([m[s, 0] @ attention.input_proj.weight @ h[0, 0] for s in range(5)])
    a = scores.softmax(0)
    context = sum(a[s] * m[s, 0] for s in range(5))
    expected = torch.tanh(attention.output_proj.weight @ torch.cat([context, h[0, 0]]))
    assert_close([out[0, 0], alpha[0, 0]], [expected, a])


@every_family
def test_input_feeding_by_hand(case):
    """The bottom layer reads [embedding; attention's output of the previous step]."""
    model = random_model(case, "plain").eval()
    decoder, encoded, prev = model.decoder, model.encoder(source()), target()
    state = decoder.initial_state(encoded)
    feed = torch.zeros(len(prev), decoder.rnn.hidden_size).double()
    expected = []
    for t in range(prev.size(1)):
        x = torch.cat([decoder.embed_tokens(prev[:, t]), feed], dim=-1)
        output, state = decoder.rnn(x.unsqueeze(0), state)
        keys_values = decoder.attention.project(encoded["encoder_out"])
        out, _ = decoder.attention(output, *keys_values, encoded["encoder_padding_mask"])
        feed = out[0]
        expected.append(decoder.fc_out(feed))
    assert_close([run(model)[0]], [torch.stack(expected, dim=1)])


@every_family
def test_without_input_feeding_attention_is_computed_at_once(case, monkeypatch):
    calls = {"attention": 0, "engine": 0}
    forward, engine = Attention.forward, recurrence.run

    def count(name, function):
        def counted(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        return counted

    def forbidden(*args, **kwargs):
        raise AssertionError("the decoder loops over time")

    model = random_model(case, "no-input-feed").train()
    monkeypatch.setattr(Attention, "forward", count("attention", forward))
    monkeypatch.setattr(recurrence, "run", count("engine", engine))
    monkeypatch.setattr(decoding, "run", forbidden)
    monkeypatch.setattr(decoder, "attend", forbidden)
    monkeypatch.setattr(type(model.decoder.rnn), "step", forbidden)
    out, _ = run(model)
    out.sum().backward()
    assert calls == {
        "attention": 1,
        "engine": model.encoder.rnn.num_layers + model.decoder.rnn.num_layers,
    }


@every_family
@pytest.mark.parametrize("variant", ["plain", "no-input-feed", "bidirectional"])
def test_dropout_only_in_training(case, variant):
    model = random_model(case, variant, dropout=0.5)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float64, name
    torch.manual_seed(1)
    first = run(model.train())[0]
    assert (first - run(model)[0]).abs().max() > 1e-3
    torch.manual_seed(1)
    assert_close([run(model)[0]], [first])
    model.eval()
    plain = random_model(case, variant).eval()
    assert_close([run(model)[0]], [run(plain)[0]])


@pytest.mark.parametrize(
    "option",
    ["encoder_dropout_in", "encoder_dropout_out", "decoder_dropout_in", "decoder_dropout_out"],
)
def test_each_dropout_option(option):
    """With p = 1 the embeddings, or the outputs, are zero."""
    model = random_model(Case("cas_lstm"), "plain", **{option: 1.0}).train()
    src, prev = source(lengths=(4, 4)), target(lengths=(3, 3))
    out, attn = run(model, src, prev)
    if option == "encoder_dropout_in":
        assert_close([out], [run(model, source(seed=9, lengths=(4, 4)), prev)[0]])
    elif option == "encoder_dropout_out":
        assert not model.encoder(src)["encoder_out"].any()
        assert_close([attn], [torch.full_like(attn, 1 / 4)])
    elif option == "decoder_dropout_in":
        assert_close([out], [run(model, src, target(seed=9, lengths=(3, 3)))[0]])
    else:
        assert_close([out], [model.decoder.fc_out.bias.expand_as(out)])
    assert run(model.eval(), src, prev)[0].std() > 0
    assert (run(model)[0][0] - run(model, source(seed=9))[0][0]).abs().max() > 1e-6


@every_family
@pytest.mark.parametrize("variant", ["plain", "sizes"])
def test_dropout_retained_at_inference(case, variant):
    """--retain-dropout is effective both when references are scored and in generation."""
    model = random_model(case, variant, dropout=0.5).eval()
    src, prev = source(), target()
    encoded = model.encoder(src)
    still = model.decoder(prev, encoded)[0]
    model.decoder.dropout_out_module.apply_during_inference = True
    torch.manual_seed(1)
    full = model.decoder(prev, encoded)[0]
    one = model.decoder(prev[:, :1], encoded, incremental_state={})[0]
    assert (full - still).abs().max() > 1e-3
    assert (one - still[:, :1]).abs().max() > 1e-3


@pytest.mark.parametrize("variant", ["plain", "no-input-feed"])
@torch.no_grad()
def test_soft_routing_in_evaluation(variant):
    """With soft_routing, evaluation equals training, also step by step."""
    (case,) = (case for case in FAMILIES if case.name == "second_order_lstm")
    model = random_model(case, variant, dropout=0.0)
    src, prev = source(), target(lengths=(3, 3, 3))

    def outputs():
        encoded, state = model.encoder(src), {}
        steps = [
            model.decoder(prev[:, : t + 1], encoded, incremental_state=state)[0] for t in range(3)
        ]
        return [model.decoder(prev, encoded)[0], torch.cat(steps, dim=1)]

    soft, _ = outputs()
    hard = model.eval() and outputs()
    assert (hard[0] - soft).abs().max() > 1e-4
    assert_close(hard[:1], hard[1:])
    for part in model.encoder, model.decoder:
        part.rnn.soft_routing = True
    assert_close(outputs(), [soft, soft])


@every_family
@pytest.mark.parametrize("variant", ["plain", "no-input-feed"])
@pytest.mark.parametrize("named", [None, "the layer", "the decoder"])
def test_dropout_between_layers_retained_at_inference(case, variant, named):
    """--retain-dropout applies to all modules, or to those named by their class."""
    model = random_model(case, variant, dropout=0.0).eval()
    model.decoder.rnn.dropout = model.encoder.rnn.dropout = 0.5
    src, prev = source(), target()

    def outputs():
        encoded = model.encoder(src)
        full = model.decoder(prev, encoded)[0]
        one = model.decoder(prev[:, :1], encoded, incremental_state={})[0]
        return encoded["encoder_out"], full, one

    still = outputs()
    names = {"the layer": [type(model.decoder.rnn).__name__], "the decoder": ["RecurrentDecoder"]}
    model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=names.get(named))
    for retained, before in zip(outputs(), still, strict=True):
        assert ((retained - before).abs().max() > 1e-4) == (named != "the decoder")


@every_family
def test_eval_twice_is_the_same(case):
    model = random_model(case, dropout=0.5).eval()
    assert_close(run(model), run(model), tolerance={"rtol": 0, "atol": 0})


def test_second_order_routes_softly_in_training_and_hard_in_eval():
    (case,) = (case for case in FAMILIES if case.name == "second_order_lstm")
    model = random_model(case)
    temperatures = [layer.rnn.temperature for layer in (model.encoder, model.decoder)]

    def at(temperature, training):
        model.train(training)
        for buffer in temperatures:
            buffer.fill_(temperature)
        return run(model)[0]

    hard = at(1.0, False)
    assert_close([at(0.5, False)], [hard])
    assert (at(1.0, True) - at(0.5, True)).abs().max() > 1e-4
    # With a temperature near zero, soft routing equals hard routing.
    assert_close([at(1e-6, True)], [hard], DOUBLE)

"""Translation models: dropout, initial weights, limits, and padding within a sentence."""

import pytest
import torch
from helpers import Case, assert_close

from .common import EOS, PAD, build, make_task, random_model, run, source, target

FOUR = {"lengths": (4, 4)}


def test_dropout_between_the_layers():
    """With p = 1 the upper layer reads zeros in training."""
    model = random_model(Case("stacked_lstm"), "no-input-feed", encoder_dropout_out=1.0).train()
    final = [model.encoder(source(seed=seed, **FOUR))["encoder_hidden"] for seed in (0, 9)]
    assert_close([final[0][1]], [final[1][1]])
    assert (final[0][0] - final[1][0]).abs().max() > 1e-6
    model = random_model(Case("stacked_lstm"), "no-input-feed", decoder_dropout_out=1.0)
    encoded = model.encoder(source(**FOUR))

    def weights():
        rows = [target(seed=seed, lengths=(3, 3)) for seed in (1, 9)]
        return [model.decoder(row, encoded)[1]["attn"][0] for row in rows]

    model.train()
    assert_close(*([each] for each in weights()))
    model.eval()
    first, second = weights()
    assert (first - second).abs().max() > 1e-6


@pytest.mark.parametrize("variant", ["sizes", "no-input-feed"])
def test_dropout_after_the_projection(variant):
    """With p = 1 only the output bias contributes, in a whole pass and step by step."""
    model = random_model(Case("cas_lstm"), variant, decoder_dropout_out=1.0).train()
    assert model.decoder.additional_fc.bias.abs().max() > 0
    out, _ = run(model, source(**FOUR), target(lengths=(3, 3)))
    assert_close([out], [model.decoder.fc_out.bias.expand_as(out)])
    encoded = model.encoder(source(**FOUR))
    model.decoder.eval()
    model.decoder.dropout_out_module.apply_during_inference = True
    out, _ = model.decoder(torch.tensor([[2], [2]]), encoded, incremental_state={})
    assert_close([out], [model.decoder.fc_out.bias.expand_as(out)])


def test_dropout_of_the_output_without_projection():
    sizes = {"decoder_out_embed_dim": 4, "decoder_dropout_out": 1.0}
    model = random_model(Case("cas_lstm"), "no-input-feed", **sizes).train()
    assert model.decoder.additional_fc is None
    out, _ = run(model, source(**FOUR), target(lengths=(3, 3)))
    assert_close([out], [model.decoder.fc_out.bias.expand_as(out)])


def test_dropout_of_the_adaptive_softmax():
    model = random_model(Case("cas_lstm"), "adaptive", decoder_dropout_out=0.3)
    rates = {part.p for part in model.decoder.adaptive_softmax.modules() if hasattr(part, "p")}
    assert rates == {0.3}


@pytest.mark.parametrize(
    ("options", "rnn", "embedding"),
    [({}, 0.1, 0.1), ({"init_range": 0.3}, 0.3, 0.1), ({"embed_range": 1.0}, 0.1, 1.0)],
)
def test_ranges_of_initial_weights(options, rnn, embedding):
    """Peepholes have the range of recurrent weights; for attention and output layer it is fixed."""
    model = build("dg_lstm_tiny", make_task(), **options)
    for name, parameter in model.named_parameters():
        bound = rnn if ".rnn." in name else embedding if "embed_tokens" in name else 0.1
        if "bias_l" not in name:
            assert 0.7 * bound < parameter.abs().max().item() <= bound, name


def test_max_positions():
    limits = {"max_source_positions": 30, "max_target_positions": 40}
    model = build("cas_lstm_tiny", make_task(), **limits)
    assert model.max_positions() == (30, 40)


@pytest.mark.parametrize("case", [Case("stacked_lstm"), Case("cas_lstm")], ids=str)
def test_a_padding_symbol_in_the_text(case):
    """A padding symbol is not attended to, and does not end the sentence."""
    model = random_model(case, "bidirectional").eval()
    sentence = torch.tensor([[5, PAD, 6, EOS]])
    x = model.encoder.embed_tokens(sentence).transpose(0, 1)
    expected, (h_n, c_n) = model.encoder.rnn(x)
    for before, after in ((0, 0), (2, 0), (0, 2)):
        padded = torch.nn.functional.pad(sentence, (before, after), value=PAD)
        other = torch.tensor([[7, 8, 9, 5, 6, EOS][: padded.size(1)]])
        encoded = model.encoder(torch.cat([padded, other]))
        assert_close([encoded["encoder_out"][before : before + 4, :1]], [expected])
        for name, state in (("encoder_hidden", h_n), ("encoder_cell", c_n)):
            assert_close([encoded[name][:, :1]], [model.encoder.concat_directions(state)])
        out, attention = run(model, padded, torch.tensor([[EOS, 4]]))
        assert_close([out], [run(model, sentence, torch.tensor([[EOS, 4]]))[0]])
        assert not attention[..., before + 1].any()

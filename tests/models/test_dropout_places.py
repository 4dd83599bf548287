"""The dropout options of sentence encoders and taggers, with p = 1."""

import pytest
import torch
from helpers import assert_close

from . import sentences, taggers
from .sentences import batch, encoder
from .taggers import spelling, tagger

UPPER_READS_BELOW = {  # models whose upper layer reads only the outputs of the layer below
    "stacked_lstm": {},
    "shortcut_lstm": {"connection": "none"},
    "cnn": {},
}
DROPPING_ALL_WORDS = [
    # dropout of the embeddings (and the features of characters)
    *((encoder, name, {"encoder_dropout_in": 1.0}) for name in sentences.NAMES),
    *((tagger, name, {"encoder_dropout_in": 1.0}) for name in taggers.NAMES),
    # dropout between the layers
    *(
        (build, name, {"encoder_dropout_out": 1.0, **UPPER_READS_BELOW[name]})
        for build, names in (
            (encoder, UPPER_READS_BELOW),
            (tagger, ("stacked_lstm", "shortcut_lstm")),
        )
        for name in names
    ),
    # dropout in the transformer: only residual connections remain, and </s> reads no other word
    (encoder, "transformer", {"pooling": "last", "encoder_dropout_out": 1.0}),
]


def letters(seed):
    return spelling(batch(), seed=seed)


def label(value):
    return "-".join(value) if isinstance(value, dict) else getattr(value, "__name__", value)


@pytest.mark.parametrize(("build", "name", "options"), DROPPING_ALL_WORDS, ids=label)
def test_dropped_words_do_not_reach_the_output(build, name, options):
    """In training, sentences of the same lengths with other words give the same output."""
    model = build(name, **options)

    def outputs():
        if build is tagger:
            return [model(batch(seed=seed), letters(seed))[0] for seed in (0, 5)]
        return [model(batch(seed=seed)) for seed in (0, 5)]

    model.train()
    first, second = outputs()
    assert_close([first], [second])
    model.eval()
    first, second = outputs()
    assert (first - second).abs().max() > 1e-6


def test_dropout_of_the_embeddings_of_characters():
    model = tagger("stacked_lstm", encoder_dropout_in=1.0)
    layer, words = model.train().encoder.spelling, letters(0)[:1, :3]
    assert_close([layer(words)], [layer.convolve.bias.expand(1, 3, -1)])
    assert (layer.eval()(words) - layer.convolve.bias).abs().max() > 1e-3


def test_dropout_between_layers_does_not_reach_a_single_convolution():
    model = encoder("cnn", encoder_layers=1, encoder_dropout_out=1.0)
    assert_close([model.train()(batch())], [model.eval()(batch())])


def test_dropout_of_the_features_of_taggers():
    model = tagger("stacked_lstm", tagger_dropout=1.0).train()
    emissions, _ = model(batch(), letters(0))
    assert_close([emissions], [model.output.bias.expand_as(emissions)])
    emissions, _ = model.eval()(batch(), letters(0))
    assert (emissions - model.output.bias).abs().max() > 1e-6


def test_training_without_dropout_is_deterministic():
    for model in (encoder("cas_lstm").train(), encoder("transformer").train()):
        assert torch.equal(model(batch()), model(batch()))

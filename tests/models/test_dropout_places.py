"""Dropout of sentence encoders and taggers: with p = 1 what it drops is gone, in training alone."""

import pytest
import torch
from helpers import assert_close

from . import sentences, taggers
from .sentences import batch, encoder
from .taggers import spelling, tagger

LOWER_ALONE = {  # whose upper layer reads the hidden states below it and nothing else
    "stacked_lstm": {},
    "shortcut_lstm": {"connection": "none"},
    "cnn": {},
}


def of_two_batches(model, *more):
    """What the model gives for other words in sentences of the same lengths."""
    return [model(batch(seed=seed), *(part(seed) for part in more)) for seed in (0, 5)]


def letters(seed):
    return spelling(batch(), seed=seed)


@pytest.mark.parametrize("name", sentences.NAMES)
def test_embeddings_of_sentence_encoders(name):
    model = encoder(name, encoder_dropout_in=1.0)
    first, second = of_two_batches(model.train())
    assert_close([first[:2]], [second[:2]])
    first, second = of_two_batches(model.eval())
    assert (first - second)[:2].abs().max() > 1e-6


@pytest.mark.parametrize("name", taggers.NAMES)
def test_embeddings_and_features_of_taggers(name):
    model = tagger(name, encoder_dropout_in=1.0)
    first, second = (emissions for emissions, _ in of_two_batches(model.train(), letters))
    assert_close([first], [second])
    first, second = (emissions for emissions, _ in of_two_batches(model.eval(), letters))
    assert (first - second).abs().max() > 1e-6


def test_embeddings_of_characters():
    model = tagger("stacked_lstm", encoder_dropout_in=1.0)
    layer, words = model.train().encoder.spelling, letters(0)[:1, :3]
    assert_close([layer(words)], [layer.convolve.bias.expand(1, 3, -1)])
    assert (layer.eval()(words) - layer.convolve.bias).abs().max() > 1e-3


@pytest.mark.parametrize("name", LOWER_ALONE)
def test_between_the_layers_of_sentence_encoders(name):
    model = encoder(name, encoder_dropout_out=1.0, **LOWER_ALONE[name])
    first, second = of_two_batches(model.train())
    assert_close([first], [second])
    first, second = of_two_batches(model.eval())
    assert (first - second).abs().max() > 1e-6


@pytest.mark.parametrize("name", ["stacked_lstm", "shortcut_lstm"])
def test_between_the_layers_of_taggers(name):
    model = tagger(name, encoder_dropout_out=1.0, **LOWER_ALONE[name])
    first, second = (emissions for emissions, _ in of_two_batches(model.train(), letters))
    assert_close([first], [second])
    first, second = (emissions for emissions, _ in of_two_batches(model.eval(), letters))
    assert (first - second).abs().max() > 1e-6


def test_the_first_convolution_reads_all_of_the_embeddings():
    model = encoder("cnn", encoder_layers=1, encoder_dropout_out=1.0)
    assert_close([model.train()(batch())], [model.eval()(batch())])


def test_parts_of_the_transformer():
    """What is left is the way past them, on which no word hears of another."""
    model = encoder("transformer", pooling="last", encoder_dropout_out=1.0)
    first, second = of_two_batches(model.train())
    assert_close([first], [second])  # of </s>
    first, second = of_two_batches(model.eval())
    assert (first - second).abs().max() > 1e-6


def test_states_of_taggers():
    model = tagger("stacked_lstm", tagger_dropout=1.0).train()
    emissions, _ = model(batch(), letters(0))
    assert_close([emissions], [model.output.bias.expand_as(emissions)])
    emissions, _ = model.eval()(batch(), letters(0))
    assert (emissions - model.output.bias).abs().max() > 1e-6


def test_nothing_is_dropped_without_dropout():
    for model in (encoder("cas_lstm").train(), encoder("transformer").train()):
        assert torch.equal(model(batch()), model(batch()))

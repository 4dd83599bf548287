"""Models that are copied, pickled, or quantised to integer weights by torch."""

import copy
import io
import pickle

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from language_models.common import build as build_language_model
from language_models.common import random_tokens

from fairseq_casrnn.cells import FAMILIES
from fairseq_casrnn.recurrence.products import linear

from . import sentences, taggers
from .common import SIZES, build, source, target

CELLS = list(FAMILIES)


def translation(cell):
    model = build(cell, **SIZES, dropout=0.0)
    src, prev = source(), target()
    return model, lambda model: model(src, src.ne(1).sum(1), prev)[0]


def language_model(cell):
    model = build_language_model(f"{cell}_lm_tiny")
    return model, lambda model: model(random_tokens(3, 5))[0]


def sentence_encoder(name):
    return sentences.encoder(name).float(), lambda model: model(sentences.batch())


def tagger(name):
    rows = taggers.batch()
    return taggers.tagger(name).float(), lambda model: model(rows, taggers.spelling(rows))[0]


ROLES = [
    *((translation, cell) for cell in CELLS),
    *((language_model, cell) for cell in CELLS),
    *((sentence_encoder, name) for name in sentences.NAMES),
    *((tagger, name) for name in taggers.NAMES),
]


def saved(model):
    """Save the whole model with torch, and load it."""
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(("role", "name"), ROLES)
def test_a_copy_is_the_same(role, name):
    model, ask = role(name)
    model.eval()
    expected = ask(model)
    for copied in (saved(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert type(copied) is type(model)
        assert ask(copied).equal(expected)


@pytest.mark.parametrize(("role", "name"), ROLES[:: len(CELLS)])
def test_a_copy_after_make_generation_fast(role, name):
    model, ask = role(name)
    model.eval()
    expected = ask(model)
    model.make_generation_fast_()
    assert ask(pickle.loads(pickle.dumps(model))).equal(expected)


class Doubled(torch.nn.Linear):
    """An output layer of another class."""

    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("role", [translation, language_model])
def test_another_output_layer(role):
    """The forward method and the hooks of a replaced output layer are called."""
    model, ask = role("cas_lstm")
    decoder, expected = model.eval().decoder, ask(model)
    layer = Doubled(*decoder.fc_out.weight.shape[::-1])
    layer.load_state_dict(decoder.fc_out.state_dict())
    handle = decoder.fc_out.register_forward_hook(lambda module, args, output: 3 * output)
    assert ask(model).equal(3 * expected)
    handle.remove()
    decoder.fc_out = layer
    torch.testing.assert_close(ask(model), 2 * expected)


@pytest.mark.parametrize(("role", "name"), ROLES)
def test_quantised_models_give_nearly_the_same(role, name):
    model, ask = role(name)
    model.eval()
    with pytest.warns(DeprecationWarning, match="torch.ao.quantization is deprecated"):
        quantised = torch.ao.quantization.quantize_dynamic(model)
    with torch.no_grad():
        expected, found = ask(model), ask(quantised)
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()
    if "fc_out" in dir(getattr(model, "decoder", None)):
        assert not found.equal(expected)  # the output layer has been quantised


def test_a_quantised_output_layer_is_used_with_a_shared_embedding_too():
    """The shared embedding is not a linear layer, and is not quantised."""
    model = build("cas_lstm", **{**SIZES, "decoder_out_embed_dim": 6}, dropout=0.0,
                  share_decoder_input_output_embed=True).eval()  # fmt: skip
    with pytest.warns(DeprecationWarning, match="torch.ao.quantization is deprecated"):
        quantised = torch.ao.quantization.quantize_dynamic(model)
    features = torch.randn(2, 3, 6)
    expected = linear(features, model.decoder.embed_tokens.weight)
    assert quantised.decoder.output_layer(features).equal(expected)


def test_classes_of_models_and_options_can_be_pickled():
    ours = {name: kind for name, kind in MODEL_REGISTRY.items() if "casrnn" in kind.__module__}
    assert len(ours) > 4 * len(CELLS)
    for name, kind in ours.items():
        config = MODEL_DATACLASS_REGISTRY[name]
        for found in (kind, config):
            assert pickle.loads(pickle.dumps(found)) is found

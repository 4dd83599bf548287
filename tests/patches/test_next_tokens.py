"""The next words' log-probabilities in fairseq's generator, beside its own."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from helpers import FAMILIES, SINGLE, assert_close, every_family
from language_models.common import random_model as random_language_model
from models.common import EOS, TARGET, dictionary, random_model, source

from fairseq_casrnn import recurrence
from fairseq_casrnn.patches import install
from fairseq_casrnn.patches.table import TABLE
from fairseq_casrnn.recurrence import products

ROOT = Path(__file__).resolve().parents[2]
compiled = pytest.mark.skipif(
    "cpp" not in recurrence.installed(), reason="engine cpp is not compiled"
)


@pytest.fixture
def installed(monkeypatch):
    """fairseq's own way; and the tables that were made in one pass."""
    monkeypatch.delenv("CASRNN_ENGINE", raising=False)
    original, tables = EnsembleModel.forward_decoder, []
    monkeypatch.setattr(EnsembleModel, "forward_decoder", original)
    install.apply(p for p in TABLE if p.hook == "patches.next_tokens.forward_decoder")
    log_probs = products.log_probs

    def spy(*args, **options):
        tables.append(log_probs(*args, **options))
        return tables[-1]

    monkeypatch.setattr("fairseq_casrnn.models.head.log_probs", spy)
    return original, tables


def first_steps(forward_decoder, models, temperature=1.0):
    """Log-probabilities and attention after </s>, and after another word."""
    ensemble = EnsembleModel(models)
    states = [{} for _ in models]
    encoded = [model.encoder(source()) for model in models]
    tokens = torch.tensor([[EOS, 5]]).repeat(len(source()), 1)
    found = []
    for length in (1, 2):
        found += forward_decoder(ensemble, tokens[:, :length], encoded, states, temperature)
    return found


@every_family
@pytest.mark.parametrize("variant", ["sizes", "shared-target", "no-input-feed"])
@torch.no_grad()
def test_the_tables_are_those_of_fairseq(installed, case, variant):
    original, tables = installed
    model = random_model(case, variant).float().eval()
    expected = first_steps(original, [model])
    assert not tables
    found = first_steps(EnsembleModel.forward_decoder, [model])
    assert len(tables) == (2 if "cpp" in recurrence.installed() else 0)
    assert_close(found, expected, SINGLE)


@pytest.mark.parametrize("cell", ["cas_lstm", "stacked_gru"])
@torch.no_grad()
def test_the_tables_of_language_models(installed, cell):
    """Which have neither a source nor attention."""
    original, tables = installed
    model = random_language_model(cell).float()
    tokens, results = torch.tensor([[EOS, 5, 6]] * 3), []
    for way in (original, EnsembleModel.forward_decoder):
        ensemble, states = EnsembleModel([model]), [{}]
        results.append([way(ensemble, tokens[:, :length], [], states, 1.0) for length in (1, 2, 3)])
    assert len(tables) == (3 if "cpp" in recurrence.installed() else 0)
    for (theirs, no_attention), (ours, none) in zip(*results, strict=True):
        assert none is no_attention is None
        assert_close([ours], [theirs], SINGLE)


def another_output(decoder):
    class Louder(type(decoder)):
        def output_layer(self, features, **unused):
            return 3 * super().output_layer(features)

    decoder.__class__ = Louder


def other_probabilities(model):
    class Surer(type(model)):
        def get_normalized_probs(self, net_output, log_probs, sample=None):
            return super().get_normalized_probs((3 * net_output[0], None), log_probs, sample)

    model.__class__ = Surer


@pytest.mark.parametrize(
    "why",
    ["temperature", "ensemble", "engine", "adaptive", "double", "gradient", "output", "model"],
)
def test_what_is_left_to_fairseq(installed, monkeypatch, why):
    original, tables = installed
    model = random_model(FAMILIES[0], "adaptive-equal" if why == "adaptive" else "sizes").eval()
    model = model if why == "double" else model.float()
    if why == "output":
        another_output(model.decoder)
    if why == "model":
        other_probabilities(model)
    models = [model, model] if why == "ensemble" else [model]
    if why == "engine":
        monkeypatch.setenv("CASRNN_ENGINE", "eager")
    temperature = 0.5 if why == "temperature" else 1.0
    with torch.set_grad_enabled(why == "gradient"):
        expected = first_steps(original, models, temperature)
        found = first_steps(EnsembleModel.forward_decoder, models, temperature)
    assert not any(tables)
    assert_close(found, expected, SINGLE)


@compiled
@torch.no_grad()
def test_searches_end_alike(installed, monkeypatch):
    """The sentences and scores of the whole generator."""
    original, tables = installed
    model, words = random_model(FAMILIES[0], "sizes").float().eval(), dictionary(TARGET)
    src = source()
    sample = {"net_input": {"src_tokens": src, "src_lengths": src.ne(words.pad()).sum(1)}}
    results = []
    for way in (EnsembleModel.forward_decoder, original):
        monkeypatch.setattr(EnsembleModel, "forward_decoder", way)
        generator = SequenceGenerator([model], words, beam_size=3, max_len_b=6)
        results.append(generator.generate([model], sample))
    assert tables
    for ours, theirs in zip(*results, strict=True):
        assert [h["tokens"].tolist() for h in ours] == [h["tokens"].tolist() for h in theirs]
        scores = [[h["positional_scores"] for h in found] for found in (ours, theirs)]
        assert_close(*scores, SINGLE)


@compiled
@torch.no_grad()
def test_nan_stays_nan(installed):
    """So that fairseq's search finds it."""
    model = random_model(FAMILIES[0], "sizes").float().eval()
    model.decoder.fc_out.bias[7] = math.nan
    found = first_steps(EnsembleModel.forward_decoder, [model])
    assert found[0].isnan().all()


@pytest.mark.full
@compiled
def test_generators_of_fairseq_use_the_tables():
    code = (
        "import sys; sys.argv[0] = 'fairseq-generate'; import fairseq_casrnn; "
        "fairseq_casrnn.register(); "
        "fairseq_casrnn.register(); from fairseq.sequence_generator import EnsembleModel; "
        "from fairseq_casrnn.patches.install import patches_of; "
        "assert patches_of(EnsembleModel.forward_decoder)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)

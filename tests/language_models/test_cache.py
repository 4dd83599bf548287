"""The cache of recent words that is combined with a language model."""

import json
import math

import numpy as np
import pytest
import torch
from models.common import dictionary

from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import cache as caches
from fairseq_casrnn.evaluation import evaluate_lm, lm_scores
from fairseq_casrnn.evaluation.cache import Cache, cache_probabilities, mix, score_with_cache, tune
from fairseq_casrnn.inference import lm_inputs, loading

from .common import random_model, random_tokens


def by_definition(features, words, size, flatness):
    """p_cache of each word, word by word; NaN of the first."""
    found = [math.nan]
    for t in range(1, len(words)):
        held = range(max(0, t - size), t)
        powers = {i: math.exp(flatness * float(features[t] @ features[i])) for i in held}
        same = sum(power for i, power in powers.items() if words[i] == words[t])
        found.append(same / sum(powers.values()))
    return np.array(found)


def random_text(length=40, size=3):
    generator = torch.Generator().manual_seed(length)
    features = torch.randn(length, size, generator=generator, dtype=torch.double)
    return features, torch.randint(0, 4, (length,), generator=generator)


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("block", [1, 5, 512])
def test_probabilities_follow_the_definition(monkeypatch, size, block):
    monkeypatch.setattr(caches, "BLOCK", block)
    features, words = random_text()
    flatnesses = [0.0, 0.3, 2.0]
    found = cache_probabilities(features, words, size, flatnesses)
    expected = [by_definition(features, words, size, flatness) for flatness in flatnesses]
    assert found == pytest.approx(np.array(expected), rel=1e-12, nan_ok=True)


def test_by_hand():
    """With a flatness of 0 the cache counts words; a word that is not in it gets probability 0."""
    words = torch.tensor([5, 6, 5, 5, 7, 6])
    (found,) = cache_probabilities(torch.ones(6, 2), words, 3, [0.0])
    assert found == pytest.approx([math.nan, 0, 1 / 2, 2 / 3, 0, 0], nan_ok=True)


def test_large_features_do_not_overflow():
    """exp(θ h·h) alone would overflow."""
    features = torch.tensor([[100.0, 0], [0, 100], [100, 0], [0, 100]])
    (found,) = cache_probabilities(features, torch.tensor([5, 6, 5, 5]), 10, [3.0])
    assert found == pytest.approx([math.nan, 0, 1, 0], nan_ok=True)


@pytest.mark.parametrize("flatness", [1e-46, caches.STEEPEST])
def test_extreme_flatness(flatness):
    """No probability becomes NaN, which would stand for an empty cache."""
    features, words = random_text()
    (found,) = cache_probabilities(features.float(), words, 7, [flatness])
    likest = [
        max(range(max(0, t - 7), t), key=lambda i: float(features[t] @ features[i]))
        for t in range(1, len(words))
    ]
    expected = (
        by_definition(features, words, 7, 0)[1:]
        if flatness < 1
        else [words[i] == words[t] for t, i in enumerate(likest, 1)]
    )
    assert found[1:] == pytest.approx(np.array(expected, float), rel=1e-5)


def test_a_cache_larger_than_any_text():
    features, words = random_text()
    found = cache_probabilities(features, words, 10**30, [0.5])
    assert np.array_equal(found, cache_probabilities(features, words, 40, [0.5]), equal_nan=True)


def test_interpolation_by_hand():
    log_probs = np.log([0.5, 0.2, 0.1])
    cached = np.array([math.nan, 0.6, 0])
    assert np.exp(mix(log_probs, cached, 0.25)) == pytest.approx([0.5, 0.3, 0.075])
    assert np.exp(mix(log_probs, cached, 0)) == pytest.approx([0.5, 0.2, 0.1])
    assert np.exp(mix(log_probs, cached, 1)) == pytest.approx([0.5, 0.6, 0])


def read(streams=1, sentences=6):
    words = random_tokens(1, 12, seed=9).flatten()
    text = [words[torch.randperm(12, generator=torch.Generator().manual_seed(i))] for i in range(3)]
    return lm_scores.read_streams(
        random_model("second_order_lstm"), dictionary(), (text * 2)[:sentences], streams
    )


@pytest.mark.parametrize("streams", [1, 3])
def test_cache_of_a_model(monkeypatch, streams):
    """A word is looked up by the features that predict it, and each stream has its own cache."""
    monkeypatch.setattr(lm_scores, "BATCH_TOKENS", 8)
    text, model = read(streams), random_model("second_order_lstm")
    scores, start = score_with_cache(text, Cache(5, 0.3, 0.7)), 0
    for stream in text.words.tensor_split(streams):
        with torch.no_grad():
            features = model.decoder.extract_features(stream[None, :-1])[0][0]
            table = model(stream[None, :-1])[0][0].softmax(-1)
        cached = by_definition(features, stream[1:], 5, 0.7)
        alone = table.gather(1, stream[1:, None]).squeeze(1).numpy()
        expected = np.where(np.isnan(cached), alone, 0.7 * alone + 0.3 * cached)
        found = scores.log_probs[start : start + len(stream)]
        assert np.isnan(found[0])
        assert np.exp(found[1:]) == pytest.approx(expected, rel=1e-5)
        start += len(stream)
    assert scores.tokens == text.scores.tokens == len(text.words) - streams
    assert (scores.lengths == text.scores.lengths).all()


def test_tuning_finds_the_best_parameters():
    text = read()
    best = tune(text, 13)
    assert 0 < best.weight < 1
    least = score_with_cache(text, best).loss
    assert least < text.scores.loss
    for flatness in caches.FLATNESSES:
        for weight in (0, 0.05, 0.2, 0.5, 0.8, best.weight - 1e-3, best.weight + 1e-3):
            assert score_with_cache(text, Cache(13, weight, flatness)).loss >= least


def run(capsys, *command) -> list[str]:
    assert cli.main(["perplexity", *map(str, command)]) == 0
    return capsys.readouterr().out.splitlines()


def test_command(data, checkpoint, tmp_path, capsys):
    """Flatness and weight are tuned on validation or given, and --scores includes the cache."""
    options = (data, "--path", checkpoint, "--streams", "2", "--cache", "20")
    chosen, printed = run(capsys, *options, "--scores", tmp_path / "scores")
    model, task = loading.load_language_model(checkpoint, data)
    words = task.source_dictionary
    texts = {
        split: lm_scores.read_streams(model, words, lm_inputs.read_sentences(data, split, words), 2)
        for split in ("valid", "test")
    }
    best = tune(texts["valid"], 20)
    expected = score_with_cache(texts["test"], best)
    assert printed == str(expected)
    after, before = (
        score_with_cache(texts["valid"], best).perplexity,
        texts["valid"].scores.perplexity,
    )
    assert chosen == (
        f"cache of 20 words, weight {best.weight:.3g}, flatness {best.flatness:g}: best on valid, "
        f"perplexity {after:.2f}, without {before:.2f}"
    )
    rows = [line.split("\t") for line in (tmp_path / "scores").read_text().splitlines()]
    total = sum(float(score) for _, score in rows)
    assert total == pytest.approx(-expected.loss * expected.tokens, abs=1e-4)
    weight, flatness = f"{best.weight!r}", f"{best.flatness!r}"
    given = run(capsys, *options, "--cache-weight", weight, "--cache-flatness", flatness)
    assert given == [printed]
    again, printed = run(capsys, *options, "--subset", "valid")
    assert again == chosen
    assert printed == str(score_with_cache(texts["valid"], best))


def test_runs(data, checkpoint, tmp_path, capsys):
    """Recipes print and record it beside the perplexity without cache."""
    for seed in (1, 2):
        run = tmp_path / "out" / "cas_lstm_lm_tiny" / f"seed{seed}"
        run.mkdir(parents=True)
        (run / "checkpoint_last.pt").symlink_to(checkpoint)
    (tmp_path / "data-bin").symlink_to(data)
    out = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--checkpoint", "last"]
    assert evaluate_lm.main([*out, "--cache", "9"]) == 0
    printed = capsys.readouterr().out.splitlines()
    line, _ = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    result = json.loads(line)
    model, task = loading.load_language_model(checkpoint, data)
    words = task.source_dictionary
    best = Cache(9, result["cache_weight"], result["cache_flatness"])
    for split in ("valid", "test"):
        text = lm_scores.read_streams(model, words, lm_inputs.read_sentences(data, split, words))
        assert result[split] == pytest.approx(text.scores.perplexity, abs=1e-4)
        assert result[f"{split}_with_cache"] == pytest.approx(
            score_with_cache(text, best).perplexity, abs=1e-4
        )
        if split == "valid":
            assert tune(text, 9) == best
    assert result["cache"] == 9
    assert result["parameters"] == sum(weight.numel() for weight in model.parameters())
    assert printed[0] == (
        f"cas_lstm_lm_tiny seed 1: perplexity {result['valid']:.2f} valid, {result['test']:.2f} "
        f"test ({result['test_tokens']} tokens, continuous, {result['parameters']:,} parameters)"
    )
    assert printed[1] == (
        f"cas_lstm_lm_tiny seed 1, cache of 9 words: perplexity {result['valid_with_cache']:.2f} "
        f"valid, {result['test_with_cache']:.2f} test (weight {best.weight:.3g}, flatness "
        f"{best.flatness:g})"
    )
    assert printed[4:] == [
        "perplexity on test, mean ± standard deviation:",
        f"cas_lstm_lm_tiny  {result['test']:.2f} ± 0.00  (2 runs)",
        "perplexity with a cache on test, mean ± standard deviation:",
        f"cas_lstm_lm_tiny, cache  {result['test_with_cache']:.2f} ± 0.00  (2 runs)",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cache", "0"], "--cache is 0; it must be at least 1"),
        (["--cache", "5", "--sentence-reset"], "--cache is for a continuous text"),
        (["--cache-weight", "0.1"], "need --cache N; give that, too"),
        (["--cache", "5", "--cache-weight", "0.1"], "belong together; give both or neither"),
        (["--cache", "5", "--cache-weight", "2", "--cache-flatness", "1"], "--cache-weight is 2"),
        (["--cache", "5", "--cache-weight", "nan", "--cache-flatness", "1"], "--cache-weight is"),
        (["--cache", "5", "--cache-weight", "0", "--cache-flatness", "-1"], "flatness is -1; it"),
        (["--cache", "5", "--cache-weight", "0", "--cache-flatness", "1e39"], "is 1e+39; it must"),
    ],
)
def test_mistakes(data, tmp_path, capsys, options, message):
    """Errors are found before the model is loaded."""
    assert cli.main(["perplexity", str(data), "--path", str(tmp_path / "no.pt"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_mistakes_in_recipes(data, tmp_path, capsys):
    (tmp_path / "data-bin").symlink_to(data)
    out = ["--data", str(tmp_path), "--out", str(tmp_path)]
    assert evaluate_lm.main([*out, "--cache", "5", "--sentence-reset"]) == 2
    assert "--cache is for a continuous text; drop it" in capsys.readouterr().err
    assert evaluate_lm.main([*out, "--cache", "-5"]) == 2
    assert "--cache is -5; it must be at least 1" in capsys.readouterr().err


def test_no_validation_set(data, checkpoint, tmp_path, capsys):
    for file in data.iterdir():
        if not file.name.startswith("valid"):
            (tmp_path / file.name).symlink_to(file)
    command = ["perplexity", str(tmp_path), "--path", str(checkpoint), "--cache", "5"]
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    assert f"there is no 'valid' in {tmp_path}; give --cache-weight and --cache-flatness" in error
    assert cli.main([*command, "--cache-weight", "0.1", "--cache-flatness", "0"]) == 0


def test_streams_need_a_model_with_state():
    with pytest.raises(UserError, match="does not carry its state"):
        lm_scores.read_streams(torch.nn.Linear(1, 1), dictionary(), [torch.arange(4, 9)])

"""MERT: the statistics of BLEU, line search, tuned weights, the oracle."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from fairseq_casrnn.reranking import mert
from fairseq_casrnn.reranking.mert import NBestArrays

from .common import every_choice

WORDS = list("abcdef")


def sentence(rng, longest=9):
    return " ".join(rng.choice(WORDS, size=rng.integers(4, longest)))


def noisy(rng, text):
    """The text with some words replaced or deleted."""
    words = [w if rng.random() < 0.8 else rng.choice(WORDS) for w in text.split()]
    return " ".join(word for word in words if rng.random() < 0.9)


def make(sentences=12, most=5, width=3, seed=0):
    """(hypotheses, references, lists) with random features; lists differ in length."""
    rng = np.random.default_rng(seed)
    references = [sentence(rng) for _ in range(sentences)]
    texts = [[noisy(rng, r) for _ in range(rng.integers(1, most + 1))] for r in references]
    texts[1][0] = ""
    table, mask = mert.pad([rng.normal(size=(len(row), width)) for row in texts])
    return texts, references, NBestArrays(table, mask, mert.bleu_counts(texts, references))


def sacrebleu(texts, references, choice):
    chosen = [row[k] for row, k in zip(texts, choice, strict=True)]
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return metric.corpus_score(chosen, [references]).score


def test_counts_by_hand():
    counts = mert.bleu_counts([["a b c d", "a a"], ["b"]], ["a b c e f", "b"])
    assert counts.tolist() == [
        [[4, 5, 3, 2, 1, 0, 4, 3, 2, 1], [2, 5, 1, 0, 0, 0, 2, 1, 0, 0]],
        [[1, 1, 1, 0, 0, 0, 1, 0, 0, 0], [0] * 10],
    ]
    # 4 of 4 words, 2 of 3 bigrams, 1 of 2, 1 of 1, and one word less than the reference
    value = mert.bleu([4, 5, 4, 2, 1, 1, 4, 3, 2, 1])
    assert value == pytest.approx(100 * (2 / 3 / 2) ** 0.25 * np.exp(1 - 5 / 4))
    # an additional word is not rewarded
    assert mert.bleu([6, 5, 5, 4, 3, 2, 6, 5, 4, 3]) == pytest.approx(100 * (1 / 3) ** 0.25)


@pytest.mark.parametrize("seed", range(3))
def test_bleu_is_sacrebleus(seed):
    texts, references, lists = make(seed=seed)
    for weights in np.random.default_rng(seed).normal(size=(5, 3)):
        choice = lists.choose(weights)
        assert all(k < len(row) for k, row in zip(choice, texts, strict=True))
        assert lists.bleu(weights) == pytest.approx(sacrebleu(texts, references, choice))


def test_envelope_by_hand():
    """max(0 − t, 1, −1 + t) changes at −1 and 2; of parallel lines the upper one counts."""
    start = np.array([[0.0, 1.0, -1.0, -2.0], [3.0, 9.0, 0.0, 0.0]])
    slope = np.array([[-1.0, 0.0, 1.0, 1.0], [2.0, -5.0, 0.0, 0.0]])
    mask = np.array([[True] * 4, [True, False, False, False]])
    first, at, rows, before, after = mert.envelope(start, slope, mask)
    assert first.tolist() == [0, 0]
    assert at.tolist() == [-1.0, 2.0]
    assert (rows.tolist(), before.tolist(), after.tolist()) == ([0, 0], [0, 1], [1, 2])


@pytest.mark.parametrize("seed", range(5))
def test_line_search_finds_the_maximum(seed):
    _, _, lists = make(seed=seed)
    weights, direction = np.random.default_rng(seed).normal(size=(2, 3))
    found = lists.bleu(weights + mert.search_line(lists, weights, direction) * direction)
    points = np.concatenate([np.linspace(-5, 5, 2001), [-1e6, -100, 100, 1e6]])
    values = [lists.bleu(weights + t * direction) for t in points]
    assert found >= max(values) - 1e-9
    assert found > min(values)


def test_line_search_without_changes():
    _, _, lists = make()
    assert mert.search_line(lists, np.ones(3), np.zeros(3)) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_baseline_tuned_oracle(seed):
    texts, references, lists = make(sentences=7, most=4, seed=seed)
    baseline = np.eye(3)[0]
    weights, bleu = mert.tune(lists, baseline, restarts=5, seed=seed)
    best = mert.oracle(lists, [lists.choose(weights)])
    highest = max(sacrebleu(texts, references, choice) for choice in every_choice(lists))
    assert lists.bleu(baseline) < bleu <= lists.bleu_of(best)
    assert lists.bleu_of(best) == pytest.approx(highest)
    assert bleu == pytest.approx(lists.bleu(weights))
    assert np.abs(weights).sum() == pytest.approx(1)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_planted_feature_gets_all_the_weight(sign):
    _, _, lists = make(sentences=30, width=4)
    best = mert.oracle(lists)
    lists.features[..., 2] *= 0.01
    lists.features[np.arange(len(best)), best, 2] = 0.5
    lists.features[..., 2] *= sign
    weights, bleu = mert.tune(lists, np.eye(4)[0], restarts=3)
    assert bleu == pytest.approx(lists.bleu_of(best))
    np.testing.assert_allclose(weights, [0, 0, sign, 0], atol=1e-12)


def test_tuning_depends_on_the_seed():
    _, _, lists = make(sentences=20)
    found = [mert.tune(lists, np.eye(3)[0], 2, seed)[0].tolist() for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_features_without_spread_do_no_harm():
    _, _, lists = make()
    lists.features[..., 1] = 7.0
    assert mert.feature_scale(lists)[1] == 1.0
    weights, bleu = mert.tune(lists, np.eye(3)[0], 2)
    assert weights[1] == 0.0
    assert np.isfinite(bleu)


def test_the_widest_of_equal_intervals():
    """max(0, t, 2t − 2, 3t − 9) changes at 0, 2 and 7; the first and third hypotheses are right."""
    start, slope = [0.0, 0.0, -2.0, -9.0], [0.0, 1.0, 2.0, 3.0]
    counts = mert.bleu_counts([["a b c d", "x", "a b c d", "x"]], ["a b c d"])
    features = np.stack([start, slope], -1)[None]
    lists = NBestArrays(features, np.ones((1, 4), bool), counts)
    assert mert.search_line(lists, np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 4.5


def test_spread_by_hand():
    """One sentence has 1 and 3, another only 5; deviations are from the sentence's mean."""
    features = np.array([[[1.0], [3.0]], [[5.0], [0.0]]])
    mask = np.array([[True, True], [True, False]])
    lists = NBestArrays(features, mask, np.zeros((2, 2, 10)))
    assert mert.feature_scale(lists) == pytest.approx([(2 / 3) ** 0.5])


def test_changes_at_one_point():
    """At 0, two long sentences swap right and wrong; the short one's change at 5 decides."""
    long, short = "a b c d e f", "a b c d"
    texts = [["x", long], [long, "x"], ["x", short]]
    counts = mert.bleu_counts(texts, [long, long, short])
    features = np.array([[[0.0, 0.0], [0.0, 1.0]]] * 2 + [[[0.0, 0.0], [-5.0, 1.0]]])
    lists = NBestArrays(features, np.ones((3, 2), bool), counts)
    assert mert.search_line(lists, np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 5.5


def test_lines_along_the_axes_and_across(monkeypatch):
    _, _, lists = make()
    search, directions = mert.search_line, []

    def searched(lists, weights, direction):
        directions.append(direction)
        return search(lists, weights, direction)

    monkeypatch.setattr(mert, "search_line", searched)
    mert.coordinate_ascent(lists, np.ones(3), np.random.default_rng(1))
    last = np.array(directions[-6:])
    assert np.array_equal(last[:3], np.eye(3))
    assert np.linalg.matrix_rank(last[3:]) == 3
    assert (last[3:] != 0).all()


def test_pruning():
    """If one of two features suffices, the one with the smaller weight is pruned."""
    counts = mert.bleu_counts([["x", "a b c d"]], ["a b c d"])
    lists = NBestArrays(np.array([[[0.0, 0, 1], [1, 1, 0]]]), np.ones((1, 2), bool), counts)
    for weights, expected in (([0.5, 2, 1], [0, 2, 0]), ([3, 2, 1], [3, 0, 0])):
        assert mert.prune(lists, np.array(weights, float), 100.0).tolist() == expected


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_coordinate_ascent_ends_at_a_local_maximum(seed):
    _, _, lists = make(sentences=60, seed=seed)
    weights, best = mert.coordinate_ascent(lists, np.ones(3), np.random.default_rng(seed))
    assert best == lists.bleu(weights)
    for axis in np.eye(3):
        trial = weights + mert.search_line(lists, weights, axis) * axis
        assert lists.bleu(trial) <= best + mert.MIN_GAIN


def test_where_tuning_starts(monkeypatch):
    """Tuning starts from the baseline, whose choices scaling does not change, and at random."""
    _, _, lists = make()
    lists.features[..., 1] *= 100
    ascend, starts, baseline = mert.coordinate_ascent, [], np.array([1.0, 0.005, -2.0])

    def recorded(lists, weights, rng):
        starts.append(lists.choose(weights).tolist())
        return ascend(lists, weights, rng)

    monkeypatch.setattr(mert, "coordinate_ascent", recorded)
    mert.tune(lists, baseline, restarts=3)
    assert starts[0] == lists.choose(baseline).tolist()
    assert len(starts) == 4


def test_the_oracle_is_a_local_maximum(monkeypatch):
    """The oracle ends when no single change improves BLEU, and keeps the best of its starts."""
    for seed in (35, 36, 0):
        _, _, lists = make(sentences=5, most=3, seed=seed)
        choice = mert._greedy_search(lists, np.zeros(5, int))
        found = lists.bleu_of(choice)
        for n, row in enumerate(lists.mask):
            for k in range(int(row.sum())):
                other = np.where(np.arange(5) == n, k, choice)
                assert lists.bleu_of(other) <= found + mert.MIN_GAIN
    monkeypatch.setattr(mert, "_greedy_search", lambda lists, choice: choice)
    best = max(map(np.array, every_choice(lists)), key=lists.bleu_of)
    assert lists.bleu_of(mert.oracle(lists)) < lists.bleu_of(best)
    assert mert.oracle(lists, [np.zeros(5, int), best]).tolist() == best.tolist()

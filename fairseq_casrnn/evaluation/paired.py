"""Tests of two systems on the same test sentences, from the predictions in the runs' folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.bleu import bleu_of_counts, detokenized_metric, ngram_counts
from fairseq_casrnn.evaluation.prediction_files import predictions_of
from fairseq_casrnn.evaluation.significance import mcnemar
from fairseq_casrnn.evaluation.tags import COUNTS, counts
from fairseq_casrnn.kinds import CLASSIFIER, TRANSLATION

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

SHUFFLES = 9999
BLOCK = 2**23
"""Exchanges (shuffles × sentences) that are drawn at a time, to bound the memory."""


class Comparison(NamedTuple):
    """A test of whether two runs differ by more than chance.

    Args:
        test: its name.
        p: the two-sided p-value.
        text: what it found, for a line of output.
    """

    test: str
    p: float
    text: str


def compare_with_baseline(run: Path, baseline: Path, subset: str, metric: str) -> Comparison | None:
    """Compare two runs on the sentences that both predicted.

    For classes: McNemar's exact test; for tags and translations: approximate randomization over
    sentences, of F1 or accuracy and of sacreBLEU.

    Args:
        run, baseline: folders of evaluated runs.
        subset: the split.
        metric: of tags, ``f1`` of spans or ``accuracy``.

    Returns:
        The test, or None where one of them has no predictions.

    Raises:
        UserError: the predictions are of different sentences, or damaged.
    """
    table, other = (predictions_of(folder, subset) for folder in (run, baseline))
    if table is None or other is None or table.kind is not other.kind:
        return None
    ours, theirs = table.pairs(), other.pairs()
    if [truth for truth, _ in ours] != [truth for truth, _ in theirs]:
        raise UserError(
            f"the predictions for {subset} in {run} and {baseline} are of different sentences; "
            "evaluate both again"
        )
    if table.kind is CLASSIFIER:
        right = ([truth == found for truth, found in rows] for rows in (ours, theirs))
        first, second, p = mcnemar(*right)
        counted = f"only the first is right on {first} sentences, only the second on {second}, "
        return Comparison("McNemar", p, f"{counted}p = {p:.2g} (McNemar's exact test, two-sided)")
    if table.kind is TRANSLATION:
        before, after = ([found for _, found in rows] for rows in (theirs, ours))
        references = [truth for truth, _ in ours]
        p = bleu_randomization(before, after, references, detokenized_metric(references))
        what = "sacreBLEU, "
    else:
        p, what = randomization(span_counts(ours, metric), span_counts(theirs, metric)), ""
    text = f"p = {p:.2g} ({what}approximate randomization of sentences, two-sided)"
    return Comparison("randomization", p, text)


def span_counts(sentences: Sequence[tuple[list[str], list[str]]], metric: str) -> np.ndarray:
    """Per sentence, the correct, predicted and true spans ``(N, 3)``; for accuracy, words."""
    marked = metric == "f1"
    names = ("correct", "predicted", "true") if marked else ("right", "words", "words")
    columns = [COUNTS.index(name) for name in names]
    found = [counts([truth], [best], marked) for truth, best in sentences]
    return np.array(found, dtype=np.int64).reshape(-1, len(COUNTS))[:, columns]


def f1(total: np.ndarray | Sequence[float]) -> np.ndarray:
    """F1 of correct, predicted and true spans, ``(…, 3)``; 0 where there is none."""
    total = np.asarray(total, dtype=np.float64)
    return 2 * total[..., 0] / np.maximum(total[..., 1] + total[..., 2], 1)


def randomization(
    ours: np.ndarray, theirs: np.ndarray, score: Callable[[np.ndarray], np.ndarray] = f1
) -> float:
    """Approximate randomization (Noreen 1989; Yeh 2000): the two-sided p of a difference in scores.

    Under the null hypothesis the two systems' outputs for a sentence could be exchanged: p is the
    share of random exchanges whose difference is as great as the one observed.

    Args:
        ours, theirs: counts ``(N, K)`` of the systems by sentence, such as :func:`span_counts`.
        score: the scores ``(M,)`` for M sums of such counts, ``(M, K)``.
    """
    generator = np.random.default_rng(1)
    difference = (ours - theirs).astype(np.float32)
    # numpy draws four int8 at a time: with a multiple of 4, p does not depend on BLOCK.
    at_once = max(4, BLOCK // max(1, len(ours)) // 4 * 4)
    parts = [np.zeros((1, ours.shape[1]))]  # no exchange: the observed difference
    for start in range(0, SHUFFLES, at_once):
        shape = (min(at_once, SHUFFLES - start), len(ours))
        parts.append(generator.integers(0, 2, shape, dtype=np.int8).astype(np.float32) @ difference)
    moved = np.concatenate(parts)
    found = abs(score(ours.sum(0) - moved) - score(theirs.sum(0) + moved))
    return float((found >= found[0] - 1e-12).mean())


def bleu_randomization(
    before: Sequence[str], after: Sequence[str], references: Sequence[str], metric: BLEU
) -> float:
    """The two-sided p of a difference in BLEU by :func:`randomization`.

    Not by sacrebleu's tests. Its randomization only counts exchanges with a greater difference than
    the one observed, so its p is 0.0001 if a single translation differs. Its paired bootstrap, like
    the Moses script, centres the differences of the samples after it has dropped their sign, so its
    p is below 0.05 for a tenth of equally good systems.

    Args:
        before, after: the translations of two systems.
        references: the reference translations.
        metric: how BLEU is computed.
    """

    def counts_of(lines: Sequence[str]) -> np.ndarray:
        pairs = zip(lines, references, strict=True)
        return np.array([ngram_counts(metric, *pair) for pair in pairs])

    def score(sums: np.ndarray) -> np.ndarray:
        return np.array([bleu_of_counts(metric, row) for row in sums.astype(int).tolist()])

    return randomization(counts_of(after), counts_of(before), score)

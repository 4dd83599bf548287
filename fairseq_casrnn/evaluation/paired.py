"""Tests of two runs on the same test sentences, from the predictions in their folders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.significance import mcnemar
from fairseq_casrnn.evaluation.tags import COUNTS, counts

CLASSES, TAGS = "predictions.tsv", "predictions.txt"
SHUFFLES = 9999

Tagged = list[tuple[list[str], list[str]]]


def paired_test(run: Path, baseline: Path, subset: str, metric: str) -> tuple[str, float] | None:
    """Whether two runs differ by more than chance, on the sentences that both predicted.

    Of classes it is McNemar's exact test; of tags, approximate randomization of sentences.

    Args:
        run, baseline: folders of evaluated runs.
        subset: the split.
        metric: of tags, ``f1`` of spans or ``accuracy``.

    Returns:
        The test's name and its two-sided p-value, or None where one of them has no predictions.

    Raises:
        UserError: the predictions are of different sentences, or damaged.
    """
    for ending, test in ((CLASSES, compare_classes), (TAGS, compare_tags)):
        ours, theirs = (folder / f"{subset}.{ending}" for folder in (run, baseline))
        if ours.is_file() and theirs.is_file():
            return test(ours, theirs, metric)
    return None


def compare_classes(ours: Path, theirs: Path, metric: str) -> tuple[str, float]:
    """McNemar's test of two files. Raises UserError, see :func:`paired_test`."""
    rows = [read_classes(path) for path in (ours, theirs)]
    check_truth(ours, theirs, *([truth for truth, _ in own] for own in rows))
    right = ([truth == found for truth, found in own] for own in rows)
    return "McNemar", mcnemar(*right)[2]


def compare_tags(ours: Path, theirs: Path, metric: str) -> tuple[str, float]:
    """Approximate randomization of two files. Raises UserError, see :func:`paired_test`."""
    rows = [read_tags(path) for path in (ours, theirs)]
    check_truth(ours, theirs, *([truth for truth, _ in own] for own in rows))
    counted, others = (span_counts(own, metric) for own in rows)
    return "randomization", randomization(counted, others)


def check_truth(ours: Path, theirs: Path, truth: Sequence, other: Sequence) -> None:
    """Raise UserError unless two files have the same true classes or tags."""
    if truth != other:
        raise UserError(f"{ours} and {theirs} are of different sentences; evaluate both again")


def read_classes(path: Path) -> list[tuple[str, str]]:
    """(true, predicted) of each sentence. Raises UserError for a damaged line."""
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        pieces = line.split("\t")
        if len(pieces) != 3:
            raise UserError(f"{path}, line {number} has no three columns; evaluate the run again")
        found.append((pieces[0], pieces[1]))
    return found


def read_tags(path: Path) -> Tagged:
    """The true and the predicted tags of each sentence. Raises UserError for a damaged line."""
    rows = [line.split(" ") if line else [] for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) not in (0, 3):
            raise UserError(f"{path}, line {number} has no three columns; evaluate the run again")
    sentences = [list(group) for filled, group in groupby(rows, bool) if filled]
    return [([row[1] for row in rows], [row[2] for row in rows]) for rows in sentences]


def span_counts(sentences: Tagged, metric: str) -> np.ndarray:
    """Correct, predicted and true spans of each sentence, ``(N, 3)``; of accuracy, words."""
    marked = metric == "f1"
    names = ("correct", "predicted", "true") if marked else ("right", "words", "words")
    columns = [COUNTS.index(name) for name in names]
    found = [counts([truth], [best], marked) for truth, best in sentences]
    return np.array(found, dtype=np.int64).reshape(-1, len(COUNTS))[:, columns]


def randomization(ours: np.ndarray, theirs: np.ndarray, shuffles: int = SHUFFLES) -> float:
    """Approximate randomization (Noreen 1989; Yeh 2000): the two-sided p of a difference in F1.

    Under the null hypothesis the two systems' outputs for a sentence could be exchanged: p is the
    share of random exchanges whose difference is as great as the one observed.

    Args:
        ours, theirs: of each sentence, :func:`span_counts`.
        shuffles: random exchanges.
    """
    generator = np.random.default_rng(1)
    difference = (ours - theirs).astype(np.float32)
    swaps = generator.integers(0, 2, (shuffles, len(ours)), dtype=np.int8).astype(np.float32)
    moved = swaps @ difference
    found = f1(ours.sum(0) - moved) - f1(theirs.sum(0) + moved)
    observed = f1(ours.sum(0)) - f1(theirs.sum(0))
    return (1 + int((abs(found) >= abs(observed) - 1e-12).sum())) / (1 + shuffles)


def f1(total: np.ndarray | Sequence[float]) -> np.ndarray:
    """F1 of correct, predicted and true spans, ``(…, 3)``; 0 where there is none."""
    total = np.asarray(total, dtype=np.float64)
    return 2 * total[..., 0] / np.maximum(total[..., 1] + total[..., 2], 1)

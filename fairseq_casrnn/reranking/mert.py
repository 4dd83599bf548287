"""Weights for corpus BLEU by minimum error rate training (Och 2003).

Along a line in the space of weights, the best hypothesis of a sentence changes at few points, and
corpus BLEU is constant between these points, so the optimum on the line is found exactly. From
several starting points, lines along the axes and in random directions are searched until none
improves BLEU.

Arrays have N sentences and K hypotheses, padded at the end; ``mask`` is True for real hypotheses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_casrnn.evaluation.bleu import ngram_counts, tokenized_metric

MIN_GAIN = 1e-9  # of BLEU; less is rounding error
MIN_INTERVAL = 1e-9  # length of an interval on a line of weights


@dataclass
class NBestArrays:
    """An n-best list as arrays.

    Args:
        features: ``(N, K, F)`` floats.
        mask: ``(N, K)`` bool.
        counts: ``(N, K, 10)``, :func:`.ngram_counts` of each hypothesis.
    """

    features: np.ndarray
    mask: np.ndarray
    counts: np.ndarray

    def choose(self, weights: np.ndarray) -> np.ndarray:
        """``(N,)``: the best hypothesis under weights ``(F,)``, the first in a tie."""
        return np.where(self.mask, self.features @ weights, -np.inf).argmax(1)

    def bleu_of(self, choice: np.ndarray) -> float:
        """Corpus BLEU of a choice ``(N,)``."""
        return float(bleu(self.counts[np.arange(len(choice)), choice].sum(0)))

    def bleu(self, weights: np.ndarray) -> float:
        """Corpus BLEU of the best hypotheses under weights ``(F,)``."""
        return self.bleu_of(self.choose(weights))


def pad(rows: Sequence[Sequence | np.ndarray], dtype=float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths as ``(N, K, …)``, padded with zeros, and the mask ``(N, K)``."""
    longest = max(map(len, rows))
    shape = np.asarray(rows[0]).shape[1:]
    table = np.zeros((len(rows), longest, *shape), dtype)
    mask = np.zeros((len(rows), longest), bool)
    for n, row in enumerate(rows):
        table[n, : len(row)] = row
        mask[n, : len(row)] = True
    return table, mask


def bleu_counts(hypotheses: Sequence[Sequence[str]], references: Sequence[str]) -> np.ndarray:
    """The counts ``(N, K, 10)`` of each hypothesis, tokenised at spaces: :func:`.ngram_counts`."""
    metric = tokenized_metric()
    pairs = zip(hypotheses, references, strict=True)
    rows = [[ngram_counts(metric, text, reference) for text in texts] for texts, reference in pairs]
    return pad(rows, np.int64)[0]


def bleu(counts: np.ndarray) -> np.ndarray:
    """Unsmoothed BLEU, 0 to 100, of summed statistics ``(…, 10)``."""
    counts = np.asarray(counts, float)
    length, reference, matching, total = (
        counts[..., 0], counts[..., 1], counts[..., 2:6], counts[..., 6:],
    )  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(matching > 0, np.log(matching / total), -np.inf).mean(-1)
        brevity = np.where(length < reference, 1 - reference / length, 0.0)
    return 100 * np.exp(precision + brevity)


# --- one line ----------------------------------------------------------------------------------


def envelope(start: np.ndarray, slope: np.ndarray, mask: np.ndarray):
    """The points t where the best hypothesis of a sentence changes, for scores ``start + t·slope``.

    Args:
        start: ``(N, K)``.
        slope: ``(N, K)``.
        mask: ``(N, K)``.

    Returns:
        The best hypotheses ``(N,)`` at t = −∞, and arrays ``(E,)`` of the changes, sorted by t: t,
        the sentence, and its best hypotheses before and after t.
    """
    slope, start = np.where(mask, slope, np.inf), np.where(mask, start, -np.inf)
    lowest = slope == slope.min(1, keepdims=True)
    first = current = np.where(lowest, start, -np.inf).argmax(1)
    slope = np.where(mask, slope, -np.inf)
    rows, changes = np.arange(len(start)), []  # sentences that still change
    while len(rows):
        rise = slope[rows] - slope[rows, current][:, None]
        fall = start[rows, current][:, None] - start[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            crossings = np.where(rise > 0, fall / rise, np.inf)
        t = crossings.min(1)
        changing = np.isfinite(t)
        steepest = np.where(crossings == t[:, None], rise, -np.inf).argmax(1)
        changes.append((t[changing], rows[changing], current[changing], steepest[changing]))
        rows, current = rows[changing], steepest[changing]
    t, sentence, before, after = (np.concatenate(part) for part in zip(*changes, strict=True))
    order = t.argsort(kind="stable")
    return first, t[order], sentence[order], before[order], after[order]


def search_line(lists: NBestArrays, weights: np.ndarray, direction: np.ndarray) -> float:
    """The t with the best BLEU at ``weights + t·direction``: middle of the widest best interval."""
    first, t, sentence, before, after = envelope(
        lists.features @ weights, lists.features @ direction, lists.mask
    )
    if not len(t):
        return 0.0
    counts = lists.counts
    start = counts[np.arange(len(first)), first].sum(0)
    change = counts[sentence, after] - counts[sentence, before]
    scores = bleu(np.vstack([start, start + change.cumsum(0)]))  # (E + 1)
    bounds = np.concatenate([[t[0] - 1], t, [t[-1] + 1]])
    width = np.diff(bounds)
    scores[width < MIN_INTERVAL] = -1
    best = np.where(scores >= scores.max() - MIN_GAIN, width, -1.0).argmax()
    return float(bounds[best] + bounds[best + 1]) / 2


# --- all weights -------------------------------------------------------------------------------


def coordinate_ascent(
    lists: NBestArrays, weights: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Search lines until none improves BLEU: (weights ``(F,)``, BLEU)."""
    best = lists.bleu(weights)
    improving = True
    while improving:
        improving = False
        for direction in (*np.eye(len(weights)), *rng.normal(size=(len(weights),) * 2)):
            trial = weights + search_line(lists, weights, direction) * direction
            found = lists.bleu(trial)
            if found > best + MIN_GAIN:
                weights, best, improving = trial, found, True
    return weights, best


def prune(lists: NBestArrays, weights: np.ndarray, best: float) -> np.ndarray:
    """Set weights to zero, the smallest first, if that does not reduce BLEU."""
    for index in np.abs(weights).argsort():
        trial = weights.copy()
        trial[index] = 0
        if trial.any() and lists.bleu(trial) >= best - MIN_GAIN:
            weights = trial
    return weights


def tune(
    lists: NBestArrays, baseline: Sequence[float] | np.ndarray, restarts: int = 10, seed: int = 1
) -> tuple[np.ndarray, float]:
    """Tune the weights.

    Args:
        lists: the validation set.
        baseline: weights ``(F,)`` of the first starting point.
        restarts: number of further, random starting points.
        seed: for starting points and directions.

    Returns:
        Weights ``(F,)`` with magnitudes that sum to 1, and their BLEU, at least the baseline's.
    """
    rng = np.random.default_rng(seed)
    scale = feature_scale(lists)
    scaled = NBestArrays(lists.features / scale, lists.mask, lists.counts)
    starts = [np.array(baseline, float) * scale, *rng.normal(size=(restarts, len(scale)))]
    weights, best = max(
        (coordinate_ascent(scaled, s, rng) for s in starts), key=lambda found: found[1]
    )
    weights = prune(scaled, weights, best) / scale
    weights /= np.abs(weights).sum()
    return weights, lists.bleu(weights)


def feature_scale(lists: NBestArrays) -> np.ndarray:
    """``(F,)``: standard deviation of each feature within sentences; 1 instead of 0."""
    real = lists.mask[..., None]
    mean = (lists.features * real).sum(1, keepdims=True) / real.sum(1, keepdims=True)
    deviation = np.sqrt((((lists.features - mean) * real) ** 2).sum((0, 1)) / real.sum())
    return np.where(deviation > 0, deviation, 1.0)


def oracle(lists: NBestArrays, starts: Iterable[np.ndarray] = ()) -> np.ndarray:
    """A choice ``(N,)`` of hypotheses with (nearly) the highest corpus BLEU.

    Greedy: repeatedly chooses the hypothesis of each sentence that gives the highest corpus BLEU,
    until nothing changes. It starts from the hypotheses with the best smoothed sentence BLEU and
    from each of ``starts``, so that its BLEU is at least theirs.
    """
    smoothed = lists.counts + np.array([0, 0, 0, 1, 1, 1, 0, 1, 1, 1])
    likely = np.where(lists.mask, bleu(smoothed), -1.0).argmax(1)
    choices = [_greedy_search(lists, start) for start in (likely, *starts)]
    return max(choices, key=lists.bleu_of)


def _greedy_search(lists: NBestArrays, choice: np.ndarray) -> np.ndarray:
    choice = choice.copy()
    rows = np.arange(len(choice))
    total = lists.counts[rows, choice].sum(0)
    changed = True
    while changed:
        changed = False
        for n in rows:
            others = total - lists.counts[n, choice[n]]
            found = np.where(lists.mask[n], bleu(others + lists.counts[n]), -1.0)
            best = found.argmax()
            if found[best] > found[choice[n]] + MIN_GAIN:
                choice[n], changed = best, True
                total = others + lists.counts[n, best]
    return choice

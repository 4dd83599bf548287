"""Weights for corpus BLEU by minimum error rate training (Och 2003).

Along a line of weights each sentence's best hypothesis changes at few points, and between two such
points the corpus' BLEU is constant: so the best point of the line is found exactly. From several
starts, lines along the axes and in random directions are searched until none gains.

Arrays have N sentences and K hypotheses, filled up at the end; ``mask`` marks the real ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

GAIN = 1e-9  # BLEU; less is rounding
SHORTEST = 1e-9  # interval on a line of weights


@dataclass
class Lists:
    """What tuning needs of an n-best list.

    Args:
        features: ``(N, K, F)`` floats.
        mask: ``(N, K)`` bool.
        counts: ``(N, K, 10)`` BLEU's statistics by hypothesis: lengths of hypothesis and
            reference, 4 numbers of matching n-grams, 4 of all n-grams.
    """

    features: np.ndarray
    mask: np.ndarray
    counts: np.ndarray

    def choose(self, weights: np.ndarray) -> np.ndarray:
        """``(N,)``: the best hypothesis under weights ``(F,)``; the first of equals."""
        return np.where(self.mask, self.features @ weights, -np.inf).argmax(1)

    def bleu_of(self, choice: np.ndarray) -> float:
        """Corpus BLEU of a choice ``(N,)``."""
        return float(bleu(self.counts[np.arange(len(choice)), choice].sum(0)))

    def bleu(self, weights: np.ndarray) -> float:
        """Corpus BLEU of the best hypotheses under weights ``(F,)``."""
        return self.bleu_of(self.choose(weights))


def pad(rows: Sequence[Sequence | np.ndarray], dtype=float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths as ``(N, K, …)`` with zeros behind, and the mask ``(N, K)``."""
    longest = max(map(len, rows))
    shape = np.asarray(rows[0]).shape[1:]
    table = np.zeros((len(rows), longest, *shape), dtype)
    mask = np.zeros((len(rows), longest), bool)
    for n, row in enumerate(rows):
        table[n, : len(row)] = row
        mask[n, : len(row)] = True
    return table, mask


def bleu_counts(hypotheses: Sequence[Sequence[str]], references: Sequence[str]) -> np.ndarray:
    """``(N, K, 10)`` sacrebleu's statistics of each hypothesis, split at spaces."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    rows = []
    for texts, reference in zip(hypotheses, references, strict=True):
        found = [metric.corpus_score([text], [[reference]]) for text in texts]
        rows.append([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in found])
    return pad(rows, np.int64)[0]


def bleu(counts: np.ndarray) -> np.ndarray:
    """BLEU, 0 to 100, of summed statistics ``(…, 10)``, without smoothing."""
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
    """Where the best hypothesis of a sentence changes when its score is ``start + t·slope``.

    Args:
        start: ``(N, K)``.
        slope: ``(N, K)``.
        mask: ``(N, K)``.

    Returns:
        The best hypotheses ``(N,)`` at t = −∞, and ``(E,)`` arrays of the changes, by t: t, the
        sentence, the hypothesis until t and the one from t on.
    """
    slope, start = np.where(mask, slope, np.inf), np.where(mask, start, -np.inf)
    lowest = slope == slope.min(1, keepdims=True)
    first = current = np.where(lowest, start, -np.inf).argmax(1)
    slope = np.where(mask, slope, -np.inf)
    rows, changes = np.arange(len(start)), []
    while len(rows):
        rise = slope[rows] - slope[rows, current][:, None]
        fall = start[rows, current][:, None] - start[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            when = np.where(rise > 0, fall / rise, np.inf)
        at = when.min(1)
        going = np.isfinite(at)
        steepest = np.where(when == at[:, None], rise, -np.inf).argmax(1)
        changes.append((at[going], rows[going], current[going], steepest[going]))
        rows, current = rows[going], steepest[going]
    at, sentence, before, after = (np.concatenate(part) for part in zip(*changes, strict=True))
    order = at.argsort(kind="stable")
    return first, at[order], sentence[order], before[order], after[order]


def search_line(lists: Lists, weights: np.ndarray, direction: np.ndarray) -> float:
    """t of the best BLEU at ``weights + t·direction``: the middle of the widest best interval."""
    first, at, sentence, before, after = envelope(
        lists.features @ weights, lists.features @ direction, lists.mask
    )
    if not len(at):
        return 0.0
    counts = lists.counts
    start = counts[np.arange(len(first)), first].sum(0)
    change = counts[sentence, after] - counts[sentence, before]
    found = bleu(np.vstack([start, start + change.cumsum(0)]))  # (E + 1)
    bounds = np.concatenate([[at[0] - 1], at, [at[-1] + 1]])
    width = np.diff(bounds)
    found[width < SHORTEST] = -1
    best = np.where(found >= found.max() - GAIN, width, -1.0).argmax()
    return float(bounds[best] + bounds[best + 1]) / 2


# --- all weights -------------------------------------------------------------------------------


def climb(lists: Lists, weights: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Search line after line until none gains: (weights ``(F,)``, BLEU), not under the start's."""
    best = lists.bleu(weights)
    gaining = True
    while gaining:
        gaining = False
        for direction in (*np.eye(len(weights)), *rng.normal(size=(len(weights),) * 2)):
            trial = weights + search_line(lists, weights, direction) * direction
            found = lists.bleu(trial)
            if found > best + GAIN:
                weights, best, gaining = trial, found, True
    return weights, best


def prune(lists: Lists, weights: np.ndarray, best: float) -> np.ndarray:
    """Set to zero, from the smallest on, what BLEU can do without."""
    for index in np.abs(weights).argsort():
        trial = weights.copy()
        trial[index] = 0
        if trial.any() and lists.bleu(trial) >= best - GAIN:
            weights = trial
    return weights


def tune(
    lists: Lists, baseline: Sequence[float] | np.ndarray, restarts: int = 10, seed: int = 1
) -> tuple[np.ndarray, float]:
    """Weights ``(F,)``, their magnitudes summing to 1, and their BLEU, at least the baseline's.

    Args:
        lists: the validation set.
        baseline: weights ``(F,)`` to start from, beside random ones.
        restarts: number of random starts.
        seed: of the starts and the directions.
    """
    rng = np.random.default_rng(seed)
    scale = spread(lists)
    scaled = Lists(lists.features / scale, lists.mask, lists.counts)
    starts = [np.array(baseline, float) * scale, *rng.normal(size=(restarts, len(scale)))]
    weights, best = max((climb(scaled, s, rng) for s in starts), key=lambda found: found[1])
    weights = prune(scaled, weights, best) / scale
    weights /= np.abs(weights).sum()
    return weights, lists.bleu(weights)


def spread(lists: Lists) -> np.ndarray:
    """``(F,)``: deviation of each feature within the sentences; 1 where there is none."""
    real = lists.mask[..., None]
    mean = (lists.features * real).sum(1, keepdims=True) / real.sum(1, keepdims=True)
    deviation = np.sqrt((((lists.features - mean) * real) ** 2).sum((0, 1)) / real.sum())
    return np.where(deviation > 0, deviation, 1.0)


def oracle(lists: Lists, starts: Iterable[np.ndarray] = ()) -> np.ndarray:
    """A choice ``(N,)`` of the hypotheses with (nearly) the highest corpus BLEU.

    Sentence by sentence, the hypothesis that makes the corpus' BLEU highest, until nothing
    changes; from the hypotheses of the best smoothed sentence BLEU and from each of ``starts``,
    under whose BLEU it does not fall.
    """
    smoothed = lists.counts + np.array([0, 0, 0, 1, 1, 1, 0, 1, 1, 1])
    likely = np.where(lists.mask, bleu(smoothed), -1.0).argmax(1)
    choices = [_improve(lists, start) for start in (likely, *starts)]
    return max(choices, key=lists.bleu_of)


def _improve(lists: Lists, choice: np.ndarray) -> np.ndarray:
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
            if found[best] > found[choice[n]] + GAIN:
                choice[n], changed = best, True
                total = others + lists.counts[n, best]
    return choice

"""A continuous cache of the last words for a language model.

Grave, Joulin and Usunier, "Improving neural language models with a continuous cache" (2017), §3.

Let h_t be the features from which the model predicts word x_t. The cache of N words predicts

    p_cache(w) ∝ Σ_{i = t-N}^{t-1} 1{x_i = w} exp(θ h_tᵀ h_i),

and the mixture is p(w) = (1 - λ) p_model(w) + λ p_cache(w). Nothing is trained: the weight λ and
the flatness θ are tuned on a validation text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.evaluation.lm_scores import Scores, Text

FLATNESSES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
STEEPEST = 1e6
BLOCK = 512  # words whose similarities to the cache are computed at once


@dataclass(frozen=True)
class Cache:
    """Parameters of a cache.

    Args:
        size: number of words N.
        weight: λ, from 0 to 1.
        flatness: θ, from 0 to STEEPEST. With 0 all words in the cache count equally; with higher
            values, those seen in similar states count more.

    Raises:
        UserError: a value is out of range.
    """

    size: int
    weight: float
    flatness: float

    def __post_init__(self):
        check_at_least(1, cache=self.size)
        if not 0 <= self.weight <= 1:
            raise UserError(f"--cache-weight is {self.weight:g}; it must be from 0 to 1")
        if not 0 <= self.flatness <= STEEPEST:
            raise UserError(
                f"--cache-flatness is {self.flatness:g}; it must be from 0 to {STEEPEST:g}"
            )

    def __str__(self):
        return f"{self.size} words, weight {self.weight:.3g}, flatness {self.flatness:g}"


def cache_probabilities(
    features, words, size: int, flatnesses: Sequence[float] = FLATNESSES
) -> np.ndarray:
    """The cache's probability of each word of a text, ``(F, T)``; NaN if the cache is empty.

    Args:
        features: tensor ``(T, E)``; the model predicts word t from row t.
        words: tensor ``(T,)``.
        size: size of the cache.
        flatnesses: F values of θ.
    """
    import torch

    found = np.full((len(flatnesses), len(words)), np.nan)
    words, offsets = words.to(features.device), torch.arange(len(words), device=features.device)
    size = min(size, len(words))
    for start in range(1, len(words), BLOCK):
        stop, first = min(start + BLOCK, len(words)), max(start - size, 0)
        now, before = slice(start, stop), slice(first, stop - 1)
        ages = offsets[now, None] - offsets[None, before]
        outside = (ages < 1) | (ages > size)
        similarity = features[now] @ features[before].T
        similarity -= similarity.masked_fill(outside, -torch.inf).max(1, keepdim=True).values
        same = words[now, None] == words[None, before]
        for row, flatness in enumerate(flatnesses):
            powers = (similarity * flatness).exp_().masked_fill_(outside, 0)
            shares = (powers * same).sum(1) / powers.sum(1)
            found[row, now] = shares.double().cpu().numpy()
    return found


def stream_probabilities(
    text: Text, size: int, flatnesses: Sequence[float] = FLATNESSES
) -> np.ndarray:
    """The cache's probability of each word, ``(F, N)``; each stream has its own cache.

    NaN for words that are not predicted or predicted from an empty cache.
    """
    features = text.features
    assert features is not None  # the text was read with keep=True
    found = np.full((len(flatnesses), len(text.words)), np.nan)
    for start, stop in zip(text.bounds[:-1] + 1, text.bounds[1:], strict=True):
        found[:, start:stop] = cache_probabilities(
            features[start:stop], text.words[start:stop], size, flatnesses
        )
    return found


def mix(log_probs: np.ndarray, cached: np.ndarray, weight: float) -> np.ndarray:
    """Logarithms of ``weight * cached + (1 - weight) * exp(log_probs)``.

    ``log_probs`` are unchanged where ``cached`` is NaN.
    """
    result, used = log_probs.copy(), ~np.isnan(cached)
    with np.errstate(divide="ignore"):
        shares = np.log1p(-weight), np.log(weight) + np.log(cached[used])
    result[used] = np.logaddexp(shares[0] + log_probs[used], shares[1])
    return result


def tune(text: Text, size: int) -> Cache:
    """The best θ of FLATNESSES, with its best λ, for ``text`` and a cache of ``size`` words.

    Raises:
        UserError: the size is not positive.
    """
    from scipy.optimize import minimize_scalar

    check_at_least(1, cache=size)
    log_probs = text.scores.log_probs
    best, chosen = np.inf, Cache(size, 0.0, 0.0)
    for flatness, cached in zip(FLATNESSES, stream_probabilities(text, size), strict=True):
        # The loss is convex in λ.
        result = minimize_scalar(
            lambda weight, cached=cached: -np.nanmean(mix(log_probs, cached, weight)),
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-4},
        )
        if result.fun < best:
            best, chosen = result.fun, Cache(size, float(result.x), flatness)
    return chosen


def score_with_cache(text: Text, cache: Cache) -> Scores:
    """The scores of ``text`` by the mixture of model and ``cache``."""
    (cached,) = stream_probabilities(text, cache.size, [cache.flatness])
    return Scores(mix(text.scores.log_probs, cached, cache.weight), text.scores.lengths)

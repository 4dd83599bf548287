"""Counts how often a language model predicts closing brackets correctly.

A prediction of a closing bracket is correct if the correct bracket has at least 0.8 of the
probability of all closing brackets (Hewitt et al. 2020). Only positions whose next token is a
closing bracket are scored.
"""

from __future__ import annotations

import numpy as np

from fairseq_casrnn.errors import UserError

MIN_SHARE = 0.8


def closing_tokens(dictionary) -> dict[int, int]:
    """Index of the opening bracket, by the index of each closing bracket of the dictionary.

    Raises:
        UserError: the dictionary has other tokens than pairs of brackets.
    """
    indices = dictionary.indices
    closing = {}
    for left in indices:
        right = f"{left[1:]})"
        if left.startswith("(") and len(left) > 1 and right in indices:
            closing[indices[right]] = indices[left]
    words = len(dictionary) - dictionary.nspecial
    if not closing or 2 * len(closing) != words:
        raise UserError(
            "the data has other tokens than pairs of brackets such as (a a); give data of casrnn "
            "data dyck"
        )
    return closing


def distances(targets, closing: dict[int, int]):
    """Distances between closing brackets and their opening brackets.

    Args:
        targets: ``(B, T)`` int tensor of strings, each from its beginning.
        closing: see :func:`closing_tokens`.

    Returns:
        ``(B, T)`` numpy array: 0 for tokens that are not closing brackets.
    """
    opening, found = set(closing.values()), np.zeros(tuple(targets.shape), dtype=np.int64)
    for row, tokens in enumerate(targets.tolist()):
        stack = []
        for t, token in enumerate(tokens):
            if token in opening:
                stack.append(t)
            elif token in closing and stack:
                found[row, t] = t - stack.pop()
    return found


def count_right(log_probs, targets, closing: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Count correct predictions and all predictions of closing brackets by distance.

    Args:
        log_probs: ``(B, T, V)`` logits or log-probabilities.
        targets: ``(B, T)``.
        closing: see :func:`closing_tokens`.

    Returns:
        ``(D,)`` each, for the distances 0 to D-1.
    """
    import torch

    bracket_distances = torch.from_numpy(distances(targets, closing))
    scored = bracket_distances > 0
    mask = scored.to(log_probs.device)
    columns = torch.tensor(sorted(closing), device=log_probs.device)
    share = log_probs[mask][:, columns].float().softmax(-1)  # (N, K)
    gold = columns.unsqueeze(0) == targets.to(columns.device)[mask].unsqueeze(1)
    right = (share[gold] >= MIN_SHARE).cpu().numpy()
    seen = bracket_distances[scored].numpy()
    size = int(seen.max(initial=0)) + 1
    return np.bincount(seen[right], minlength=size), np.bincount(seen, minlength=size)


def add_counts(total: np.ndarray, more: np.ndarray) -> np.ndarray:
    """The sum of two arrays of different lengths; the shorter one is padded with zeros."""
    size = max(len(total), len(more))
    return np.pad(total, (0, size - len(total))) + np.pad(more, (0, size - len(more)))


def worst(right: np.ndarray, seen: np.ndarray) -> tuple[float, int]:
    """WCPA and the shortest distance that has it; (nan, 0) without any closing bracket."""
    occurring = np.flatnonzero(seen)  # distances
    if not len(occurring):
        return float("nan"), 0
    accuracy = right[occurring] / seen[occurring]
    return float(accuracy.min()), int(occurring[accuracy.argmin()])

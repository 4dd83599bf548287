"""Search for the best next words of beam search, without a table of all log-probabilities."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from . import cpp


class NextWords(Protocol):
    """A search for the next words; see :func:`.products.next_words`."""

    def best(
        self, x: Tensor, scores: Tensor, count: int, penalties: dict[int, float]
    ) -> tuple[Tensor, Tensor]:
        """The best continuations of each sentence's hypotheses, the best one first.

        Args:
            x: ``(B*K, I)``, the vocabulary's input for the K hypotheses of each of B sentences.
            scores: ``(B, K)``, their sums of log-probabilities.
            count: how many continuations.
            penalties: what to subtract from a word's log-probability; inf forbids the word.

        Returns:
            Sums of log-probabilities and indices (hypothesis times V plus word), ``(B, count)``
            each; NaN counts as -inf.
        """


class PackedNextWords:
    """:class:`NextWords` on the CPU, without a table of log-probabilities.

    The vocabulary's weight is packed once for all steps of a search. Among equal sums, the first
    wins.

    Args:
        weight: ``(V, I)``, float32.
        bias: ``(V,)`` or None.
        rows: the largest number of rows of a step.
        steps: the approximate number of steps.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int, steps: int):
        x = weight.new_empty(rows, weight.size(1))
        self._vocabulary = cpp.extension()[0].Factor(weight.t().resolve_neg(), x, steps, True)
        self._bias = cpp.dense(bias)

    def best(
        self, x: Tensor, scores: Tensor, count: int, penalties: dict[int, float]
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`NextWords.best`."""
        sums, indices = cpp.extension()[0].best_next(
            self._vocabulary,
            cpp.dense(x),
            self._bias,
            cpp.dense(scores),
            count,
            list(penalties.items()),
        )
        return sums, indices

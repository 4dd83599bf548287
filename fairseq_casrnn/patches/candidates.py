"""The best candidates of a step of beam search: fairseq's way, or without a table of all of them.

The table, beam times vocabulary for each sentence, is larger than the processor's caches. With one
of this package's models on the CPU, compiled code picks from each row while it is in the cache.
What is found is the same; of equal sums the first.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from fairseq_casrnn.recurrence.products import NextWords

from .next_tokens import last_features

Candidates = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Sums of log-probabilities, last tokens and the hypotheses that are continued, ``(B, N)`` each,
the best first; and attention ``(B*K, S)`` or None."""


class Finder(Protocol):
    """One of the ways."""

    def find(
        self, t: int, batch: int, tokens: Tensor, encoded, states, scores: Tensor | None
    ) -> Candidates:
        """The candidates of step ``t``, of ``batch`` sentences.

        ``scores`` are the hypotheses' sums ``(B*K,)``, or None in the first step, when all
        hypotheses of a sentence are the same. The rest is for ``EnsembleModel.forward_decoder``.
        """


def finder(generator, rows: int, longest: int, device: torch.device) -> Finder:
    """The way for ``rows`` hypotheses, with at most ``longest`` tokens before the </s>."""
    ensemble, table = generator.model, InTable(generator, longest, device)
    # Not where somebody has replaced the function that computes the probabilities.
    stock = type(ensemble).forward_decoder.__module__ == "fairseq.sequence_generator"
    if stock and ensemble.models_size == 1 and generator.temperature == 1.0:
        pick = ensemble.single_model.decoder.next_words(rows, longest + 1)
        if pick is not None:
            return InOnePass(table, pick)
    return table


class InTable:
    """With ``EnsembleModel.forward_decoder`` and ``BeamSearch.step``."""

    def __init__(self, generator, longest: int, device: torch.device):
        self.generator, self.longest = generator, longest
        self.lowest = torch.full((), -math.inf, device=device)  # what NaN becomes

    def find(self, t, batch, tokens, encoded, states, scores) -> Candidates:
        """See :meth:`Finder.find`."""
        generator = self.generator
        lprobs, attention = generator.model.forward_decoder(
            tokens, encoded, states, generator.temperature
        )
        lprobs = penalise(generator, lprobs.float(), t, self.longest, self.lowest)
        lprobs = lprobs.view(batch, -1, generator.vocab_size)
        if scores is not None:  # fairseq's step reads the last of all steps' scores
            scores = scores.view(batch, -1, 1).expand(-1, -1, t)
        return *generator.search.step(t, lprobs, scores), attention


class InOnePass:
    """With :class:`fairseq_casrnn.recurrence.products.NextWords`, but for the last step's </s>."""

    def __init__(self, table: InTable, pick: NextWords):
        self.table, self.pick = table, pick

    def find(self, t, batch, tokens, encoded, states, scores) -> Candidates:
        """See :meth:`Finder.find`."""
        generator = self.table.generator
        if t == self.table.longest:
            return self.table.find(t, batch, tokens, encoded, states, scores)
        x, attention, _ = last_features(generator.model, tokens, encoded, states)
        x, beam = x[:, -1], generator.beam_size
        if scores is None:
            x, scores = x[::beam], x.new_zeros(batch)
        scores = scores.view(batch, -1)
        # As many as fairseq's step finds: never the pad.
        count = min(2 * beam, scores.size(1) * generator.vocab_size - 1)
        return *self.pick.best(x, scores, count, penalties(generator, t)), attention


def penalties(generator, step: int) -> dict[int, float]:
    """What :func:`penalise` subtracts from words before the last step."""
    found = {generator.unk: generator.unk_penalty, generator.pad: math.inf}
    if step < generator.min_len:
        found[generator.eos] = math.inf
    return found


def penalise(generator, lprobs: Tensor, step: int, longest: int, lowest: Tensor) -> Tensor:
    """Forbid words and move the <unk> as fairseq does, in ``lprobs`` (B*K, V); NaN becomes -inf."""
    torch.fmax(lprobs, lowest, out=lprobs)
    lprobs[:, generator.pad] = -math.inf
    if generator.unk_penalty:
        lprobs[:, generator.unk] -= generator.unk_penalty
    if step >= longest:
        lprobs[:, : generator.eos] = -math.inf
        lprobs[:, generator.eos + 1 :] = -math.inf
    elif step < generator.min_len:
        lprobs[:, generator.eos] = -math.inf
    return lprobs

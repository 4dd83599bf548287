"""Finding the best candidates in a step of beam search.

fairseq's ``(beam, V)`` table for each sentence is larger than the processor's caches. For a model
of this package on the CPU, a compiled operator selects from each row while it is in the cache; on a
GPU, one kernel takes the place of many operations. The result is the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairseq_casrnn.recurrence.next_words import NextWords

Candidates = tuple[Tensor, Tensor, Tensor | None]
"""Sums of log-probabilities in descending order, and indices (the hypothesis that is continued,
times V, plus the last token), ``(B, N)`` each; and attention ``(B*K, S)`` or None."""


def candidate_finder(
    generator, rows: int, longest: int, device: torch.device
) -> TableFinder | OnePassFinder:
    """The fastest finder for ``rows`` hypotheses with at most ``longest`` tokens before </s>."""
    ensemble, table = generator.model, TableFinder(generator, longest, device)
    # A user may have replaced the function that computes the probabilities.
    stock = type(ensemble).forward_decoder.__module__ == "fairseq.sequence_generator"
    if stock and ensemble.models_size == 1 and generator.temperature == 1.0:
        pick = ensemble.single_model.decoder.next_words(rows, longest + 1)
        if pick is not None:
            return OnePassFinder(table, pick)
    return table


class TableFinder:
    """Uses ``EnsembleModel.forward_decoder`` and ``BeamSearch.step``."""

    def __init__(self, generator, longest: int, device: torch.device):
        self.generator, self.longest = generator, longest
        self.lowest = torch.full((), -math.inf, device=device)  # replaces NaN

    def find(
        self, t: int, batch: int, tokens: Tensor, encoded, states, scores: Tensor | None
    ) -> Candidates:
        """Find the candidates of step ``t`` for ``batch`` sentences.

        ``scores`` are the hypotheses' sums ``(B*K,)``, or None in the first step, in which all
        hypotheses of a sentence are equal. The other arguments are those of
        ``EnsembleModel.forward_decoder``.
        """
        generator = self.generator
        lprobs, attention = generator.model.forward_decoder(
            tokens, encoded, states, generator.temperature
        )
        lprobs = apply_penalties(generator, lprobs.float(), t, self.longest, self.lowest)
        lprobs = lprobs.view(batch, -1, generator.vocab_size)
        if scores is not None:  # BeamSearch.step reads index t - 1 of the scores of all steps
            scores = scores.view(batch, -1, 1).expand(-1, -1, t)
        found, words, hypotheses = generator.search.step(t, lprobs, scores)
        return found, words + generator.vocab_size * hypotheses, attention


class OnePassFinder:
    """Uses :class:`fairseq_casrnn.recurrence.next_words.NextWords`, except in the last step."""

    def __init__(self, table: TableFinder, pick: NextWords):
        self.table, self.pick = table, pick

    def find(self, t, batch, tokens, encoded, states, scores) -> Candidates:
        """See :meth:`TableFinder.find`."""
        generator = self.table.generator
        if t == self.table.longest:
            return self.table.find(t, batch, tokens, encoded, states, scores)
        features, extra = generator.model.single_model.decoder.extract_features(
            tokens, encoder_out=encoded[0], incremental_state=states[0]
        )
        attention = None if extra["attn"] is None else extra["attn"][0][:, -1]  # (B*K, S)
        x, beam = features[:, -1], generator.beam_size
        if scores is None:
            x, scores = x[::beam], x.new_zeros(batch)
        scores = scores.view(batch, -1)
        # As in BeamSearch.step; the padding is never a candidate.
        count = min(2 * beam, scores.size(1) * generator.vocab_size - 1)
        return *self.pick.best(x, scores, count, penalties(generator, t)), attention


def penalties(generator, step: int) -> dict[int, float]:
    """What :func:`apply_penalties` subtracts from words, except in the last step."""
    found = {generator.unk: generator.unk_penalty, generator.pad: math.inf}
    if step < generator.min_len:
        found[generator.eos] = math.inf
    return found


def apply_penalties(generator, lprobs: Tensor, step: int, longest: int, lowest: Tensor) -> Tensor:
    """Apply fairseq's constraints on length, padding and <unk> to ``lprobs`` (B*K, V) in place.

    ``lowest`` is -inf as a tensor ``()`` on the device; it replaces NaN.
    """
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

"""Candidate selection of fairseq's beam search in one pass, on the CPU.

fairseq adds each hypothesis' score to a ``(beam, V)`` table and calls ``topk`` on the result. The
compiled operator reads the table once. The scores are the same. Of equal scores the first wins
(``torch.topk`` guarantees no order), and NaN comes last.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fairseq_casrnn.recurrence import choose, cpp


def step(
    original,
    self,
    step,
    lprobs,
    scores,
    prev_output_tokens=None,
    original_batch_idxs=None,
    candidate_multiple=2,
):
    """``fairseq.search.BeamSearch.step``; one pass if the default engine has that operator."""
    count = min(candidate_multiple * lprobs.size(1), lprobs[0].numel() - 1)  # without the padding
    if step == 0 or count < 1 or not supports(lprobs, scores):
        return original(
            self, step, lprobs, scores, prev_output_tokens, original_batch_idxs, candidate_multiple
        )
    return best_continuations(lprobs, scores[:, :, step - 1], count)


def step_with_batch_positions(
    original, self, step, lprobs, scores, prev=None, original_batch_idxs=None
):
    """``DiverseBeamSearch.step`` with positions in the batch.

    fairseq 0.12.3 passes the sentences' indices in the data set.
    """
    if original_batch_idxs is not None:
        if step == 0:
            self.first_batch_idxs = original_batch_idxs
        same = original_batch_idxs.unsqueeze(1) == self.first_batch_idxs
        original_batch_idxs = same.long().argmax(1)
    return original(self, step, lprobs, scores, prev, original_batch_idxs)


def supports(lprobs: Tensor, scores: Tensor) -> bool:
    """Whether the default engine can select among these candidates."""
    return choose(None, "cpu").supports_best_sums(lprobs, scores) is None


def best_continuations(lprobs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each sentence, in descending order.

    Args:
        lprobs: ``(B, beam, V)``, log-probabilities of the next token.
        scores: ``(B, beam)``, scores of the hypotheses so far.
        count: number of continuations.

    Returns:
        Their scores, tokens and hypotheses, ``(B, count)`` each.
    """
    values, indices = cpp.OPS.best_sums(lprobs, scores.contiguous(), count)
    size = lprobs.size(2)
    return values, indices.fmod(size), torch.div(indices, size, rounding_mode="trunc")

"""The choice of a step's candidates in fairseq's beam search, in one pass on the CPU.

fairseq adds each hypothesis' score to the table of its continuations, as large as beam times
vocabulary, and sorts partially what comes out; the compiled code here reads the table once. The
scores are the same; of equal ones the first are taken, where ``torch.topk`` promises no order, and
NaN comes last.
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
    """``fairseq.search.BeamSearch.step``, in one pass where the compiled engine is the default."""
    count = min(candidate_multiple * lprobs.size(1), lprobs[0].numel() - 1)  # never the pad
    if step == 0 or count < 1 or not supports(lprobs, scores):
        return original(
            self, step, lprobs, scores, prev_output_tokens, original_batch_idxs, candidate_multiple
        )
    return best(lprobs, scores[:, :, step - 1], count)


def step_by_places(original, self, step, lprobs, scores, prev=None, original_batch_idxs=None):
    """With places in the batch, where fairseq 0.12.3 gives numbers of the data set's sentences."""
    if original_batch_idxs is not None:
        if step == 0:
            self.first_batch_idxs = original_batch_idxs
        same = original_batch_idxs.unsqueeze(1) == self.first_batch_idxs
        original_batch_idxs = same.long().argmax(1)
    return original(self, step, lprobs, scores, prev, original_batch_idxs)


def supports(lprobs: Tensor, scores: Tensor) -> bool:
    """Whether the engine that runs unless a layer says otherwise can choose among these."""
    return choose(None, "cpu").supports_best_sums(lprobs, scores) is None


def best(lprobs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each sentence, the best one first.

    Args:
        lprobs: ``(B, beam, V)``, log probabilities of the next token.
        scores: ``(B, beam)``, of the hypotheses so far.
        count: how many.

    Returns:
        Their scores, tokens and hypotheses, ``(B, count)`` each.
    """
    values, indices = cpp.OPS.best_sums(lprobs, scores.contiguous(), count)
    size = lprobs.size(2)
    return values, indices.fmod(size), torch.div(indices, size, rounding_mode="trunc")

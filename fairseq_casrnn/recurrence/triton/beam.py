"""Find and select the candidates of a beam search step on a GPU, in few launches.

In PyTorch operations this takes about thirty launches, longer than the rest of a step of a small
model. Here one kernel makes sums of log-probabilities of logits, and one selects among the best.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from .cross_entropy import BLOCK, reduce_logits
from .host import on_its_device
from .launching import run


@triton.jit(do_not_specialize=["first", "second", "third", "of_first", "of_second", "of_third"])
def add_log_probabilities(
    logits,  # (N, V)
    scores,  # (N,)
    sums,  # (N, V), may be logits
    first, of_first, second, of_second, third, of_third, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes the log-probabilities of a row's logits plus its score to ``sums``; NaN as -inf.

    From those of the words ``first``, ``second`` and ``third`` a number is subtracted.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * V
    sums += row * V
    top, total, _ = reduce_logits(logits, V, BLOCK)
    log_total, score = tl.log(total), tl.load(scores + row)
    for start in range(0, V, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(logits + at, mask=at < V).to(tl.float32) - top - log_total
        x -= tl.where(at == first, of_first, 0.0)
        x -= tl.where(at == second, of_second, 0.0)
        x -= tl.where(at == third, of_third, 0.0)
        x = tl.where(x == x, x, float("-inf")) + score
        tl.store(sums + at, tl.where(x == x, x, float("-inf")), mask=at < V)


class TableNextWords:
    """:class:`.next_words.NextWords` by a table of all sums."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.weight, self.bias = weight, bias

    def best(
        self, x: Tensor, scores: Tensor, count: int, penalties: dict[int, float]
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`.next_words.NextWords.best`."""
        logits = F.linear(x, self.weight, self.bias)
        half = logits.dtype != torch.float32
        sums = torch.empty_like(logits, dtype=torch.float32) if half else logits
        add_scores(logits, scores.view(-1), sums, penalties)
        found, indices = sums.view(len(scores), -1).topk(count)
        return found, indices


@on_its_device
def add_scores(logits: Tensor, scores: Tensor, sums: Tensor, penalties: dict[int, float]) -> None:
    """:func:`add_log_probabilities` for all rows; at most three words have penalties."""
    (first, of_first), (second, of_second), (third, of_third) = [
        *penalties.items(), *[(-1, 0.0)] * (3 - len(penalties)),
    ]  # fmt: skip
    run(
        add_log_probabilities, (len(logits),),
        logits=logits, scores=scores, sums=sums, first=first, of_first=of_first, second=second,
        of_second=of_second, third=third, of_third=of_third, V=logits.size(1), BLOCK=BLOCK,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=["count", "beam", "eos", "size"],
    do_not_specialize_on_alignment=["ended_rows", "parents", "tokens"],
)
def choose_candidates(
    found,  # (B, count)
    indices,  # (B, count), int64
    ignored,  # (B, beam), bool
    collected,  # (B,), int64
    ended,  # (B, beam), bool
    ended_rows,  # (B, beam), int64
    parents,  # (B, beam), int64
    tokens,  # (B, beam), int64
    scores,  # (B, beam)
    covered,  # (B, beam), bool
    total,  # (B,), int64
    count, beam, eos, size, WIDTH: tl.constexpr,
):  # fmt: skip
    """One program per sentence; candidates are sorted, the best first.

    ``covered`` and ``total`` are the new values of ``ignored`` and ``collected``.
    """
    sentence = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    there, first = at < count, at < beam
    found += sentence * count
    indices += sentence * count
    here = sentence * beam
    score = tl.load(found + at, mask=there, other=float("-inf"))
    index = tl.load(indices + at, mask=there, other=0)
    word, row = index % size, index // size + here
    skipped = tl.load(ignored + here + at, mask=first, other=0) != 0
    ends = there & (word == eos) & (score != float("-inf"))
    ends_here = ends & first & ~skipped
    tl.store(ended + here + at, ends_here, mask=first)
    tl.store(ended_rows + here + at, row, mask=first)
    tl.store(total + sentence, tl.load(collected + sentence) + tl.sum(ends_here.to(tl.int64), 0))
    # Those that go on come first, in their order, then those that do not.
    over = tl.where(first, ends_here | skipped, ends) & there
    goes_on = (there & ~over).to(tl.int32)
    place = tl.where(
        over, tl.sum(goes_on, 0) + tl.cumsum(over.to(tl.int32), 0), tl.cumsum(goes_on, 0)
    )
    place -= 1
    taken = there & (place < beam)
    tl.store(parents + here + place, row, mask=taken)
    tl.store(tokens + here + place, word, mask=taken)
    tl.store(scores + here + place, score, mask=taken)
    tl.store(covered + here + place, over, mask=taken)


@on_its_device
def choose(
    found: Tensor, indices: Tensor, ignored: Tensor, collected: Tensor, eos: int, size: int
) -> tuple[Tensor, ...]:
    """See :func:`fairseq_casrnn.patches.beam_loop.select_candidates`."""
    ended, covered = torch.empty_like(ignored), torch.empty_like(ignored)
    ended_rows, parents, tokens = indices.new_empty(3, *ignored.shape)
    scores, total = found.new_empty(ignored.shape), torch.empty_like(collected)
    (batch, count), beam = found.shape, ignored.size(1)
    run(
        choose_candidates, (batch,),
        found=found.contiguous(), indices=indices.contiguous(), ignored=ignored.contiguous(),
        collected=collected, ended=ended, ended_rows=ended_rows, parents=parents, tokens=tokens,
        scores=scores, covered=covered, total=total, count=count, beam=beam, eos=eos, size=size,
        WIDTH=triton.next_power_of_2(count), num_warps=1,
    )  # fmt: skip
    return ended, ended_rows, parents, tokens, scores, covered, total

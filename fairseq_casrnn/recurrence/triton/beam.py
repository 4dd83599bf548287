"""Find and select the candidates of a beam search step on a GPU with few launches.

With PyTorch operations this takes about thirty launches, longer than the rest of a step of a small
model. Here, one kernel turns logits into sums of log-probabilities, and one selects among the best.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from . import launching
from .cross_entropy import BLOCK, reduce_logits
from .host import on_its_device


@triton.jit(do_not_specialize=["first", "second", "third", "of_first", "of_second", "of_third"])
def add_log_probabilities(
    logits,  # (N, V)
    scores,  # (N,)
    sums,  # (N, V), may be logits
    first, of_first, second, of_second, third, of_third, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes a row's log-probabilities plus its score to ``sums``; NaN counts as -inf.

    The penalties ``of_first``, … are subtracted from the log-probabilities of the words ``first``,
    ….
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
    """:class:`.next_words.NextWords` with a table of all sums ``(B*K, V)``."""

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
    """Launch :func:`add_log_probabilities` for all rows; at most three words may have penalties."""
    (first, of_first), (second, of_second), (third, of_third) = [
        *penalties.items(), *[(-1, 0.0)] * (3 - len(penalties)),
    ]  # fmt: skip
    launching.run(
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
    valid, in_beam = at < count, at < beam
    found += sentence * count
    indices += sentence * count
    base = sentence * beam
    score = tl.load(found + at, mask=valid, other=float("-inf"))
    index = tl.load(indices + at, mask=valid, other=0)
    word, row = index % size, index // size + base
    skipped = tl.load(ignored + base + at, mask=in_beam, other=0) != 0
    ends = valid & (word == eos) & (score != float("-inf"))
    collects = ends & in_beam & ~skipped
    tl.store(ended + base + at, collects, mask=in_beam)
    tl.store(ended_rows + base + at, row, mask=in_beam)
    tl.store(total + sentence, tl.load(collected + sentence) + tl.sum(collects.to(tl.int64), 0))
    # Candidates that continue come first, in their order, then the others.
    stops = tl.where(in_beam, collects | skipped, ends) & valid
    continues = (valid & ~stops).to(tl.int32)
    place = tl.where(
        stops, tl.sum(continues, 0) + tl.cumsum(stops.to(tl.int32), 0), tl.cumsum(continues, 0)
    )
    place -= 1
    taken = valid & (place < beam)
    tl.store(parents + base + place, row, mask=taken)
    tl.store(tokens + base + place, word, mask=taken)
    tl.store(scores + base + place, score, mask=taken)
    tl.store(covered + base + place, stops, mask=taken)


@on_its_device
def choose(
    found: Tensor, indices: Tensor, ignored: Tensor, collected: Tensor, eos: int, size: int
) -> tuple[Tensor, ...]:
    """See :func:`fairseq_casrnn.patches.beam_loop.select_candidates`."""
    ended, covered = torch.empty_like(ignored), torch.empty_like(ignored)
    ended_rows, parents, tokens = indices.new_empty(3, *ignored.shape)
    scores, total = found.new_empty(ignored.shape), torch.empty_like(collected)
    (batch, count), beam = found.shape, ignored.size(1)
    launching.run(
        choose_candidates, (batch,),
        found=found.contiguous(), indices=indices.contiguous(), ignored=ignored.contiguous(),
        collected=collected, ended=ended, ended_rows=ended_rows, parents=parents, tokens=tokens,
        scores=scores, covered=covered, total=total, count=count, beam=beam, eos=eos, size=size,
        WIDTH=triton.next_power_of_2(count), num_warps=1,
    )  # fmt: skip
    return ended, ended_rows, parents, tokens, scores, covered, total

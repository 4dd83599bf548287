"""Select the candidates of a beam search step in one launch.

PyTorch operations need about twenty launches for it, which take as long as the rest of a step of a
small model.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton_steps import on_its_device


@triton.jit(
    do_not_specialize=["count", "beam", "eos"],
    do_not_specialize_on_alignment=["ended_rows", "parents", "tokens"],
)
def choose_candidates(
    found,  # (B, count)
    words,  # (B, count), int64
    beams,  # (B, count), int64
    ignored,  # (B, beam), bool
    collected,  # (B,), int64
    ended,  # (B, beam), bool
    ended_rows,  # (B, beam), int64
    parents,  # (B, beam), int64
    tokens,  # (B, beam), int64
    scores,  # (B, beam)
    covered,  # (B, beam), bool
    total,  # (B,), int64
    count, beam, eos, WIDTH: tl.constexpr,
):  # fmt: skip
    """One program per sentence; candidates are sorted, the best first.

    ``covered`` and ``total`` are the new values of ``ignored`` and ``collected``.
    """
    sentence = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    there, first = at < count, at < beam
    found += sentence * count
    words += sentence * count
    beams += sentence * count
    here = sentence * beam
    score = tl.load(found + at, mask=there, other=float("-inf"))
    word = tl.load(words + at, mask=there, other=0)
    row = tl.load(beams + at, mask=there, other=0) + here
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
    found: Tensor, words: Tensor, beams: Tensor, ignored: Tensor, collected: Tensor, eos: int
) -> tuple[Tensor, ...]:
    """See :func:`fairseq_casrnn.patches.beam_loop.select_candidates`."""
    ended, covered = torch.empty_like(ignored), torch.empty_like(ignored)
    ended_rows, parents, tokens = words.new_empty(3, *ignored.shape)
    scores, total = found.new_empty(ignored.shape), torch.empty_like(collected)
    count, beam = found.size(1), ignored.size(1)
    inputs = (t.contiguous() for t in (found, words, beams, ignored, collected))
    made = ended, ended_rows, parents, tokens, scores, covered, total
    choose_candidates[(len(found),)](
        *inputs, *made, count, beam, eos, WIDTH=triton.next_power_of_2(count), num_warps=1
    )
    return made

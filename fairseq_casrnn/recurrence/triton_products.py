"""Products on a tile of ROWS rows of the batch and UNITS hidden units, inside a larger kernel.

Factors are streamed from memory in steps of DEPTH: the loops over them are short to compile, and
set no limit to H. ``inside`` ``(ROWS, 1)`` says which rows are in the batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_sequences import factor


@triton.jit
def accumulate(
    totals, x, inside, weight, unit, bound, stride: tl.constexpr, size: tl.constexpr,
    COUNT: tl.constexpr, DEPTH: tl.constexpr, FACTOR: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds x Wᵀ to the COUNT ``totals``, one for each block of W.

    Args:
        x: pointers ``(ROWS, 1)`` to rows of ``size``, which other programs wrote.
        weight: ``(COUNT*size, size)``, rows ``stride`` apart.
        unit, bound: the rows of each block, and how many there are.
    """
    for k in range(0, size, DEPTH):
        depth = k + tl.arange(0, DEPTH)
        across, along = depth[None, :], depth[:, None]
        a = tl.load(x + across, mask=inside & (across < size), other=0.0, cache_modifier=".cg")
        a = factor(a, FACTOR, PRECISION)
        mask = (along < size) & (unit < bound)
        sums = ()
        for n in tl.static_range(COUNT):
            w = tl.load(weight + (n * size + unit) * stride + along, mask=mask, other=0.0)
            total = tl.dot(
                a, factor(w, FACTOR, PRECISION), totals[n],
                input_precision=PRECISION, out_dtype=totals[n].dtype,
            )  # fmt: skip
            sums = sums + (total,)
        totals = sums
    return totals


@triton.jit
def accumulate_back(
    total, d, inside, weight, unit, stride: tl.constexpr, size: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, FACTOR: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds d W to ``total``.

    Args:
        d: pointers ``(ROWS, 1)`` to rows of WIDTH, which other programs wrote.
        weight: ``(WIDTH, size)``, rows ``stride`` apart.
        unit: the columns.
    """
    for k in range(0, WIDTH, DEPTH):
        depth = k + tl.arange(0, DEPTH)
        across, along = depth[None, :], depth[:, None]
        a = tl.load(d + across, mask=inside & (across < WIDTH), other=0.0, cache_modifier=".cg")
        mask = (along < WIDTH) & (unit < size)
        w = tl.load(weight + along * stride + unit, mask=mask, other=0.0)
        total = tl.dot(
            factor(a, FACTOR, PRECISION), factor(w, FACTOR, PRECISION), total,
            input_precision=PRECISION, out_dtype=total.dtype,
        )  # fmt: skip
    return total

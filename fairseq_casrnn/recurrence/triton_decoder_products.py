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
def accumulate_both(
    sums, parts, x, has_x, h, inside, w_ih, w_hh, unit, stride: tl.constexpr, size: tl.constexpr,
    BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr, ADDED: tl.constexpr, DEPTH: tl.constexpr,
    FACTOR: tl.constexpr, PRECISION: tl.constexpr, FEED: tl.constexpr,
):  # fmt: skip
    """Adds x W_ihᵀ (with FEED) and h W_hhᵀ to ``sums``, its blocks after ADDED to ``parts``.

    Both in one loop, for each loop waits until its first loads have come. Arguments as of
    ``accumulate``.
    """
    for k in range(0, size, DEPTH):
        depth = k + tl.arange(0, DEPTH)
        across, along = depth[None, :], depth[:, None]
        b = tl.load(h + across, mask=inside & (across < size), other=0.0, cache_modifier=".cg")
        b = factor(b, FACTOR, PRECISION)
        a = b
        if FEED:
            a = tl.load(x + across, mask=has_x & (across < size), other=0.0, cache_modifier=".cg")
            a = factor(a, FACTOR, PRECISION)
        mask = (along < size) & (unit < size)
        new, others = (), ()
        for n in tl.static_range(BLOCKS):
            total = sums[n]
            if FEED:
                w = tl.load(w_ih + (n * size + unit) * stride + along, mask=mask, other=0.0)
                total = tl.dot(
                    a, factor(w, FACTOR, PRECISION), total,
                    input_precision=PRECISION, out_dtype=total.dtype,
                )  # fmt: skip
            if n < ADDED:
                u = tl.load(w_hh + (n * size + unit) * size + along, mask=mask, other=0.0)
                total = tl.dot(
                    b, factor(u, FACTOR, PRECISION), total,
                    input_precision=PRECISION, out_dtype=total.dtype,
                )  # fmt: skip
            new = new + (total,)
        for n in tl.static_range(ADDED, PRODUCTS):
            u = tl.load(w_hh + (n * size + unit) * size + along, mask=mask, other=0.0)
            total = tl.dot(
                b, factor(u, FACTOR, PRECISION), parts[n - ADDED],
                input_precision=PRECISION, out_dtype=parts[n - ADDED].dtype,
            )  # fmt: skip
            others = others + (total,)
        sums, parts = new, others
    return sums, parts


@triton.jit
def accumulate_back(
    total, d, inside, weight, unit, stride: tl.constexpr, size: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
    SPLIT: tl.constexpr, FACTOR: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``total`` plus d W.

    The sum is shared out in SPLIT parts, one a warp, each of which reads factors of its own.

    Args:
        d: pointers ``(ROWS, 1)`` to rows of WIDTH, which other programs wrote.
        weight: ``(WIDTH, size)``, rows ``stride`` apart.
        unit: the columns ``(1, UNITS)``.
    """
    part: tl.constexpr = DEPTH // SPLIT
    share = tl.arange(0, SPLIT)[:, None, None] * part
    totals = tl.zeros((SPLIT, ROWS, UNITS), total.dtype)
    for k in range(0, WIDTH, DEPTH):
        across = k + share + tl.arange(0, part)[None, None, :]
        along = k + share + tl.arange(0, part)[None, :, None]
        mask = inside[None, :, :] & (across < WIDTH)
        a = tl.load(d[None, :, :] + across, mask=mask, other=0.0, cache_modifier=".cg")
        mask = (along < WIDTH) & (unit < size)[None, :, :]
        w = tl.load(weight + along * stride + unit[None, :, :], mask=mask, other=0.0)
        totals = tl.dot(
            factor(a, FACTOR, PRECISION), factor(w, FACTOR, PRECISION), totals,
            input_precision=PRECISION, out_dtype=totals.dtype,
        )  # fmt: skip
    return total + tl.sum(totals, axis=0)

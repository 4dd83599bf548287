"""The matrix products of :mod:`.sequences`: a tile of rows with a program's part of U.

The warps of a program divide the sum of a product, not its result (split-K): operands have SPLIT
parts as a third dimension, and each warp reads parts of h and U that no other warp needs. Tiles are
loaded as matrices whose row order makes Triton store them in shared memory part by part; otherwise
eight rows of a part would be in the same bank.

A float32 operand is either rounded to TF32, or split into a sum of two TF32 numbers, which takes
three products. ``tiles`` is :class:`..plan.Tiles`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_half(x):
    """float32 plus half a TF32 unit in the last place, away from 0. NaN may become a number."""
    return (x.to(tl.int32, bitcast=True) + 0x1000).to(tl.float32, bitcast=True)


@triton.jit
def truncate(x):
    """float32 truncated to TF32."""
    return (x.to(tl.int32, bitcast=True) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def to_tf32(x):
    """float32 rounded to TF32. NaN may become a number."""
    return truncate(add_half(x))


@triton.jit
def to_dot_operand(x, FACTOR: tl.constexpr, PRECISION: tl.constexpr):
    """``x`` as an operand of tl.dot; for TF32 it is rounded, since tl.dot would truncate it.

    Adding 0 · x keeps NaN, and turns infinity into NaN. With tl.where instead, each product would
    copy its operand, and a step would take 853 instead of 559 instructions (sm_90, H 256).
    """
    x = x.to(FACTOR)
    if PRECISION == "tf32":
        x = truncate(add_half(x) + x * 0.0)
    return x


@triton.jit
def to_dot_operands(x, FACTOR: tl.constexpr, PRECISION: tl.constexpr):
    """``x`` as a tuple of operands that sum to x: two in TF32 for the precision of float32."""
    if PRECISION == "tf32x3":
        high = to_tf32(x)
        parts = (high, x - high)  # the second is NaN for NaN and infinity
    else:
        parts = (to_dot_operand(x, FACTOR, PRECISION),)
    return parts


@triton.jit
def add_product(x, u, total, PRECISION: tl.constexpr):
    """``total`` plus the product of two results of :func:`to_dot_operands`."""
    if PRECISION == "tf32x3":
        total = tl.dot(x[1], u[0], total, input_precision="tf32", out_dtype=total.dtype)
        total = tl.dot(x[0], u[1], total, input_precision="tf32", out_dtype=total.dtype)
        total = tl.dot(x[0], u[0], total, input_precision="tf32", out_dtype=total.dtype)
    else:
        total = tl.dot(x[0], u[0], total, input_precision=PRECISION, out_dtype=total.dtype)
    return total


@triton.jit
def load_rows(
    pointer, start, batch, first, width: tl.constexpr, stride: tl.constexpr, tiles: tl.constexpr
):
    """Load DEPTH of ``width`` columns, from ``first`` on, of ROWS rows, from ``start`` on.

    Rows are ``stride`` apart. The result is ``(SPLIT*ROWS, DEPTH/SPLIT)``. Other programs have
    written the rows, so the loads bypass the L1 cache.
    """
    part: tl.constexpr = tiles.DEPTH // tiles.SPLIT
    index = tl.arange(0, tiles.SPLIT * tiles.ROWS)[:, None]
    row = start + index % tiles.ROWS
    column = first + index // tiles.ROWS * part + tl.arange(0, part)[None, :]
    at = pointer + row * stride + column
    mask = (row < batch) & (column < width)
    return tl.load(at, mask=mask, other=0.0, cache_modifier=".cg")


@triton.jit
def row_operands(x, tiles: tl.constexpr):
    """The result of :func:`load_rows` as operands ``(SPLIT, ROWS, DEPTH/SPLIT)``."""
    x = tl.reshape(x, (tiles.SPLIT, tiles.ROWS, tiles.DEPTH // tiles.SPLIT))
    return to_dot_operands(x, tiles.FACTOR, tiles.PRECISION)


@triton.jit
def load_weights(
    weight, start, first, size: tl.constexpr, width: tl.constexpr, across, ALONG: tl.constexpr,
    tiles: tl.constexpr,
):  # fmt: skip
    """The weights of the same columns for UNITS units, from ``start`` on.

    Units are ``across`` elements apart, columns ALONG. The results are operands
    ``(SPLIT, DEPTH/SPLIT, UNITS)``.
    """
    UNITS: tl.constexpr = tiles.UNITS
    SPLIT: tl.constexpr = tiles.SPLIT
    part: tl.constexpr = tiles.DEPTH // SPLIT
    if ALONG == 1:
        row = tl.arange(0, UNITS * SPLIT)[:, None]
        unit = start + row // SPLIT
        column = first + row % SPLIT * part + tl.arange(0, part)[None, :]
    else:
        row = tl.arange(0, tiles.DEPTH)[:, None]
        unit = start + tl.arange(0, UNITS)[None, :]
        column = first + row % SPLIT * part + row // SPLIT
    mask = (column < width) & (unit < size)
    u = tl.load(weight + column * ALONG + unit * across, mask=mask, other=0.0)
    if ALONG == 1:
        u = tl.permute(tl.reshape(u, (UNITS, SPLIT, part)), (1, 2, 0))
    else:
        u = tl.permute(tl.reshape(u, (part, SPLIT, UNITS)), (1, 0, 2))
    return to_dot_operands(u, tiles.FACTOR, tiles.PRECISION)


@triton.jit
def keep_weights(
    weight, start, size: tl.constexpr, COUNT: tl.constexpr, width: tl.constexpr,
    ACROSS: tl.constexpr, ALONG: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """A tuple of all weights that :func:`multiply` needs; empty unless RESIDENT."""
    kept = ()
    if tiles.RESIDENT:
        for first in tl.static_range(0, width, tiles.DEPTH):
            for n in tl.static_range(COUNT):
                block = weight + n * size * size
                u = load_weights(block, start, first, size, width, ACROSS, ALONG, tiles)
                kept = kept + (u,)
    return kept


@triton.jit
def sum_parts(totals, COUNT: tl.constexpr, tiles: tl.constexpr):
    """Sum each of COUNT tensors over its first axis, of size SPLIT, which is 4 or 8.

    This is ten times as fast as tl.sum, in which each warp would write to an eighth of the banks.
    """
    ROWS: tl.constexpr = tiles.ROWS
    UNITS: tl.constexpr = tiles.UNITS
    sums = ()
    for n in tl.static_range(COUNT):
        x = tl.permute(totals[n], (1, 2, 0))
        if tiles.SPLIT == 8:
            first, second = tl.split(tl.reshape(x, (ROWS, UNITS, 4, 2)))
            x = first + second
        first, second = tl.split(tl.reshape(x, (ROWS, UNITS, 2, 2)))
        first, second = tl.split(first + second)
        sums = sums + (first + second,)
    return sums


@triton.jit
def multiply(
    pointer, row, batch, weight, start, kept, size: tl.constexpr, FIRST: tl.constexpr,
    COUNT: tl.constexpr, KEPT: tl.constexpr, width: tl.constexpr, stride: tl.constexpr,
    ACROSS: tl.constexpr, ALONG: tl.constexpr, tiles: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Multiply ROWS rows at ``pointer``, from ``row`` on, by COUNT of KEPT blocks, from FIRST on.

    Returns:
        A tuple of COUNT tiles ``(ROWS, UNITS)``.
    """
    DEPTH: tl.constexpr = tiles.DEPTH
    AHEAD: tl.constexpr = tiles.AHEAD
    totals = ()
    for _ in tl.static_range(COUNT):
        totals = totals + (tl.zeros((tiles.SPLIT, tiles.ROWS, tiles.UNITS), SUM),)
    if tiles.RESIDENT:
        parts = ()
        for first in tl.static_range(0, min(AHEAD * DEPTH, width), DEPTH):
            parts = parts + (load_rows(pointer, row, batch, first, width, stride, tiles),)
        for first in tl.static_range(0, width, DEPTH):
            if first + AHEAD * DEPTH < width:  # prefetch while others are multiplied
                later = first + AHEAD * DEPTH
                parts = parts + (load_rows(pointer, row, batch, later, width, stride, tiles),)
            x = row_operands(parts[first // DEPTH], tiles)
            sums = ()
            for n in tl.static_range(COUNT):
                u = kept[first // DEPTH * KEPT + FIRST + n]
                sums = sums + (add_product(x, u, totals[n], tiles.PRECISION),)
            totals = sums
    else:
        for first in tl.range(0, width, DEPTH, num_stages=3):
            x = load_rows(pointer, row, batch, first, width, stride, tiles)
            x = row_operands(x, tiles)
            sums = ()
            for n in tl.static_range(COUNT):
                block = weight + (FIRST + n) * size * max(ACROSS, ALONG)
                u = load_weights(block, start, first, size, width, ACROSS, ALONG, tiles)
                sums = sums + (add_product(x, u, totals[n], tiles.PRECISION),)
            totals = sums
    return sum_parts(totals, COUNT, tiles)

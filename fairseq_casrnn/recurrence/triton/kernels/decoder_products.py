"""The matrix products of :mod:`.decoder`, on a tile of ROWS rows of the batch and UNITS units.

Weights are read from the L2 cache again at each step, so that they do not limit depth and H.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .products import (
    add_product,
    load_rows,
    load_weights,
    multiply,
    row_operands,
    sum_parts,
    to_dot_operand,
)


@triton.jit
def accumulate(
    total, x, inside, weight, unit, bound, stride: tl.constexpr, size: tl.constexpr,
    tiles: tl.constexpr,
):  # fmt: skip
    """``total`` plus x Wᵀ.

    Args:
        x: pointers ``(ROWS, 1)`` to rows of ``size`` elements, which other programs have written.
        weight: ``(bound, size)``, with rows ``stride`` elements apart.
        unit: the rows of weight to multiply by.
    """
    DEPTH: tl.constexpr = min(tiles.DEPTH, 64)
    for k in range(0, size, DEPTH):
        depth = k + tl.arange(0, DEPTH)
        across, along = depth[None, :], depth[:, None]
        a = tl.load(x + across, mask=inside & (across < size), other=0.0, cache_modifier=".cg")
        a = to_dot_operand(a, tiles.FACTOR, tiles.PRECISION)
        mask = (along < size) & (unit < bound)
        w = tl.load(weight + unit * stride + along, mask=mask, other=0.0)
        w = to_dot_operand(w, tiles.FACTOR, tiles.PRECISION)
        total = tl.dot(a, w, total, input_precision=tiles.PRECISION, out_dtype=total.dtype)
    return total


@triton.jit
def multiply_both(
    sums, parts, x, x_rows, h, row, batch, w_ih, w_hh, unit, stride: tl.constexpr,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr, ADDED: tl.constexpr,
    tiles: tl.constexpr, FEED: tl.constexpr,
):  # fmt: skip
    """``sums`` plus x W_ihᵀ (if FEED) and ADDED blocks of h W_hhᵀ; ``parts`` plus its other blocks.

    x is ``(x_rows, size)`` and h ``(B, size)``; row and unit are the first ones of the tile.
    """
    SUM: tl.constexpr = sums[0].dtype
    others = ()
    if FEED and BLOCKS == ADDED and ADDED == PRODUCTS:
        products = multiply_in_one_loop(
            x, x_rows, h, batch, row, w_ih, w_hh, unit, stride, size, BLOCKS, tiles, SUM
        )
        new_sums = ()
        for n in tl.static_range(BLOCKS):
            new_sums = new_sums + (sums[n] + products[n],)
    else:
        if FEED:
            products = multiply(
                x, row, x_rows, w_ih, unit, (), size, 0, BLOCKS, BLOCKS, size, size, stride, 1,
                tiles, SUM,
            )  # fmt: skip
            new_sums = ()
            for n in tl.static_range(BLOCKS):
                new_sums = new_sums + (sums[n] + products[n],)
            sums = new_sums
        products = multiply(
            h, row, batch, w_hh, unit, (), size, 0, PRODUCTS, PRODUCTS, size, size, size, 1,
            tiles, SUM,
        )  # fmt: skip
        new_sums, others = (), ()
        for n in tl.static_range(BLOCKS):
            new_sums = new_sums + ((sums[n] + products[n] if n < ADDED else sums[n]),)
        for n in tl.static_range(ADDED, PRODUCTS):
            others = others + (parts[n - ADDED] + products[n],)
    return new_sums, others


@triton.jit
def multiply_in_one_loop(
    x, x_rows, h, batch, row, w_ih, w_hh, unit, stride: tl.constexpr, size: tl.constexpr,
    COUNT: tl.constexpr, tiles: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """COUNT blocks of x W_ihᵀ + h W_hhᵀ.

    A single loop runs over x and then over h, since compile time grows with the number of loads.
    """
    totals = ()
    for _ in tl.static_range(COUNT):
        totals = totals + (tl.zeros((tiles.SPLIT, tiles.ROWS, tiles.UNITS), SUM),)
    parts: tl.constexpr = (size + tiles.DEPTH - 1) // tiles.DEPTH
    for i in tl.range(0, 2 * parts, num_stages=3):
        of_h = i >= parts
        first = tl.where(of_h, i - parts, i) * tiles.DEPTH
        source, bound = tl.where(of_h, h, x), tl.where(of_h, batch, x_rows)
        a = row_operands(load_rows(source, row, bound, first, size, size, tiles), tiles)
        weight, across = tl.where(of_h, w_hh, w_ih), tl.where(of_h, size, stride)
        sums = ()
        for n in tl.static_range(COUNT):
            block = weight + n * size * across
            u = load_weights(block, unit, first, size, size, across, 1, tiles)
            sums = sums + (add_product(a, u, totals[n], tiles.PRECISION),)
        totals = sums
    return sum_parts(totals, COUNT, tiles)


@triton.jit
def multiply_back(
    d, row, bound, weight, unit, row_stride: tl.constexpr, stride: tl.constexpr,
    size: tl.constexpr, WIDTH: tl.constexpr, tiles: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """The tile ``(ROWS, UNITS)`` of d W; warps share the work by dividing the sum.

    Args:
        d: rows of WIDTH elements, ``row_stride`` apart, which other programs have written.
        row, unit: the first row and column of the tile.
        bound: number of rows; rows beyond it count as 0.
        weight: ``(WIDTH, size)``, rows ``stride`` apart.
    """
    products = multiply(
        d, row, bound, weight, unit, (), size, 0, 1, 1, WIDTH, row_stride, 1, stride, tiles, SUM
    )
    return products[0]

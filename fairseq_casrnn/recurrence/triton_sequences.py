"""The kernels of engine ``triton`` that run a layer over all time steps in one launch.

A program computes UNITS hidden units of a tile of ROWS rows of the batch, step by step, and keeps
the tile's state in registers. Where they fit, it also keeps its rows of U (all blocks) in shared
memory; elsewhere it reads them again at every step, from the second-level cache. After each step
all programs of the same rows wait for each other, for each reads all of h (backward: all gradients
of U h) that the others have written. They must therefore be on the GPU at the same time: such a
kernel is launched as a cooperative grid, which fails rather than waits for ever. Rows are
independent: where there are more tiles of rows than programs, a program takes one after another.

What no other program reads is stored, and what does not depend on the neighbouring step loaded for
the next, between arriving at the barrier and waiting there.

The warps of a program share out the sum of a product, not its result: products have SPLIT parts as
a third dimension. So each reads its own part of h and of U, which no other needs. Tiles are loaded
as matrices whose rows are ordered so that Triton lays them out in shared memory part by part;
otherwise eight rows of a part would lie in the same bank.

Triton's interpreter runs one program after another. There a launch without a barrier (``BARRIER``
false) stores the initial states (``end`` = ``begin`` = 0), and others each make one step.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_tiles import (
    backward_tile,
    forward_tile,
    load,
    load_blocks,
    load_gradients,
    load_inputs,
    load_last,
    load_saved,
    store_last,
    store_products,
    store_rest,
    store_saved,
    store_sums,
    tile,
    zeros,
)


@triton.jit
def arrive(count):
    """Tell the other programs that what this one wrote before can be read."""
    tl.debug_barrier()  # all threads have written before one releases
    tl.atomic_add(count, 1, sem="release")


@triton.jit
def wait(count, goal):
    """Wait until programs have arrived ``goal`` times in all; what they wrote is seen then.

    Adding 0 is how Triton is told to load with acquire; the barrier puts all threads' reads after.
    """
    while tl.atomic_add(count, 0, sem="acquire") < goal:
        pass
    tl.debug_barrier()


@triton.jit
def meet(count, goal):
    """A barrier: :func:`arrive`, then :func:`wait`."""
    arrive(count)
    wait(count, goal)


@triton.jit
def to_tf32(x):
    """float32 rounded to TF32. The bits of NaN may become those of another number."""
    return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def factor(x, FACTOR: tl.constexpr, PRECISION: tl.constexpr):
    """``x`` as a product's factor. Products in TF32 cut numbers off, which are rounded before."""
    x = x.to(FACTOR)
    if PRECISION == "tf32":
        x = tl.where(x == x, to_tf32(x), x)  # NaN stays NaN
    return x


@triton.jit
def factors(x, FACTOR: tl.constexpr, PRECISION: tl.constexpr):
    """``x`` as a tuple of factors of which it is the sum: two in TF32 for all of float32."""
    if PRECISION == "tf32x3":
        high = to_tf32(x)
        parts = (high, x - high)  # of NaN and infinity the rest is NaN
    else:
        parts = (factor(x, FACTOR, PRECISION),)
    return parts


@triton.jit
def add_product(x, u, total, PRECISION: tl.constexpr):
    """``total`` plus the product of what :func:`factors` made."""
    if PRECISION == "tf32x3":
        total = tl.dot(x[1], u[0], total, input_precision="tf32", out_dtype=total.dtype)
        total = tl.dot(x[0], u[1], total, input_precision="tf32", out_dtype=total.dtype)
        total = tl.dot(x[0], u[0], total, input_precision="tf32", out_dtype=total.dtype)
    else:
        total = tl.dot(x[0], u[0], total, input_precision=PRECISION, out_dtype=total.dtype)
    return total


@triton.jit
def load_rows(
    pointer, start, batch, first, width: tl.constexpr, stride: tl.constexpr, ROWS: tl.constexpr,
    DEPTH: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """DEPTH columns from ``first`` on, of ``width``, of the tile of rows from ``start`` on, which
    lie ``stride`` apart: ``(SPLIT*ROWS, DEPTH/SPLIT)``.

    Other programs wrote them: not from this multiprocessor's own cache.
    """
    part: tl.constexpr = DEPTH // SPLIT
    index = tl.arange(0, SPLIT * ROWS)[:, None]
    row, column = start + index % ROWS, first + index // ROWS * part + tl.arange(0, part)[None, :]
    at = pointer + row * stride + column
    mask = (row < batch) & (column < width)
    return tl.load(at, mask=mask, other=0.0, cache_modifier=".cg")


@triton.jit
def row_factors(
    x, ROWS: tl.constexpr, SPLIT: tl.constexpr, FACTOR: tl.constexpr, PRECISION: tl.constexpr
):
    """What :func:`load_rows` returns as factors ``(SPLIT, ROWS, DEPTH/SPLIT)``."""
    x = tl.reshape(x, (SPLIT, ROWS, x.shape[0] * x.shape[1] // (SPLIT * ROWS)))
    return factors(x, FACTOR, PRECISION)


@triton.jit
def load_weights(
    weight, start, first, size: tl.constexpr, width: tl.constexpr, ACROSS: tl.constexpr,
    ALONG: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr, SPLIT: tl.constexpr,
    FACTOR: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What these columns are multiplied with, for UNITS units from ``start`` on:
    ``(SPLIT, DEPTH/SPLIT, UNITS)``. Units lie ACROSS apart, what belongs to a column ALONG.
    """
    part: tl.constexpr = DEPTH // SPLIT
    if ALONG == 1:
        row = tl.arange(0, UNITS * SPLIT)[:, None]
        unit = start + row // SPLIT
        column = first + row % SPLIT * part + tl.arange(0, part)[None, :]
    else:
        row = tl.arange(0, DEPTH)[:, None]
        unit = start + tl.arange(0, UNITS)[None, :]
        column = first + row % SPLIT * part + row // SPLIT
    mask = (column < width) & (unit < size)
    u = tl.load(weight + column * ALONG + unit * ACROSS, mask=mask, other=0.0)
    if ALONG == 1:
        u = tl.permute(tl.reshape(u, (UNITS, SPLIT, part)), (1, 2, 0))
    else:
        u = tl.permute(tl.reshape(u, (part, SPLIT, UNITS)), (1, 0, 2))
    return factors(u, FACTOR, PRECISION)


@triton.jit
def keep_weights(
    weight, start, size: tl.constexpr, COUNT: tl.constexpr, width: tl.constexpr,
    ACROSS: tl.constexpr, ALONG: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
    SPLIT: tl.constexpr, FACTOR: tl.constexpr, PRECISION: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """A tuple of all that :func:`multiply` needs of U, or an empty one where it is not RESIDENT."""
    kept = ()
    if RESIDENT:
        for first in tl.static_range(0, width, DEPTH):
            for n in tl.static_range(COUNT):
                u = load_weights(
                    weight + n * size * size, start, first, size, width, ACROSS, ALONG,
                    UNITS, DEPTH, SPLIT, FACTOR, PRECISION,
                )  # fmt: skip
                kept = kept + (u,)
    return kept


@triton.jit
def sum_parts(
    totals, COUNT: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, SPLIT: tl.constexpr
):
    """The sums over the first axis, SPLIT being 4 or 8.

    tl.sum would have each warp write to an eighth of the banks, and take ten times as long.
    """
    sums = ()
    for n in tl.static_range(COUNT):
        x = tl.permute(totals[n], (1, 2, 0))
        if SPLIT == 8:
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
    ACROSS: tl.constexpr, ALONG: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
    DEPTH: tl.constexpr, AHEAD: tl.constexpr, SPLIT: tl.constexpr, FACTOR: tl.constexpr,
    PRECISION: tl.constexpr, RESIDENT: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Products of rows from ``row`` on, at ``pointer``, with COUNT of KEPT blocks of weights from
    FIRST on.

    Returns:
        a tuple of COUNT tiles ``(ROWS, UNITS)``.
    """
    totals = ()
    for _ in tl.static_range(COUNT):
        totals = totals + (tl.zeros((SPLIT, ROWS, UNITS), SUM),)
    if RESIDENT:
        tiles = ()
        for first in tl.static_range(0, min(AHEAD * DEPTH, width), DEPTH):
            x = load_rows(pointer, row, batch, first, width, stride, ROWS, DEPTH, SPLIT)
            tiles = tiles + (x,)
        for first in tl.static_range(0, width, DEPTH):
            if first + AHEAD * DEPTH < width:  # is on its way while others are multiplied
                x = load_rows(
                    pointer, row, batch, first + AHEAD * DEPTH, width, stride, ROWS, DEPTH, SPLIT
                )
                tiles = tiles + (x,)
            x = row_factors(tiles[first // DEPTH], ROWS, SPLIT, FACTOR, PRECISION)
            sums = ()
            for n in tl.static_range(COUNT):
                u = kept[first // DEPTH * KEPT + FIRST + n]
                sums = sums + (add_product(x, u, totals[n], PRECISION),)
            totals = sums
    else:
        for first in tl.range(0, width, DEPTH, num_stages=3):
            x = load_rows(pointer, row, batch, first, width, stride, ROWS, DEPTH, SPLIT)
            x = row_factors(x, ROWS, SPLIT, FACTOR, PRECISION)
            sums = ()
            for n in tl.static_range(COUNT):
                u = load_weights(
                    weight + (FIRST + n) * size * size, start, first, size, width, ACROSS, ALONG,
                    UNITS, DEPTH, SPLIT, FACTOR, PRECISION,
                )  # fmt: skip
                sums = sums + (add_product(x, u, totals[n], PRECISION),)
            totals = sums
    return sum_parts(totals, COUNT, ROWS, UNITS, SPLIT)


@triton.jit(do_not_specialize=["begin", "end", "batch", "steps", "given"])
def forward_sequence(
    gates, bias, weight, inner, extra, rows, h0, c0, hs, states, h_n, c_n, last, given, count,
    begin, end, batch, steps,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr, ADDED: tl.constexpr,
    PARAMS: tl.constexpr, CELLS: tl.constexpr, KEEP: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr, AHEAD: tl.constexpr,
    SPLIT: tl.constexpr, GROUP: tl.constexpr, FACTOR: tl.constexpr, PRECISION: tl.constexpr,
    RESIDENT: tl.constexpr, BARRIER: tl.constexpr,
):  # fmt: skip
    """Steps from begin to end; see :func:`.triton_tiles.forward_tile`.

    weight is U ``(PRODUCTS*H, H)``. From h0 and c0 ``(B, H)``, c0 None for a cell without c, the
    first of hs and states are stored where begin is 0. count ``(tiles of rows,)`` is 0.
    """
    start = tl.program_id(1) * UNITS
    unit = start + tl.arange(0, UNITS)[None, :]
    p = load_blocks(rows + unit, size, PARAMS, unit < size, gates)
    kept = keep_weights(
        weight, start, size, PRODUCTS, size, size, 1, UNITS, DEPTH, SPLIT, FACTOR, PRECISION,
        RESIDENT,
    )  # fmt: skip
    for index in range(tl.program_id(0), tl.cdiv(batch, ROWS), tl.num_programs(0)):
        row, inside, mask = tile(index, batch, unit, size, ROWS)
        first = begin.to(tl.int64) * batch + row
        final = load_last(last, given, steps, row, inside)
        here = row * size + unit
        initial = mask & (begin == 0)
        state = load(h0 + here, initial, gates)
        tl.store(hs + here, state.to(hs.dtype.element_ty), mask=initial)
        if c0 is not None:
            state = load(c0 + here, initial, gates)
        tl.store(states + here, state, mask=initial)
        if BARRIER:
            arrive(count + index)
        else:
            state += load(states + first * size + unit, mask & (begin > 0), gates)
        sums, others = load_inputs(
            gates, bias, extra, first, unit, inside, mask, size, BLOCKS, CELLS
        )
        if BARRIER:
            wait(count + index, tl.num_programs(1))
        for t in range(begin, end):
            at = first + (t - begin) * batch
            before = hs + (begin.to(tl.int64) + (t - begin)) * batch * size
            products = ()
            for k in tl.static_range(0, PRODUCTS, GROUP):
                products = products + multiply(
                    before, index * ROWS, batch, weight, start, kept, size, k,
                    min(GROUP, PRODUCTS - k), PRODUCTS, size, size, size, 1, ROWS, UNITS, DEPTH,
                    AHEAD, SPLIT, FACTOR, PRECISION, RESIDENT, state.dtype,
                )  # fmt: skip
            a, u_h, state, h = forward_tile(
                sums, others, products, state, p, BLOCKS, ADDED, inner is not None, CELLS, cell
            )
            tl.store(hs + (at + batch) * size + unit, h.to(hs.dtype.element_ty), mask=mask)
            if BARRIER:
                arrive(count + index)
            store_saved(
                gates, inner, states, a, u_h, state, at, batch, unit, mask, size, BLOCKS, KEEP
            )
            store_last(h_n, c_n, h, state, t, final, row, unit, mask, size)
            more = t + 1 < end
            sums, others = load_inputs(
                gates, bias, extra, at + batch, unit, inside & more, mask & more, size,
                BLOCKS, CELLS,
            )  # fmt: skip
            if BARRIER:
                wait(count + index, (t + 2 - begin) * tl.num_programs(1))


@triton.jit(do_not_specialize=["begin", "end", "batch", "steps", "given"])
def backward_sequence(
    gates, d_gates, weight, inner, d_products, extra, d_extra, rows, d_rows, states,
    grad_h, grad_c, grad_hn, grad_cn, last, given, d_state, count, begin, end, batch, steps,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr,
    PARAMS: tl.constexpr, GRADS: tl.constexpr, CELLS: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr, AHEAD: tl.constexpr,
    SPLIT: tl.constexpr, GROUP: tl.constexpr, FACTOR: tl.constexpr, PRECISION: tl.constexpr,
    RESIDENT: tl.constexpr, BARRIER: tl.constexpr,
):  # fmt: skip
    """Steps from end back to begin; see :func:`.triton_tiles.backward_tile`.

    d_state ``(B, H)`` becomes the gradient of the state before step ``begin``, and is read where
    there are steps from ``end`` on. The gradient of h0 is left to be made of d_products, which are
    the first blocks of d_gates in a cell without inner. count ``(tiles of rows,)`` is 0.
    """
    start = tl.program_id(1) * UNITS
    unit = start + tl.arange(0, UNITS)[None, :]
    p = load_blocks(rows + unit, size, PARAMS, unit < size, gates)
    width: tl.constexpr = PRODUCTS * size
    stride: tl.constexpr = BLOCKS * size if inner is None else width
    kept = keep_weights(
        weight, start, size, 1, width, 1, size, UNITS, DEPTH, SPLIT, FACTOR, PRECISION, RESIDENT
    )
    for index in range(tl.program_id(0), tl.cdiv(batch, ROWS), tl.num_programs(0)):
        row, inside, mask = tile(index, batch, unit, size, ROWS)
        here = row * size + unit
        final = load_last(last, given, steps, row, inside)
        top = (end - 1).to(tl.int64) * batch + row
        d_new = load(d_state + here, mask & (end < steps), gates)
        new = load(states + (top + batch) * size + unit, mask, gates)
        d_p = zeros(new, GRADS)
        saved = load_saved(
            gates, states, inner, extra, top, unit, inside, mask, size, BLOCKS, CELLS
        )
        grads = load_gradients(
            gates, grad_h, grad_c, grad_hn, grad_cn, given, end - 1, final, top, row, unit,
            mask, size,
        )  # fmt: skip
        for back in range(end - begin):
            at = top - back * batch
            after = end - back
            products = multiply(
                d_products + after.to(tl.int64) * batch * stride, index * ROWS,
                tl.where(after < steps, batch, 0), weight, start, kept, size, 0, 1, 1, width,
                stride, 1, size, ROWS, UNITS, DEPTH, AHEAD, SPLIT, FACTOR, PRECISION, RESIDENT,
                new.dtype,
            )  # fmt: skip
            d_h, past = products[0] + grads[0], saved[1]
            d_a, d_inner, d_others, d_new, d_p = backward_tile(
                saved, new, d_h, d_new + grads[1], p, d_p, GRADS, CELLS, cell
            )
            new = past
            store_products(
                d_gates, inner, d_products, d_a, d_inner, at, unit, mask, size, BLOCKS, PRODUCTS
            )
            if BARRIER:
                arrive(count + index)
            store_rest(
                d_gates, inner, d_extra, d_a, d_others, at, batch, steps, unit, inside, mask,
                size, BLOCKS, CELLS,
            )  # fmt: skip
            more = back + 1 < end - begin
            saved = load_saved(
                gates, states, inner, extra, at - batch, unit, inside & more, mask & more, size,
                BLOCKS, CELLS,
            )  # fmt: skip
            grads = load_gradients(
                gates, grad_h, grad_c, grad_hn, grad_cn, given, end - 2 - back, final,
                at - batch, row, unit, mask & more, size,
            )  # fmt: skip
            if BARRIER:
                wait(count + index, (back + 1) * tl.num_programs(1))
        tl.store(d_state + here, d_new, mask=mask)
        store_sums(d_rows, d_p, index, unit, size, GRADS)

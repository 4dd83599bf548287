"""The kernels of engine ``triton`` that make a whole sequence in one launch.

Each program keeps its part of U (all blocks for its UNITS hidden units) on the chip, and the state
of its tile in registers. After each step the programs that work on the same rows of the batch meet
at a counter, for every one reads all of h (or, backward, all gradients of U h) that the others have
written. So they must all be on the GPU at the same time: such a kernel is launched as a cooperative
grid, which fails rather than waits for ever.

Triton's interpreter runs one program after another. There a launch is for one step (``end`` =
``begin`` + 1) and they do not meet (``MEET`` false).
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_tiles import backward_tile, forward_tile, load, load_blocks, tile


@triton.jit
def meet(count, goal):
    """Wait until programs have come here ``goal`` times in all; what they wrote is seen then.

    The first barrier puts a program's writes before its thread's release, the second its reads
    after the acquire; adding 0 is how Triton is told to load with acquire.
    """
    tl.debug_barrier()
    tl.atomic_add(count, 1, sem="release")
    while tl.atomic_add(count, 0, sem="acquire") < goal:
        pass
    tl.debug_barrier()


@triton.jit
def factor(x, FACTOR: tl.constexpr, PRECISION: tl.constexpr):
    """``x`` as a product's factor. Products in TF32 cut numbers off, which are rounded before."""
    x = x.to(FACTOR)
    if PRECISION == "tf32":
        rounded = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
        x = tl.where(x == x, rounded.to(tl.float32, bitcast=True), x)  # NaN stays NaN
    return x


@triton.jit
def load_parts(
    pointer, inside, first: tl.constexpr, ALL: tl.constexpr, size: tl.constexpr,
    DEPTH: tl.constexpr, CHUNKS: tl.constexpr, GROUP: tl.constexpr, FACTOR: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles ``(ROWS, DEPTH)``: GROUP of ALL parts from the first on, or as many as there are.

    They are CHUNKS parts of rows that lie ``size`` apart, which other programs wrote: not from this
    processor's cache.
    """
    tiles = ()
    for part in tl.static_range(first, first + GROUP):
        if part < ALL:
            depth = (part % CHUNKS) * DEPTH + tl.arange(0, DEPTH)[None, :]
            at = pointer + (part // CHUNKS) * size + depth
            mask = inside & (depth < size)
            x = tl.load(at, mask=mask, other=0.0, cache_modifier=".cg")
            tiles = tiles + (factor(x, FACTOR, PRECISION),)
    return tiles


@triton.jit
def load_weights(
    weight, unit, across: tl.constexpr, along: tl.constexpr, size: tl.constexpr,
    PRODUCTS: tl.constexpr, DEPTH: tl.constexpr, CHUNKS: tl.constexpr, FACTOR: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles ``(DEPTH, UNITS)`` of every block of U, one block after another.

    Units lie ``across`` apart and what is summed over ``along``.
    """
    tiles = ()
    for k in tl.static_range(PRODUCTS * CHUNKS):
        depth = (k % CHUNKS) * DEPTH + tl.arange(0, DEPTH)[:, None]
        at = (k // CHUNKS) * (size * size) + depth * along + unit * across
        mask = (depth < size) & (unit < size)
        u = tl.load(weight + at, mask=mask, other=0.0)
        tiles = tiles + (factor(u, FACTOR, PRECISION),)
    return tiles


@triton.jit
def zeros(like, COUNT: tl.constexpr):
    """A tuple of COUNT tiles of 0."""
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles = tiles + (tl.zeros_like(like),)
    return tiles


@triton.jit
def multiply(
    pointer, inside, weights, totals, COUNT: tl.constexpr, size: tl.constexpr,
    DEPTH: tl.constexpr, CHUNKS: tl.constexpr, GROUP: tl.constexpr, FACTOR: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds to the COUNT ``totals`` the products of the rows at ``pointer`` with as many blocks.

    GROUP parts of the rows are loaded before the first is multiplied, so that one waits for memory
    once a group.
    """
    for first in tl.static_range(0, CHUNKS, GROUP):
        xs = load_parts(
            pointer, inside, first, CHUNKS, size, DEPTH, CHUNKS, GROUP, FACTOR, PRECISION
        )
        for k in tl.static_range(first, first + GROUP):
            if k < CHUNKS:
                sums = ()
                for n in tl.static_range(COUNT):
                    total = tl.dot(
                        xs[k - first], weights[n * CHUNKS + k], totals[n],
                        input_precision=PRECISION, out_dtype=totals[n].dtype,
                    )  # fmt: skip
                    sums = sums + (total,)
                totals = sums
    return totals


@triton.jit
def multiply_all(
    pointer, inside, weights, total, COUNT: tl.constexpr, size: tl.constexpr,
    DEPTH: tl.constexpr, CHUNKS: tl.constexpr, GROUP: tl.constexpr, FACTOR: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds to ``total`` the products of COUNT rows, ``size`` apart, with a block each."""
    for first in tl.static_range(0, COUNT * CHUNKS, GROUP):
        xs = load_parts(
            pointer, inside, first, COUNT * CHUNKS, size, DEPTH, CHUNKS, GROUP, FACTOR, PRECISION
        )
        for j in tl.static_range(first, first + GROUP):
            if j < COUNT * CHUNKS:
                total = tl.dot(
                    xs[j - first], weights[j], total,
                    input_precision=PRECISION, out_dtype=total.dtype,
                )  # fmt: skip
    return total


@triton.jit(do_not_specialize=["begin", "end", "batch"])
def forward_sequence(
    gates, bias, weight, inner, extra, rows, hs, states, count, begin, end, batch,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr, ADDED: tl.constexpr,
    PARAMS: tl.constexpr, CELLS: tl.constexpr, KEEP: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr, CHUNKS: tl.constexpr,
    GROUP: tl.constexpr, FACTOR: tl.constexpr, PRECISION: tl.constexpr, MEET: tl.constexpr,
):  # fmt: skip
    """Steps from begin to end; see :func:`.triton_tiles.forward_tile`.

    weight is U ``(PRODUCTS*H, H)``; count ``(tiles of rows,)`` is 0.
    """
    row, unit, mask = tile(batch, size, ROWS, UNITS)
    p = load_blocks(rows + unit, size, PARAMS, unit < size, gates)
    u = load_weights(weight, unit, size, 1, size, PRODUCTS, DEPTH, CHUNKS, FACTOR, PRECISION)
    first = begin.to(tl.int64) * batch + row
    state = load(states + first * size + unit, mask, gates)
    for t in range(begin, end):
        at = first + (t - begin) * batch
        products = multiply(
            hs + at * size, row < batch, u, zeros(state, PRODUCTS), PRODUCTS,
            size, DEPTH, CHUNKS, GROUP, FACTOR, PRECISION,
        )  # fmt: skip
        state = forward_tile(
            gates, bias, products, inner, extra, p, hs, states, state, at, batch, unit,
            row < batch, mask, size, BLOCKS, ADDED, CELLS, KEEP, cell,
        )  # fmt: skip
        if MEET:
            meet(count + tl.program_id(0), (t + 1 - begin) * tl.num_programs(1))


@triton.jit(do_not_specialize=["begin", "end", "batch", "steps"])
def backward_sequence(
    gates, d_gates, weight, inner, d_products, extra, d_extra, rows, d_rows, states,
    grad_h, grad_state, dh, d_state, count, begin, end, batch, steps,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr,
    PARAMS: tl.constexpr, GRADS: tl.constexpr, CELLS: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr, CHUNKS: tl.constexpr,
    GROUP: tl.constexpr, FACTOR: tl.constexpr, PRECISION: tl.constexpr, MEET: tl.constexpr,
):  # fmt: skip
    """Steps from end back to begin; see :func:`.triton_tiles.backward_tile`.

    dh ``(B, H)`` is the gradient of the last h from outside; that of h0 is left to be made of
    d_products, which are the first blocks of d_gates in a cell without inner. d_state ``(B, H)``
    is the gradient of the state of step ``end`` and becomes that of step ``begin``. count ``(tiles
    of rows,)`` is 0.
    """
    row, unit, mask = tile(batch, size, ROWS, UNITS)
    here = row * size + unit
    p = load_blocks(rows + unit, size, PARAMS, unit < size, gates)
    u = load_weights(weight, unit, 1, size, size, PRODUCTS, DEPTH, CHUNKS, FACTOR, PRECISION)
    d_h = load(dh + here, mask & (end == steps), gates)
    d_new = load(d_state + here, mask, gates)
    width: tl.constexpr = (BLOCKS if inner is None else PRODUCTS) * size
    last = (end - 1).to(tl.int64) * batch + row
    for back in range(end - begin):
        at = last - back * batch
        inside = (row < batch) & (end - back < steps)
        d_h = multiply_all(
            d_products + (at + batch) * width, inside, u, d_h, PRODUCTS,
            size, DEPTH, CHUNKS, GROUP, FACTOR, PRECISION,
        )  # fmt: skip
        d_new = backward_tile(
            gates, d_gates, inner, d_products, extra, d_extra, p, d_rows, states,
            grad_h, grad_state, d_h, d_new, at, batch, steps, unit, row < batch, mask,
            size, BLOCKS, PRODUCTS, GRADS, CELLS, UNITS, cell,
        )  # fmt: skip
        d_h = tl.zeros_like(d_h)
        if MEET:
            meet(count + tl.program_id(0), (back + 1) * tl.num_programs(1))
    tl.store(d_state + here, d_new, mask=mask)

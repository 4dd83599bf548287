"""Kernels that run a layer over all steps in one launch.

A program computes UNITS hidden units of a tile of ROWS rows of the batch, step by step, and keeps
the tile's state in registers. If its rows of U (of all blocks) fit, it keeps them in shared memory;
otherwise it reads them from the L2 cache at every step. After each step all programs with the same
rows wait for each other, since each reads all of h (backward: all gradients of U h), which the
others have written. They must therefore run at the same time: the kernel is launched as a
cooperative grid, which fails instead of deadlocking. Rows are independent: if there are more tiles
of rows than programs, a program processes one tile after another.

Between arriving at the barrier and waiting there, a program stores what no other program reads, and
loads those inputs of the next step that do not depend on this one.

Triton's interpreter runs one program after another. There, launches have no barrier (``BARRIER``
false): the first one stores the initial states (``end`` = ``begin`` = 0), each further one runs a
step.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .products import keep_weights, multiply
from .tiles import (
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

__all__ = ["arrive", "backward_sequence", "forward_sequence", "grid_barrier", "wait"]


@triton.jit
def arrive(count):
    """Signal to the other programs that they may read what this one has written."""
    tl.debug_barrier()  # wait until all threads have written
    tl.atomic_add(count, 1, sem="release")


@triton.jit
def wait(count, goal):
    """Wait until programs have arrived ``goal`` times in all; then their writes are visible.

    Triton has no acquire load, so 0 is added instead. The debug_barrier orders the reads of all
    threads after it.
    """
    while tl.atomic_add(count, 0, sem="acquire") < goal:
        pass
    tl.debug_barrier()


@triton.jit
def grid_barrier(count, goal):
    """A barrier: :func:`arrive`, then :func:`wait`."""
    arrive(count)
    wait(count, goal)


@triton.jit(do_not_specialize=["begin", "end", "batch", "steps", "given"])
def forward_sequence(
    gates,  # (T, B, BLOCKS*H)
    bias,  # (BLOCKS*H,), or None
    weight,  # (PRODUCTS*H, H)
    candidate,  # (T, B, H), or None
    side,  # (T, B, H) or (T, B, CELLS), or None
    rows,  # (PARAMS, H)
    h0,  # (B, H)
    c0,  # (B, H), or None
    hs,  # (T+1, B, H)
    states,  # (T+1, B, H)
    h_n,  # (B, H)
    c_n,  # (B, H), or None
    last,  # (B,), int64
    given,  # bits of plan.GIVEN
    count,  # (tiles of rows,), int32, zeros
    begin, end, batch, steps,
    size: tl.constexpr, shape: tl.constexpr, cell: tl.constexpr, tiles: tl.constexpr,
    KEEP: tl.constexpr, BARRIER: tl.constexpr,
):  # fmt: skip
    """Run steps ``begin`` to ``end``; see :func:`.tiles.forward_tile`.

    weight is U. If ``begin`` is 0, the initial state is copied from h0 and c0 to hs and states.
    """
    PRODUCTS: tl.constexpr = shape.PRODUCTS
    GROUP: tl.constexpr = tiles.GROUP
    start = tl.program_id(1) * tiles.UNITS
    unit = start + tl.arange(0, tiles.UNITS)[None, :]
    p = load_blocks(rows + unit, size, shape.PARAMS, unit < size, gates)
    kept = keep_weights(weight, start, size, PRODUCTS, size, size, 1, tiles)
    for index in range(tl.program_id(0), tl.cdiv(batch, tiles.ROWS), tl.num_programs(0)):
        row, inside, mask = tile(index, batch, unit, size, tiles.ROWS)
        first = begin.to(tl.int64) * batch + row
        final = load_last(last, given, steps, row, inside)
        offset = row * size + unit
        initial = mask & (begin == 0)
        state = load(h0 + offset, initial, gates)
        tl.store(hs + offset, state.to(hs.dtype.element_ty), mask=initial)
        if c0 is not None:
            state = load(c0 + offset, initial, gates)
        tl.store(states + offset, state, mask=initial)
        if BARRIER:
            arrive(count + index)
        else:
            state += load(states + first * size + unit, mask & (begin > 0), gates)
        sums, others = load_inputs(gates, bias, side, first, unit, inside, mask, size, shape)
        if BARRIER:
            wait(count + index, tl.num_programs(1))
        for t in range(begin, end):
            at = first + (t - begin) * batch
            h_prev = hs + (begin.to(tl.int64) + (t - begin)) * batch * size
            products = ()
            for k in tl.static_range(0, PRODUCTS, GROUP):
                products = products + multiply(
                    h_prev, index * tiles.ROWS, batch, weight, start, kept, size, k,
                    min(GROUP, PRODUCTS - k), PRODUCTS, size, size, size, 1, tiles, state.dtype,
                )  # fmt: skip
            a, u_h, state, h = forward_tile(sums, others, products, state, p, shape, cell)
            tl.store(hs + (at + batch) * size + unit, h.to(hs.dtype.element_ty), mask=mask)
            if BARRIER:
                arrive(count + index)
            store_saved(
                gates, candidate, states, a, u_h, state, at, batch, unit, mask, size, shape, KEEP
            )
            store_last(h_n, c_n, h, state, t, final, row, unit, mask, size)
            more = t + 1 < end
            sums, others = load_inputs(
                gates, bias, side, at + batch, unit, inside & more, mask & more, size, shape,
            )  # fmt: skip
            if BARRIER:
                wait(count + index, (t + 2 - begin) * tl.num_programs(1))


@triton.jit(do_not_specialize=["begin", "end", "batch", "steps", "given"])
def backward_sequence(
    gates,  # (T, B, BLOCKS*H)
    d_gates,  # (T, B, BLOCKS*H), may be gates
    weight,  # (PRODUCTS*H, H)
    candidate,  # (T, B, H), or None
    d_products,  # (T, B, PRODUCTS*H)
    side,  # (T, B, H) or (T, B, CELLS), or None
    d_side,  # (T, B, H) or (tiles of units, T, B, CELLS), or None
    rows,  # (PARAMS, H)
    d_rows,  # (tiles of rows, GRADS, H)
    states,  # (T+1, B, H)
    grad_h,  # (T, B, H)
    grad_c,  # (T, B, H)
    grad_hn,  # (B, H)
    grad_cn,  # (B, H)
    last,  # (B,), int64
    given,  # bits of plan.GIVEN
    d_state,  # (B, H)
    count,  # (tiles of rows,), int32, zeros
    begin, end, batch, steps,
    size: tl.constexpr, shape: tl.constexpr, cell: tl.constexpr, tiles: tl.constexpr,
    BARRIER: tl.constexpr,
):  # fmt: skip
    """Run steps ``end`` back to ``begin``; see :func:`.tiles.backward_tile`.

    d_state becomes the gradient of the state before step ``begin``; it is read only if there are
    steps after ``end``. The caller computes the gradient of h0 from d_products, which for a cell
    without candidate are the first blocks of d_gates.
    """
    start = tl.program_id(1) * tiles.UNITS
    unit = start + tl.arange(0, tiles.UNITS)[None, :]
    p = load_blocks(rows + unit, size, shape.PARAMS, unit < size, gates)
    width: tl.constexpr = shape.PRODUCTS * size
    stride: tl.constexpr = shape.BLOCKS * size if candidate is None else width
    kept = keep_weights(weight, start, size, 1, width, 1, size, tiles)
    for index in range(tl.program_id(0), tl.cdiv(batch, tiles.ROWS), tl.num_programs(0)):
        row, inside, mask = tile(index, batch, unit, size, tiles.ROWS)
        offset = row * size + unit
        final = load_last(last, given, steps, row, inside)
        top = (end - 1).to(tl.int64) * batch + row
        d_new = load(d_state + offset, mask & (end < steps), gates)
        new = load(states + (top + batch) * size + unit, mask, gates)
        d_p = zeros(new, shape.GRADS)
        saved = load_saved(gates, states, candidate, side, top, unit, inside, mask, size, shape)
        grads = load_gradients(
            gates, grad_h, grad_c, grad_hn, grad_cn, given, end - 1, final, top, row, unit,
            mask, size,
        )  # fmt: skip
        for back in range(end - begin):
            at = top - back * batch
            after = end - back
            products = multiply(
                d_products + after.to(tl.int64) * batch * stride, index * tiles.ROWS,
                tl.where(after < steps, batch, 0), weight, start, kept, size, 0, 1, 1, width,
                stride, 1, size, tiles, new.dtype,
            )  # fmt: skip
            d_h, prev = products[0] + grads[0], saved[1]
            d_a, d_candidate, d_others, d_new, d_p = backward_tile(
                saved, new, d_h, d_new + grads[1], p, d_p, shape, cell
            )
            new = prev
            store_products(
                d_gates,
                candidate,
                d_products,
                d_a,
                d_candidate,
                at,
                unit,
                mask,
                size,
                shape,
            )
            if BARRIER:
                arrive(count + index)
            store_rest(
                d_gates, candidate, d_side, d_a, d_others, at, batch, steps, unit, inside, mask,
                size, shape,
            )  # fmt: skip
            more = back + 1 < end - begin
            saved = load_saved(
                gates, states, candidate, side, at - batch, unit, inside & more, mask & more, size,
                shape,
            )  # fmt: skip
            grads = load_gradients(
                gates, grad_h, grad_c, grad_hn, grad_cn, given, end - 2 - back, final,
                at - batch, row, unit, mask & more, size,
            )  # fmt: skip
            if BARRIER:
                wait(count + index, (back + 1) * tl.num_programs(1))
        tl.store(d_state + offset, d_new, mask=mask)
        store_sums(d_rows, d_p, index, unit, size, shape)

"""Kernels for the elementwise part of a single step per launch.

Their arguments are whole sequences and the step t, the only argument that changes between steps.
For names and shapes see :mod:`.tiles`; ``products`` are U h of this step.
"""

from __future__ import annotations

import importlib

import triton
import triton.language as tl

from ....cells import FAMILIES
from ....cells import __name__ as cells
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

STEPS = {}
for _name in (name for name, row in FAMILIES.items() if row.kernels):
    STEPS |= importlib.import_module(f"{cells}.{_name}.triton").KERNELS
FORWARD = {name: forward for name, (forward, _) in STEPS.items()}
BACKWARD = {name: backward for name, (_, backward) in STEPS.items()}


@triton.jit(do_not_specialize=["t", "batch", "steps", "given"])
def forward_step(
    gates,  # (T, B, BLOCKS*H)
    bias,  # (BLOCKS*H,), or None
    products,  # (B, PRODUCTS*H)
    candidate,  # (T, B, H), or None
    side,  # (T, B, H) or (T, B, CELLS), or None
    rows,  # (PARAMS, H)
    hs,  # (T+1, B, H)
    states,  # (T+1, B, H)
    h_n,  # (B, H)
    c_n,  # (B, H), or None
    last,  # (B,), int64
    given,  # bits of plan.GIVEN
    t, batch, steps,
    size: tl.constexpr, shape: tl.constexpr, cell: tl.constexpr, tiles: tl.constexpr,
    KEEP: tl.constexpr,
):  # fmt: skip
    """Step t; see :func:`.tiles.forward_tile`."""
    unit = tl.program_id(1) * tiles.UNITS + tl.arange(0, tiles.UNITS)[None, :]
    row, inside, mask = tile(tl.program_id(0), batch, unit, size, tiles.ROWS)
    at = t.to(tl.int64) * batch + row
    p = load_blocks(rows + unit, size, shape.PARAMS, unit < size, gates)
    u_h = load_blocks(
        products + row * (shape.PRODUCTS * size) + unit, size, shape.PRODUCTS, mask, gates
    )
    prev = load(states + at * size + unit, mask, gates)
    sums, others = load_inputs(gates, bias, side, at, unit, inside, mask, size, shape)
    a, u_h, state, h = forward_tile(sums, others, u_h, prev, p, shape, cell)
    tl.store(hs + (at + batch) * size + unit, h.to(hs.dtype.element_ty), mask=mask)
    final = load_last(last, given, steps, row, inside)
    store_last(h_n, c_n, h, state, t, final, row, unit, mask, size)
    store_saved(gates, candidate, states, a, u_h, state, at, batch, unit, mask, size, shape, KEEP)


@triton.jit(do_not_specialize=["t", "batch", "steps", "given"])
def backward_step(
    gates,  # (T, B, BLOCKS*H)
    d_gates,  # (T, B, BLOCKS*H), may be gates
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
    dh,  # (B, H)
    d_state,  # (B, H)
    t, batch, steps,
    size: tl.constexpr, shape: tl.constexpr, cell: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """The backward of step t; see :func:`.tiles.backward_tile`.

    dh and d_state come from the next step: the gradient of h through U, and that of the state after
    this step. d_state becomes the gradient of the state before it. In the last step, neither is
    read.
    """
    unit = tl.program_id(1) * tiles.UNITS + tl.arange(0, tiles.UNITS)[None, :]
    row, inside, mask = tile(tl.program_id(0), batch, unit, size, tiles.ROWS)
    at = t.to(tl.int64) * batch + row
    offset = row * size + unit
    p = load_blocks(rows + unit, size, shape.PARAMS, unit < size, gates)
    saved = load_saved(gates, states, candidate, side, at, unit, inside, mask, size, shape)
    new = load(states + (at + batch) * size + unit, mask, gates)
    grads = load_gradients(
        gates, grad_h, grad_c, grad_hn, grad_cn, given, t,
        load_last(last, given, steps, row, inside), at, row, unit, mask, size,
    )  # fmt: skip
    later = mask & (t + 1 < steps)
    d_h, d_new = load(dh + offset, later, gates), load(d_state + offset, later, gates)
    d_a, d_candidate, d_others, d_prev, d_p = backward_tile(
        saved, new, d_h + grads[0], d_new + grads[1], p, zeros(new, shape.GRADS), shape, cell
    )
    store_products(d_gates, candidate, d_products, d_a, d_candidate, at, unit, mask, size, shape)
    store_rest(
        d_gates, candidate, d_side, d_a, d_others, at, batch, steps, unit, inside, mask, size,
        shape,
    )  # fmt: skip
    tl.store(d_state + offset, d_prev, mask=mask)
    store_sums(d_rows, d_p, tl.program_id(0), unit, size, shape)

"""The kernels of engine ``triton`` that make one time step's elementwise maths in one launch.

They get whole sequences and the step's number, so that from step to step nothing else changes.
Shapes are those of :mod:`.triton_tiles`; of products ``(B, PRODUCTS*H)``, U h of this step.
"""

from __future__ import annotations

import triton
import triton.language as tl

from . import triton_cells as cells
from .triton_tiles import backward_tile, forward_tile, load, load_blocks, tile

FORWARD = {
    "lstm": cells.lstm_forward,
    "normalized": cells.normalized_forward,
    "cas": cells.cas_forward,
    "cas_trained": cells.cas_forward,
    "highway": cells.highway_forward,
    "peephole": cells.peephole_forward,
    "depth_gated": cells.depth_gated_forward,
    "gru": cells.gru_forward,
    "mixture": cells.lstm_forward,
}
BACKWARD = {
    "lstm": cells.lstm_backward,
    "normalized": cells.normalized_backward,
    "cas": cells.cas_backward,
    "cas_trained": cells.cas_backward,
    "highway": cells.highway_backward,
    "peephole": cells.peephole_backward,
    "depth_gated": cells.depth_gated_backward,
    "gru": cells.gru_backward,
    "mixture": cells.lstm_backward,
}


@triton.jit(do_not_specialize=["t", "batch"])
def forward_step(
    gates, bias, products, inner, extra, rows, hs, states, t, batch,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr, ADDED: tl.constexpr,
    PARAMS: tl.constexpr, CELLS: tl.constexpr, KEEP: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Step t; see :func:`.triton_tiles.forward_tile`."""
    row, unit, mask = tile(batch, size, ROWS, UNITS)
    at = t.to(tl.int64) * batch + row
    p = load_blocks(rows + unit, size, PARAMS, unit < size, gates)
    u_h = load_blocks(products + row * (PRODUCTS * size) + unit, size, PRODUCTS, mask, gates)
    past = load(states + at * size + unit, mask, gates)
    forward_tile(
        gates, bias, u_h, inner, extra, p, hs, states, past, at, batch, unit, row < batch, mask,
        size, BLOCKS, ADDED, CELLS, KEEP, cell,
    )  # fmt: skip


@triton.jit(do_not_specialize=["t", "batch", "steps"])
def backward_step(
    gates, d_gates, inner, d_products, extra, d_extra, rows, d_rows, states,
    grad_h, grad_state, dh, d_state, t, batch, steps,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr,
    PARAMS: tl.constexpr, GRADS: tl.constexpr, CELLS: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Step t's backward; see :func:`.triton_tiles.backward_tile`.

    dh and d_state ``(B, H)`` hold the gradients from the step after, of h through U and of the
    state; d_state becomes that of the step before.
    """
    row, unit, mask = tile(batch, size, ROWS, UNITS)
    at = t.to(tl.int64) * batch + row
    here = row * size + unit
    p = load_blocks(rows + unit, size, PARAMS, unit < size, gates)
    d_past = backward_tile(
        gates, d_gates, inner, d_products, extra, d_extra, p, d_rows, states, grad_h, grad_state,
        load(dh + here, mask, gates), load(d_state + here, mask, gates),
        at, batch, steps, unit, row < batch, mask,
        size, BLOCKS, PRODUCTS, GRADS, CELLS, UNITS, cell,
    )  # fmt: skip
    tl.store(d_state + here, d_past, mask=mask)

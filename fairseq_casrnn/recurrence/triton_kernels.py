"""The kernels of engine ``triton``: one time step's elementwise maths in one launch.

A program works on a tile of ROWS rows of the batch and UNITS hidden units. The kernels get whole
sequences and the step's number, so that from step to step nothing else changes. All arithmetic is
in the precision of the gates' buffer; tensors of another are converted as they are read and
written.

Shapes: gates ``(T, B, BLOCKS*H)``, products ``(B, PRODUCTS*H)`` (U h of this step, of whose blocks
the first ADDED are added to the gates), bias ``(BLOCKS*H,)``, inner and extra ``(T, B, H)``, rows
``(PARAMS, H)`` (the elementwise parameters), hs and states ``(T+1, B, H)`` with the initial state
first. states is c, or h where the cell has no c.
"""

from __future__ import annotations

import triton
import triton.language as tl

from . import triton_cells as cells

FORWARD = {
    "lstm": cells.lstm_forward,
    "normalized": cells.normalized_forward,
    "cas": cells.cas_forward,
    "cas_trained": cells.cas_forward,
    "highway": cells.highway_forward,
    "peephole": cells.peephole_forward,
    "depth_gated": cells.depth_gated_forward,
    "gru": cells.gru_forward,
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
}
lstm_forward, lstm_backward = cells.lstm_forward, cells.lstm_backward


@triton.jit
def load(pointer, mask, like):
    """The tile at ``pointer`` in the precision of ``like``, 0 outside ``mask``."""
    return tl.load(pointer, mask=mask, other=0.0).to(like.dtype.element_ty)


@triton.jit
def load_blocks(pointer, size: tl.constexpr, COUNT: tl.constexpr, mask, like):
    """A tuple of COUNT tiles that lie ``size`` apart."""
    tiles = ()
    for k in tl.static_range(COUNT):
        tiles = tiles + (load(pointer + k * size, mask, like),)
    return tiles


@triton.jit
def store_blocks(pointer, size: tl.constexpr, COUNT: tl.constexpr, mask, tiles):
    """The inverse of ``load_blocks``."""
    for k in tl.static_range(COUNT):
        tl.store(pointer + k * size, tiles[k].to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def load_sums(
    gates, bias, products, unit, size: tl.constexpr, BLOCKS: tl.constexpr, ADDED: tl.constexpr,
    mask, like,
):  # fmt: skip
    """The sums of BLOCKS gates: W x, the bias where it is not in it yet, and U h."""
    sums = ()
    for k in tl.static_range(BLOCKS):
        a = load(gates + k * size, mask, like)
        if bias is not None:
            a += load(bias + k * size + unit, unit < size, like)
        if k < ADDED:
            a += load(products + k * size, mask, like)
        sums = sums + (a,)
    return sums


@triton.jit
def load_grad(pointer, outside, at, mask, like):
    """The gradient from the step after, plus that from outside at ``at`` where there is one."""
    grad = load(pointer, mask, like)
    if outside is not None:
        grad += load(outside + at, mask, like)
    return grad


@triton.jit
def tile(batch, size: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr):
    """Rows ``(ROWS, 1)``, units ``(1, UNITS)`` and the mask of this program's tile."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]
    return row, unit, (row < batch) & (unit < size)


@triton.jit(do_not_specialize=["t", "batch"])
def forward_step(
    gates, bias, products, inner, extra, rows, hs, states, t, batch,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr, ADDED: tl.constexpr,
    PARAMS: tl.constexpr, KEEP: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Step t: writes h and the state; the activated gates over the sums, and inner, where KEEP."""
    row, unit, mask = tile(batch, size, ROWS, UNITS)
    at = t.to(tl.int64) * batch + row
    gates += at * (BLOCKS * size) + unit
    products += row * (PRODUCTS * size) + unit
    a = load_sums(gates, bias, products, unit, size, BLOCKS, ADDED, mask, gates)
    p = load_blocks(rows + unit, size, PARAMS, unit < size, gates)
    at = at * size + unit
    after = at + batch * size
    lower, u_h = 0.0, 0.0
    if extra is not None:
        lower = load(extra + at, mask, gates)
    if inner is not None:
        u_h = load(products + ADDED * size, mask, gates)
    a, state, h, u_h = cell(a, load(states + at, mask, gates), lower, u_h, p)
    tl.store(states + after, state, mask=mask)
    tl.store(hs + after, h.to(hs.dtype.element_ty), mask=mask)
    if KEEP:
        store_blocks(gates, size, BLOCKS, mask, a)
        if inner is not None:
            tl.store(inner + at, u_h, mask=mask)


@triton.jit(do_not_specialize=["t", "batch"])
def backward_step(
    gates, d_gates, inner, d_products, extra, d_extra, rows, d_rows, states,
    grad_h, grad_state, dh, d_state, t, batch,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr,
    PARAMS: tl.constexpr, GRADS: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Step t's backward: writes d_gates (which may be gates), d_products (for a cell with inner,
    the gradient of all of U h, ``(T, B, PRODUCTS*H)``) and d_extra.

    dh and d_state ``(B, H)`` hold the gradients from the step after, of h through U and of the
    state; d_state becomes that of the step before. grad_h and grad_state ``(T, B, H)`` come from
    outside. d_rows ``(tiles of rows, GRADS, H)`` collects the parameters' gradients.
    """
    row, unit, mask = tile(batch, size, ROWS, UNITS)
    at = t.to(tl.int64) * batch + row
    gates_at = at * (BLOCKS * size) + unit
    products_at = at * (PRODUCTS * size) + unit
    at = at * size + unit
    after = at + batch * size
    here = row * size + unit
    a = load_blocks(gates + gates_at, size, BLOCKS, mask, gates)
    p = load_blocks(rows + unit, size, PARAMS, unit < size, gates)
    d_h = load_grad(dh + here, grad_h, at, mask, gates)
    d_new = load_grad(d_state + here, grad_state, at, mask, gates)
    lower, u_h = 0.0, 0.0
    if extra is not None:
        lower = load(extra + at, mask, gates)
    if inner is not None:
        u_h = load(inner + at, mask, gates)
    past, new = load(states + at, mask, gates), load(states + after, mask, gates)
    d_a, d_past, d_lower, d_inner, d_p = cell(a, past, new, lower, u_h, p, d_h, d_new)
    store_blocks(d_gates + gates_at, size, BLOCKS, mask, d_a)
    tl.store(d_state + here, d_past, mask=mask)
    if d_extra is not None:
        tl.store(d_extra + at, d_lower.to(d_extra.dtype.element_ty), mask=mask)
    if inner is not None:
        store_blocks(d_products + products_at, size, PRODUCTS - 1, mask, d_a)
        last = d_products + products_at + (PRODUCTS - 1) * size
        tl.store(last, d_inner.to(d_products.dtype.element_ty), mask=mask)
    if GRADS > 0:
        unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
        sums = d_rows + tl.program_id(0) * (GRADS * size) + unit
        for k in tl.static_range(GRADS):
            total = load(sums + k * size, unit < size, gates) + tl.sum(d_p[k], axis=0)
            tl.store(sums + k * size, total, mask=unit < size)


@triton.jit(do_not_specialize=["t", "batch"])
def mixture_forward_step(
    gates, bias, products, alphas, hs, states, t, batch,
    size: tl.constexpr, CELLS: tl.constexpr, KEEP: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """CELLS LSTM cells that read the same h and c; theirs are summed with weights alphas (T, B, S).

    Gates and products have 4 blocks a cell.
    """
    row, unit, mask = tile(batch, size, ROWS, UNITS)
    at = t.to(tl.int64) * batch + row
    gates += at * (4 * CELLS * size) + unit
    products += row * (4 * CELLS * size) + unit
    alphas += at * CELLS
    at = at * size + unit
    past = load(states + at, mask, gates)
    h, c = tl.zeros_like(past), tl.zeros_like(past)
    for s in tl.static_range(CELLS):
        block = s * 4 * size
        a = load_sums(
            gates + block, None if bias is None else bias + block, products + block,
            unit, size, 4, 4, mask, gates,
        )  # fmt: skip
        a, c_s, h_s, _ = lstm_forward(a, past, 0.0, 0.0, ())
        alpha = load(alphas + s, row < batch, gates)
        h += alpha * h_s
        c += alpha * c_s
        if KEEP:
            store_blocks(gates + block, size, 4, mask, a)
    after = at + batch * size
    tl.store(states + after, c, mask=mask)
    tl.store(hs + after, h.to(hs.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["t", "batch", "steps"])
def mixture_backward_step(
    gates, d_gates, alphas, d_alphas, states, grad_h, grad_state, dh, d_state, t, batch, steps,
    size: tl.constexpr, CELLS: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """As ``backward_step``; d_alphas ``(tiles of units, T, B, S)`` is to be summed over tiles."""
    row, unit, mask = tile(batch, size, ROWS, UNITS)
    at = t.to(tl.int64) * batch + row
    gates_at = at * (4 * CELLS * size) + unit
    alphas += at * CELLS
    d_alphas += (tl.program_id(1).to(tl.int64) * steps * batch + at) * CELLS
    at = at * size + unit
    here = row * size + unit
    past = load(states + at, mask, gates)
    d_h = load_grad(dh + here, grad_h, at, mask, gates)
    d_c = load_grad(d_state + here, grad_state, at, mask, gates)
    d_past = tl.zeros_like(past)
    for s in tl.static_range(CELLS):
        block = gates_at + s * 4 * size
        a = load_blocks(gates + block, size, 4, mask, gates)
        c_s = a[0] * a[2] + a[1] * past
        h_s = a[3] * cells.tanh(c_s)
        d_alpha = tl.sum(d_h * h_s + d_c * c_s, axis=1)[:, None]
        tl.store(d_alphas + s, d_alpha, mask=row < batch)
        alpha = load(alphas + s, row < batch, gates)
        d_a, d_past_s, _, _, _ = lstm_backward(a, past, c_s, 0.0, 0.0, (), alpha * d_h, alpha * d_c)
        store_blocks(d_gates + block, size, 4, mask, d_a)
        d_past += d_past_s
    tl.store(d_state + here, d_past, mask=mask)

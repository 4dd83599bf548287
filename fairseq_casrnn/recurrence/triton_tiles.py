"""One step's elementwise maths on a tile of ROWS rows of the batch and UNITS hidden units.

What the kernels of :mod:`.triton_kernels` (a launch a step) and of :mod:`.triton_sequences` (a
launch a sequence) share. All arithmetic is in the precision of the gates' buffer; tensors of
another are converted as they are read and written.

Shapes: gates ``(T, B, BLOCKS*H)``, bias ``(BLOCKS*H,)``, inner and extra ``(T, B, H)`` (for CELLS
cells extra has their weights, ``(T, B, CELLS)``), rows ``(PARAMS, H)`` (the elementwise
parameters), hs and states ``(T+1, B, H)`` with the initial state first. states is c, or h where
the cell has no c. ``products`` are tiles of the blocks of U h, of which the first ADDED are added
to the gates. ``at`` is t*B + row for the tile's rows, ``inside`` whether a row is in the batch and
``mask`` whether row and unit are within bounds.
"""

from __future__ import annotations

import triton
import triton.language as tl

from . import triton_cells as cells

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
    gates, bias, products, unit, size: tl.constexpr, FIRST: tl.constexpr, BLOCKS: tl.constexpr,
    ADDED: tl.constexpr, mask,
):  # fmt: skip
    """The sums of BLOCKS gates from FIRST on: W x, the bias where it is not in it yet, and U h."""
    sums = ()
    for k in tl.static_range(FIRST, FIRST + BLOCKS):
        a = load(gates + k * size, mask, gates)
        if bias is not None:
            a += load(bias + k * size + unit, unit < size, gates)
        if k < FIRST + ADDED:
            a += products[k]
        sums = sums + (a,)
    return sums


@triton.jit
def tile(batch, size: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr):
    """Rows ``(ROWS, 1)``, units ``(1, UNITS)`` and the mask of this program's tile."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]
    return row, unit, (row < batch) & (unit < size)


@triton.jit
def forward_tile(
    gates, bias, products, inner, extra, p, hs, states, past, at, batch, unit, inside, mask,
    size: tl.constexpr, BLOCKS: tl.constexpr, ADDED: tl.constexpr, CELLS: tl.constexpr,
    KEEP: tl.constexpr, cell: tl.constexpr,
):  # fmt: skip
    """Writes h and the state, which it returns, and, where KEEP, the activated gates over their
    sums and inner."""
    gates += at * (BLOCKS * size) + unit
    here = at * size + unit
    if CELLS > 0:
        # LSTM cells that read the same h and c; theirs are summed with the weights in extra.
        h, state = tl.zeros_like(past), tl.zeros_like(past)
        for s in tl.static_range(CELLS):
            a = load_sums(gates, bias, products, unit, size, 4 * s, 4, 4, mask)
            a, c_s, h_s, _ = lstm_forward(a, past, 0.0, 0.0, ())
            alpha = load(extra + at * CELLS + s, inside, gates)
            h += alpha * h_s
            state += alpha * c_s
            if KEEP:
                store_blocks(gates + 4 * s * size, size, 4, mask, a)
    else:
        a = load_sums(gates, bias, products, unit, size, 0, BLOCKS, ADDED, mask)
        lower, u_h = 0.0, 0.0
        if extra is not None:
            lower = load(extra + here, mask, gates)
        if inner is not None:
            u_h = products[ADDED]
        a, state, h, u_h = cell(a, past, lower, u_h, p)
        if KEEP:
            store_blocks(gates, size, BLOCKS, mask, a)
            if inner is not None:
                tl.store(inner + here, u_h, mask=mask)
    after = here + batch * size
    tl.store(states + after, state, mask=mask)
    tl.store(hs + after, h.to(hs.dtype.element_ty), mask=mask)
    return state


@triton.jit
def backward_tile(
    gates, d_gates, inner, d_products, extra, d_extra, p, d_rows, states, grad_h, grad_state,
    d_h, d_new, at, batch, steps, unit, inside, mask,
    size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr, GRADS: tl.constexpr,
    CELLS: tl.constexpr, UNITS: tl.constexpr, cell: tl.constexpr,
):  # fmt: skip
    """Writes d_gates (which may be gates), d_products (for a cell with inner, the gradient of all
    of U h, ``(T, B, PRODUCTS*H)``) and d_extra; returns the gradient of the state before.

    d_h and d_new are the gradients from the step after, of h through U and of the state; grad_h
    and grad_state ``(T, B, H)`` come from outside, or are None. d_rows ``(tiles of rows, GRADS,
    H)`` collects the parameters' gradients. For CELLS cells d_extra is ``(tiles of units, T, B,
    CELLS)``, to be summed over tiles.
    """
    gates_at = at * (BLOCKS * size) + unit
    here = at * size + unit
    past = load(states + here, mask, gates)
    if grad_h is not None:
        d_h += load(grad_h + here, mask, gates)
    if grad_state is not None:
        d_new += load(grad_state + here, mask, gates)
    if CELLS > 0:
        d_past = tl.zeros_like(past)
        d_alphas = d_extra + (tl.program_id(1).to(tl.int64) * steps * batch + at) * CELLS
        for s in tl.static_range(CELLS):
            block = gates_at + 4 * s * size
            a = load_blocks(gates + block, size, 4, mask, gates)
            c_s = a[0] * a[2] + a[1] * past
            h_s = a[3] * cells.tanh(c_s)
            d_alpha = tl.sum(d_h * h_s + d_new * c_s, axis=1)[:, None]
            tl.store(d_alphas + s, d_alpha, mask=inside)
            alpha = load(extra + at * CELLS + s, inside, gates)
            d_a, d_past_s, _, _, _ = lstm_backward(
                a, past, c_s, 0.0, 0.0, (), alpha * d_h, alpha * d_new
            )
            store_blocks(d_gates + block, size, 4, mask, d_a)
            d_past += d_past_s
    else:
        a = load_blocks(gates + gates_at, size, BLOCKS, mask, gates)
        lower, u_h = 0.0, 0.0
        if extra is not None:
            lower = load(extra + here, mask, gates)
        if inner is not None:
            u_h = load(inner + here, mask, gates)
        new = load(states + here + batch * size, mask, gates)
        d_a, d_past, d_lower, d_inner, d_p = cell(a, past, new, lower, u_h, p, d_h, d_new)
        store_blocks(d_gates + gates_at, size, BLOCKS, mask, d_a)
        if d_extra is not None:
            tl.store(d_extra + here, d_lower.to(d_extra.dtype.element_ty), mask=mask)
        if inner is not None:
            products_at = at * (PRODUCTS * size) + unit
            store_blocks(d_products + products_at, size, PRODUCTS - 1, mask, d_a)
            last = d_products + products_at + (PRODUCTS - 1) * size
            tl.store(last, d_inner.to(d_products.dtype.element_ty), mask=mask)
        if GRADS > 0:
            one = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
            sums = d_rows + tl.program_id(0) * (GRADS * size) + one
            for k in tl.static_range(GRADS):
                total = load(sums + k * size, one < size, gates) + tl.sum(d_p[k], axis=0)
                tl.store(sums + k * size, total, mask=one < size)
    return d_past

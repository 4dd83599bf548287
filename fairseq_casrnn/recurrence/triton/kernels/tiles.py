"""The elementwise part of a step, on a tile of ROWS rows of the batch and UNITS hidden units.

It is shared by the kernels of :mod:`.single_steps` (one launch per step) and :mod:`.sequences` (one
launch per sequence). All arithmetic is in the precision of the gates' buffer; tensors of other
dtypes are converted when they are read or written.

Shapes: gates ``(T, B, BLOCKS*H)``; bias ``(BLOCKS*H,)``; candidate ``(T, B, H)``; side, either c of
the layer below ``(T, B, H)`` or the weights of CELLS cells ``(T, B, CELLS)``; rows ``(PARAMS, H)``,
the elementwise parameters; hs and states ``(T+1, B, H)``, the initial state first. states is
c, or h for a cell without c. ``products`` are tiles of the blocks of U h, of which the first ADDED
are added to the gates. ``at`` is t*B + row for the rows of the tile, ``inside`` whether a row is in
the batch, and ``mask`` whether row and unit are within bounds.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....cells.stacked_lstm.triton import backward as lstm_backward
from ....cells.stacked_lstm.triton import forward as lstm_forward
from ....cells.triton_base import tanh
from ..plan import GIVEN

LAST, GRAD_H, GRAD_C = (tl.constexpr(bit) for bit in GIVEN[:3])
GRAD_HN, GRAD_CN = (tl.constexpr(bit) for bit in GIVEN[3:])


@triton.jit
def load(pointer, mask, like):
    """The tile at ``pointer`` in the precision of ``like``; 0 outside ``mask``."""
    return tl.load(pointer, mask=mask, other=0.0).to(like.dtype.element_ty)


@triton.jit
def load_blocks(pointer, size: tl.constexpr, COUNT: tl.constexpr, mask, like):
    """A tuple of COUNT tiles that are ``size`` elements apart."""
    tiles = ()
    for k in tl.static_range(COUNT):
        tiles = tiles + (load(pointer + k * size, mask, like),)
    return tiles


@triton.jit
def store_blocks(pointer, size: tl.constexpr, COUNT: tl.constexpr, mask, tiles):
    """The inverse of :func:`load_blocks`."""
    for k in tl.static_range(COUNT):
        tl.store(pointer + k * size, tiles[k].to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def zeros(like, COUNT: tl.constexpr):
    """A tuple of COUNT tiles of zeros."""
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles = tiles + (tl.zeros_like(like),)
    return tiles


@triton.jit
def tile(index, batch, unit, size: tl.constexpr, ROWS: tl.constexpr):
    """Rows ``(ROWS, 1)`` of tile ``index``, whether they are in the batch, and the mask."""
    row = index * ROWS + tl.arange(0, ROWS)[:, None]
    return row, row < batch, (row < batch) & (unit < size)


@triton.jit
def load_side(
    gates, side, at, unit, inside, mask, size: tl.constexpr, shape: tl.constexpr
):  # fmt: skip
    """The step's part of ``side`` as a tuple: a tile of c of the layer below (0 if the cell does
    not read it), or the weights ``(ROWS, 1)`` of CELLS cells."""
    if shape.CELLS > 0:
        others = load_blocks(side + at * shape.CELLS, 1, shape.CELLS, inside, gates)
    elif side is not None:
        others = (load(side + at * size + unit, mask, gates),)
    else:
        others = (tl.zeros_like(mask).to(gates.dtype.element_ty),)
    return others


@triton.jit
def load_inputs(
    gates, bias, side, at, unit, inside, mask, size: tl.constexpr, shape: tl.constexpr
):  # fmt: skip
    """W x + b of the gates, block by block, and the result of :func:`load_side`."""
    sums = ()
    for k in tl.static_range(shape.BLOCKS):
        a = load(gates + at * (shape.BLOCKS * size) + k * size + unit, mask, gates)
        if bias is not None:  # gates do not include it
            a += load(bias + k * size + unit, unit < size, gates)
        sums = sums + (a,)
    return sums, load_side(gates, side, at, unit, inside, mask, size, shape)


@triton.jit
def load_saved(
    gates, states, candidate, side, at, unit, inside, mask, size: tl.constexpr,
    shape: tl.constexpr,
):  # fmt: skip
    """What the forward saved of a step: activated gates, the previous state, the result of
    :func:`load_side`, and candidate (0 if there is none)."""
    a = load_blocks(gates + at * (shape.BLOCKS * size) + unit, size, shape.BLOCKS, mask, gates)
    prev = load(states + at * size + unit, mask, gates)
    u_h = tl.zeros_like(prev)
    if candidate is not None:
        u_h = load(candidate + at * size + unit, mask, gates)
    return a, prev, load_side(gates, side, at, unit, inside, mask, size, shape), u_h


@triton.jit
def load_last(last, given, steps, row, inside):
    """The index of each row's last step, ``(ROWS, 1)``."""
    found = tl.load(last + row, mask=inside & ((given & LAST) != 0), other=0)
    return tl.where((given & LAST) != 0, found, (steps - 1).to(tl.int64))


@triton.jit
def load_gradients(
    gates, grad_h, grad_c, grad_hn, grad_cn, given, t, last, at, row, unit, mask,
    size: tl.constexpr,
):  # fmt: skip
    """Incoming gradients of h and c at step t, and of h_n and c_n at a row's last step."""
    offset, final = at * size + unit, mask & (last == t)
    d_h = load(grad_h + offset, mask & ((given & GRAD_H) != 0), gates)
    d_c = load(grad_c + offset, mask & ((given & GRAD_C) != 0), gates)
    offset = row * size + unit
    d_h += load(grad_hn + offset, final & ((given & GRAD_HN) != 0), gates)
    d_c += load(grad_cn + offset, final & ((given & GRAD_CN) != 0), gates)
    return d_h, d_c


@triton.jit
def store_sums(d_rows, d_p, index, unit, size: tl.constexpr, shape: tl.constexpr):
    """Add the tiles ``d_p``, summed over rows, to ``d_rows[index]`` (GRADS, H)."""
    for k in tl.static_range(shape.GRADS):
        at = d_rows + (index * shape.GRADS + k) * size + unit
        total = load(at, unit < size, d_rows) + tl.sum(d_p[k], axis=0)[None, :]
        tl.store(at, total, mask=unit < size)


@triton.jit
def cell_gates(tiles, s: tl.constexpr):
    """The four gates of cell s of a mixture of LSTM cells."""
    return tiles[4 * s], tiles[4 * s + 1], tiles[4 * s + 2], tiles[4 * s + 3]


@triton.jit
def forward_tile(sums, others, products, prev, p, shape: tl.constexpr, cell: tl.constexpr):
    """The cell's step; ``sums`` and ``others`` are the results of :func:`load_inputs`.

    Returns:
        The activated gates, candidate as the backward reads it, the new state, and h.
    """
    CELLS: tl.constexpr = shape.CELLS
    a = ()
    for k in tl.static_range(shape.BLOCKS):
        total = sums[k]
        if k < shape.ADDED:
            total += products[k]
        a = a + (total,)
    u_h = tl.zeros_like(prev)
    if CELLS > 0:
        # LSTM cells that read the same h and c, and whose results are summed with weights.
        gates = ()
        h, state = tl.zeros_like(prev), tl.zeros_like(prev)
        for s in tl.static_range(CELLS):
            gates_s, c_s, h_s, _ = lstm_forward(cell_gates(a, s), prev, 0.0, 0.0, ())
            h += others[s] * h_s
            state += others[s] * c_s
            gates = gates + gates_s
    else:
        if shape.ADDED < shape.PRODUCTS:
            u_h = products[shape.ADDED]
        gates, state, h, u_h = cell(a, prev, others[0], u_h, p)
    return gates, u_h, state, h


@triton.jit
def store_last(h_n, c_n, h, state, t, last, row, unit, mask, size: tl.constexpr):
    """Writes h_n and c_n ``(B, H)`` for rows whose last step is t; c_n is None without c."""
    offset, mask = row * size + unit, mask & (last == t)
    tl.store(h_n + offset, h.to(h_n.dtype.element_ty), mask=mask)
    if c_n is not None:
        tl.store(c_n + offset, state.to(c_n.dtype.element_ty), mask=mask)


@triton.jit
def store_saved(
    gates, candidate, states, a, u_h, state, at, batch, unit, mask, size: tl.constexpr,
    shape: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Writes the new state and, if KEEP, the activated gates (over their inputs) and candidate."""
    offset = at * size + unit
    tl.store(states + offset + batch * size, state, mask=mask)
    if KEEP:
        store_blocks(gates + at * (shape.BLOCKS * size) + unit, size, shape.BLOCKS, mask, a)
        if candidate is not None:
            tl.store(candidate + offset, u_h, mask=mask)


@triton.jit
def backward_tile(
    saved, new, d_h, d_new, p, d_p, shape: tl.constexpr, cell: tl.constexpr
):  # fmt: skip
    """The backward of a step.

    ``saved`` is the result of :func:`load_saved`, ``new`` the state after the step; d_h and d_new
    are the complete gradients of h and of that state.

    Returns:
        The gradients of the pre-activations, of candidate, of the result of :func:`load_side` and
        of the previous state; and ``d_p``, to which the gradients of GRADS parameters are added.
    """
    CELLS: tl.constexpr = shape.CELLS
    a, prev, others, u_h = saved
    if CELLS > 0:
        d_gates, d_others = (), ()
        d_prev, d_candidate = tl.zeros_like(prev), 0.0
        for s in tl.static_range(CELLS):
            gates_s = cell_gates(a, s)
            c_s = gates_s[0] * gates_s[2] + gates_s[1] * prev
            h_s = gates_s[3] * tanh(c_s)
            d_others = d_others + (tl.sum(d_h * h_s + d_new * c_s, axis=1)[:, None],)
            d_a, d_prev_s, _, _, _ = lstm_backward(
                gates_s, prev, c_s, 0.0, 0.0, (), others[s] * d_h, others[s] * d_new
            )
            d_gates = d_gates + d_a
            d_prev += d_prev_s
    else:
        d_gates, d_prev, d_lower, d_candidate, d_p_step = cell(
            a, prev, new, others[0], u_h, p, d_h, d_new
        )
        d_others = (d_lower,)
        sums = ()
        for k in tl.static_range(shape.GRADS):
            sums = sums + (d_p[k] + d_p_step[k],)
        d_p = sums
    return d_gates, d_candidate, d_others, d_prev, d_p


@triton.jit
def store_products(
    d_gates, candidate, d_products, d_a, d_candidate, at, unit, mask, size: tl.constexpr,
    shape: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of U h, which the previous step multiplies by U: to d_gates, or for a
    cell with candidate to d_products ``(T, B, PRODUCTS*H)``."""
    if candidate is None:
        store_blocks(d_gates + at * (shape.BLOCKS * size) + unit, size, shape.BLOCKS, mask, d_a)
    else:
        pointer = d_products + at * (shape.PRODUCTS * size) + unit
        store_blocks(pointer, size, shape.PRODUCTS - 1, mask, d_a)
        last = d_candidate.to(d_products.dtype.element_ty)
        tl.store(pointer + (shape.PRODUCTS - 1) * size, last, mask=mask)


@triton.jit
def store_rest(
    d_gates, candidate, d_side, d_a, d_others, at, batch, steps, unit, inside, mask,
    size: tl.constexpr, shape: tl.constexpr,
):  # fmt: skip
    """Writes the gradients that no other program reads.

    For CELLS cells, d_side is ``(tiles of units, T, B, CELLS)``, to be summed over tiles.
    """
    if candidate is not None:
        store_blocks(d_gates + at * (shape.BLOCKS * size) + unit, size, shape.BLOCKS, mask, d_a)
    if shape.CELLS > 0:
        d_alphas = d_side + (tl.program_id(1).to(tl.int64) * steps * batch + at) * shape.CELLS
        store_blocks(d_alphas, 1, shape.CELLS, inside, d_others)
    elif d_side is not None:
        d_lower = d_others[0].to(d_side.dtype.element_ty)
        tl.store(d_side + at * size + unit, d_lower, mask=mask)

"""One step's elementwise maths on a tile of ROWS rows of the batch and UNITS hidden units.

It is shared by the kernels of :mod:`.single_steps` (one launch per step) and of
:mod:`.sequences` (one launch per sequence). All arithmetic is in the precision of the gates'
buffer; tensors of other dtypes are converted as they are read and written.

Shapes: gates ``(T, B, BLOCKS*H)``, bias ``(BLOCKS*H,)``, candidate and side ``(T, B, H)`` (for a
mixture of CELLS cells, side has their weights, ``(T, B, CELLS)``), rows ``(PARAMS, H)`` (the
elementwise parameters), hs and states ``(T+1, B, H)`` with the initial state first. states is c, or
h for a cell without c. ``products`` are tiles of the blocks of U h, of which the first ADDED are
added to the gates. ``at`` is t*B + row for the tile's rows, ``inside`` whether a row is in the
batch, and ``mask`` whether row and unit are within bounds.
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
    """The inverse of ``load_blocks``."""
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
def load_others(
    gates, side, at, unit, inside, mask, size: tl.constexpr, CELLS: tl.constexpr
):  # fmt: skip
    """A tuple of what the step reads besides its gates: a tile of the layer below (0 if the cell
    reads none), or the weights ``(ROWS, 1)`` of CELLS cells."""
    if CELLS > 0:
        others = load_blocks(side + at * CELLS, 1, CELLS, inside, gates)
    elif side is not None:
        others = (load(side + at * size + unit, mask, gates),)
    else:
        others = (tl.zeros_like(mask).to(gates.dtype.element_ty),)
    return others


@triton.jit
def load_inputs(
    gates, bias, side, at, unit, inside, mask, size: tl.constexpr, BLOCKS: tl.constexpr,
    CELLS: tl.constexpr,
):  # fmt: skip
    """W x + b of the gates, block by block, and what :func:`load_others` returns."""
    sums = ()
    for k in tl.static_range(BLOCKS):
        a = load(gates + at * (BLOCKS * size) + k * size + unit, mask, gates)
        if bias is not None:  # gates are without it
            a += load(bias + k * size + unit, unit < size, gates)
        sums = sums + (a,)
    return sums, load_others(gates, side, at, unit, inside, mask, size, CELLS)


@triton.jit
def load_saved(
    gates, states, candidate, side, at, unit, inside, mask, size: tl.constexpr,
    BLOCKS: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    """Of a step of the forward: activated gates, the state before it, what :func:`load_others`
    returns, and candidate (0 if there is none)."""
    a = load_blocks(gates + at * (BLOCKS * size) + unit, size, BLOCKS, mask, gates)
    past = load(states + at * size + unit, mask, gates)
    u_h = tl.zeros_like(past)
    if candidate is not None:
        u_h = load(candidate + at * size + unit, mask, gates)
    return a, past, load_others(gates, side, at, unit, inside, mask, size, CELLS), u_h


@triton.jit
def load_last(last, given, steps, row, inside):
    """Each row's last step ``(ROWS, 1)``."""
    found = tl.load(last + row, mask=inside & ((given & LAST) != 0), other=0)
    return tl.where((given & LAST) != 0, found, (steps - 1).to(tl.int64))


@triton.jit
def load_gradients(
    gates, grad_h, grad_c, grad_hn, grad_cn, given, t, last, at, row, unit, mask,
    size: tl.constexpr,
):  # fmt: skip
    """Incoming gradients of step t's h and c, with those of h_n and c_n in a row's last step."""
    here, final = at * size + unit, mask & (last == t)
    d_h = load(grad_h + here, mask & ((given & GRAD_H) != 0), gates)
    d_c = load(grad_c + here, mask & ((given & GRAD_C) != 0), gates)
    here = row * size + unit
    d_h += load(grad_hn + here, final & ((given & GRAD_HN) != 0), gates)
    d_c += load(grad_cn + here, final & ((given & GRAD_CN) != 0), gates)
    return d_h, d_c


@triton.jit
def store_sums(d_rows, d_p, index, unit, size: tl.constexpr, GRADS: tl.constexpr):
    """Add the tiles d_p, summed over rows, to ``d_rows[index]``, ``(GRADS, H)``."""
    for k in tl.static_range(GRADS):
        at = d_rows + (index * GRADS + k) * size + unit
        total = load(at, unit < size, d_rows) + tl.sum(d_p[k], axis=0)[None, :]
        tl.store(at, total, mask=unit < size)


@triton.jit
def four_of(tiles, s: tl.constexpr):
    """The gates of cell s of a mixture of LSTM cells."""
    return tiles[4 * s], tiles[4 * s + 1], tiles[4 * s + 2], tiles[4 * s + 3]


@triton.jit
def forward_tile(
    sums, others, products, past, p,
    BLOCKS: tl.constexpr, ADDED: tl.constexpr, CANDIDATE: tl.constexpr, CELLS: tl.constexpr,
    cell: tl.constexpr,
):  # fmt: skip
    """The cell's step; ``sums`` and ``others`` are what :func:`load_inputs` returns.

    Returns:
        The activated gates, candidate as the backward reads it, the state and h.
    """
    a = ()
    for k in tl.static_range(BLOCKS):
        total = sums[k]
        if k < ADDED:
            total += products[k]
        a = a + (total,)
    u_h = tl.zeros_like(past)
    if CELLS > 0:
        # LSTM cells with the same h and c before the step; what they compute is summed by weights.
        gates = ()
        h, state = tl.zeros_like(past), tl.zeros_like(past)
        for s in tl.static_range(CELLS):
            four, c_s, h_s, _ = lstm_forward(four_of(a, s), past, 0.0, 0.0, ())
            h += others[s] * h_s
            state += others[s] * c_s
            gates = gates + four
    else:
        if CANDIDATE:
            u_h = products[ADDED]
        gates, state, h, u_h = cell(a, past, others[0], u_h, p)
    return gates, u_h, state, h


@triton.jit
def store_last(h_n, c_n, h, state, t, last, row, unit, mask, size: tl.constexpr):
    """Writes h and c of rows whose last step is t, ``(B, H)``; c_n is None for a cell without c."""
    here, mask = row * size + unit, mask & (last == t)
    tl.store(h_n + here, h.to(h_n.dtype.element_ty), mask=mask)
    if c_n is not None:
        tl.store(c_n + here, state.to(c_n.dtype.element_ty), mask=mask)


@triton.jit
def store_saved(
    gates, candidate, states, a, u_h, state, at, batch, unit, mask, size: tl.constexpr,
    BLOCKS: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Writes the state and, if KEEP, the activated gates (over their inputs) and candidate."""
    here = at * size + unit
    tl.store(states + here + batch * size, state, mask=mask)
    if KEEP:
        store_blocks(gates + at * (BLOCKS * size) + unit, size, BLOCKS, mask, a)
        if candidate is not None:
            tl.store(candidate + here, u_h, mask=mask)


@triton.jit
def backward_tile(
    saved, new, d_h, d_new, p, d_p, GRADS: tl.constexpr, CELLS: tl.constexpr, cell: tl.constexpr
):  # fmt: skip
    """The step's backward. ``saved`` is what :func:`load_saved` returns, ``new`` the state after
    the step; d_h and d_new are the complete gradients of h and of that state.

    Returns:
        The gradients of the pre-activations, of candidate, of what :func:`load_others` returns and
        of the state before; and ``d_p``, with the gradients of GRADS parameters added.
    """
    a, past, others, u_h = saved
    if CELLS > 0:
        d_gates, d_others = (), ()
        d_past, d_candidate = tl.zeros_like(past), 0.0
        for s in tl.static_range(CELLS):
            four = four_of(a, s)
            c_s = four[0] * four[2] + four[1] * past
            h_s = four[3] * tanh(c_s)
            d_others = d_others + (tl.sum(d_h * h_s + d_new * c_s, axis=1)[:, None],)
            d_a, d_past_s, _, _, _ = lstm_backward(
                four, past, c_s, 0.0, 0.0, (), others[s] * d_h, others[s] * d_new
            )
            d_gates = d_gates + d_a
            d_past += d_past_s
    else:
        d_gates, d_past, d_lower, d_candidate, d_here = cell(
            a, past, new, others[0], u_h, p, d_h, d_new
        )
        d_others = (d_lower,)
        sums = ()
        for k in tl.static_range(GRADS):
            sums = sums + (d_p[k] + d_here[k],)
        d_p = sums
    return d_gates, d_candidate, d_others, d_past, d_p


@triton.jit
def store_products(
    d_gates, candidate, d_products, d_a, d_candidate, at, unit, mask, size: tl.constexpr,
    BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of U h, which the step before multiplies: to d_gates, or for a cell with
    candidate to d_products ``(T, B, PRODUCTS*H)``."""
    if candidate is None:
        store_blocks(d_gates + at * (BLOCKS * size) + unit, size, BLOCKS, mask, d_a)
    else:
        to = d_products + at * (PRODUCTS * size) + unit
        store_blocks(to, size, PRODUCTS - 1, mask, d_a)
        last = d_candidate.to(d_products.dtype.element_ty)
        tl.store(to + (PRODUCTS - 1) * size, last, mask=mask)


@triton.jit
def store_rest(
    d_gates, candidate, d_side, d_a, d_others, at, batch, steps, unit, inside, mask,
    size: tl.constexpr, BLOCKS: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    """Writes the gradients that no other program reads. For CELLS cells d_side is ``(tiles of
    units, T, B, CELLS)``, to be summed over tiles."""
    if candidate is not None:
        store_blocks(d_gates + at * (BLOCKS * size) + unit, size, BLOCKS, mask, d_a)
    if CELLS > 0:
        d_alphas = d_side + (tl.program_id(1).to(tl.int64) * steps * batch + at) * CELLS
        store_blocks(d_alphas, 1, CELLS, inside, d_others)
    elif d_side is not None:
        d_lower = d_others[0].to(d_side.dtype.element_ty)
        tl.store(d_side + at * size + unit, d_lower, mask=mask)

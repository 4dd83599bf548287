"""One decoder layer at one step on a tile of rows and units, for the kernels of :mod:`.decoder`.

Pointers refer to the first row of the step; ``row`` ``(ROWS, 1)`` and ``unit`` ``(1, UNITS)`` are
the indices of the tile. Shapes, with B rows and H units: x, h ``(B, H)``; state ``(B, H)``, which
is c, or h for a cell without c; gates ``(B, BLOCKS*H)``; candidate ``(B, H)``, the block of U h
that is not added to the gates; lower ``(B, H)``, c of the layer below; mixture ``(B, CELLS)``, the
weights of CELLS cells. See :mod:`..cells.triton_base`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....cells.stacked_lstm.triton import backward as lstm_backward
from ....cells.stacked_lstm.triton import forward as lstm_forward
from ....cells.triton_base import tanh
from .decoder_products import accumulate, multiply_back, multiply_both
from .tiles import load, load_blocks, store_blocks


@triton.jit
def column(tile, ways, index):
    """Column ``index`` of ``tile``, as ``(ROWS, 1)``; ``ways`` are the indices of its columns."""
    return tl.sum(tl.where(ways == index, tile, 0.0), axis=1)[:, None]


@triton.jit
def mixture_weights(
    x, has_x, attention, routed, temperature, inside, ways, like, stride: tl.constexpr,
    size: tl.constexpr, CELLS: tl.constexpr, WAYS: tl.constexpr, tiles: tl.constexpr,
    FEED: tl.constexpr,
):  # fmt: skip
    """Weights ``(ROWS, WAYS)`` of the mixture's cells, from rows ``x`` and scores ``routed``.

    They are a softmax at ``temperature``, or one-hot at the highest score if that is None.
    """
    wide = like.dtype.element_ty
    scores = tl.zeros((tiles.ROWS, WAYS), wide)
    if FEED:
        scores = accumulate(scores, x, has_x, attention, ways, CELLS, stride, size, tiles)
    if routed is not None:
        scores += tl.load(routed + ways, mask=inside & (ways < CELLS), other=0.0).to(wide)
    scores = tl.where(ways < CELLS, scores, float("-inf"))
    if temperature is None:
        weights = tl.where(ways == tl.argmax(scores, axis=1)[:, None], 1.0, 0.0).to(wide)
    else:
        e = tl.exp((scores - tl.max(scores, axis=1)[:, None]) / tl.load(temperature).to(wide))
        weights = e / tl.sum(e, axis=1)[:, None]
    return weights


@triton.jit
def mixture_scores_grad(
    parts, mixture, temperature, row, inside, ways, batch, like, CELLS: tl.constexpr,
    ROWS: tl.constexpr, WAYS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Gradients ``(ROWS, WAYS)`` of a mixture's scores, from partial gradients of its weights.

    parts is ``(PARTS, B, CELLS)``: each program with these rows has written the part of its units.
    """
    mask = inside & (ways < CELLS)
    d_alpha = tl.zeros((ROWS, WAYS), like.dtype.element_ty)
    for part in range(PARTS):
        at = parts + (part * batch + row) * CELLS + ways
        d_alpha += tl.load(at, mask=mask, other=0.0, cache_modifier=".cg")
    alpha = tl.load(mixture + row * CELLS + ways, mask=mask, other=0.0, cache_modifier=".cg")
    d = alpha * (d_alpha - tl.sum(alpha * d_alpha, axis=1)[:, None])
    return d / tl.load(temperature).to(like.dtype.element_ty)


@triton.jit
def layer_forward(
    x, x_rows, h, state, w_ih, w_hh, gx, bias, rows, gates, candidate, lower, attention, routed,
    mixture, temperature, new_h, new_state, drop, up, goes_up, first, row, unit, batch, layer, at,
    up_at,
    stride: tl.constexpr, size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr,
    ADDED: tl.constexpr, PARAMS: tl.constexpr, CELLS: tl.constexpr, cell: tl.constexpr,
    WAYS: tl.constexpr, tiles: tl.constexpr, FEED: tl.constexpr,
):  # fmt: skip
    """Writes h, the state, h after dropout (``up``), and activated gates and candidate if wanted.

    Pre-activations start from ``gx`` (T, B, BLOCKS*H) or from ``bias``. Only the first ``x_rows``
    rows of x are read, and none without FEED. ``goes_up`` tells whether a layer above reads h.
    ``first`` is the first row of the tile, ``layer`` the index into the stacked parameters. The
    rows of the step start at ``at``, in drop and up at ``up_at``.
    """
    inside, mask = row < batch, (row < batch) & (unit < size)
    offset = row * size + unit
    prev = load(state + offset, mask, new_state)
    zero = tl.zeros((tiles.ROWS, tiles.UNITS), new_state.dtype.element_ty)
    dropped = zero
    above = (up_at + row) * size + unit
    if drop is not None:
        dropped = load(drop + above, mask & goes_up, new_state)
    saved_row = at + row
    has_x = row < x_rows
    column_0 = tl.program_id(1) * tiles.UNITS
    w_ih += layer * (BLOCKS * size * size)
    w_hh += layer * (PRODUCTS * size * size)
    if CELLS > 0:
        ways = tl.arange(0, WAYS)[None, :]
        if attention is not None:
            attention += layer * (CELLS * size)
        if routed is not None:
            routed += saved_row * CELLS
        weights = mixture_weights(
            x + row * size, has_x, attention, routed, temperature, inside, ways, new_state,
            stride, size, CELLS, WAYS, tiles, FEED,
        )  # fmt: skip
        if mixture is not None:
            writes = inside & (ways < CELLS) & (tl.program_id(1) == 0)
            tl.store(mixture + saved_row * CELLS + ways, weights, mask=writes)
        h_out, state_out = zero, zero
        for s in range(CELLS):
            block = 4 * s * size
            sums = initial_sums(
                gx, bias, layer, block, saved_row, unit, mask, zero, size, BLOCKS, 4
            )
            sums, _ = multiply_both(
                sums, (), x, x_rows, h, first, batch, w_ih + block * stride, w_hh + block * size,
                column_0, stride, size, 4, 4, 4, tiles, FEED,
            )  # fmt: skip
            a, c_s, h_s, _ = lstm_forward(sums, prev, 0.0, 0.0, ())
            alpha = column(weights, ways, s)
            h_out += alpha * h_s
            state_out += alpha * c_s
            if gates is not None:
                store_blocks(gates + saved_row * (BLOCKS * size) + block + unit, size, 4, mask, a)
    else:
        p = load_blocks(rows + layer * (PARAMS * size) + unit, size, PARAMS, unit < size, new_state)
        sums = initial_sums(gx, bias, layer, 0, saved_row, unit, mask, zero, size, BLOCKS, BLOCKS)
        below, u_h, parts = 0.0, 0.0, ()
        if lower is not None:
            below = load(lower + offset, mask, new_state)
        if ADDED < PRODUCTS:
            parts = (zero,)
        a, parts = multiply_both(
            sums, parts, x, x_rows, h, first, batch, w_ih, w_hh, column_0, stride, size,
            BLOCKS, PRODUCTS, ADDED, tiles, FEED,
        )  # fmt: skip
        if ADDED < PRODUCTS:
            u_h = parts[0]
        a, state_out, h_out, u_h = cell(a, prev, below, u_h, p)
        if gates is not None:
            store_blocks(gates + saved_row * (BLOCKS * size) + unit, size, BLOCKS, mask, a)
            if ADDED < PRODUCTS:
                tl.store(candidate + saved_row * size + unit, u_h, mask=mask)
    tl.store(new_state + offset, state_out, mask=mask)
    tl.store(new_h + offset, h_out.to(new_h.dtype.element_ty), mask=mask)
    if drop is not None:
        h_out = h_out.to(new_h.dtype.element_ty).to(zero.dtype) * dropped
        tl.store(up + above, h_out.to(up.dtype.element_ty), mask=mask & goes_up)


@triton.jit
def initial_sums(
    gx, bias, layer, block, row, unit, mask, zero, size: tl.constexpr, BLOCKS: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """COUNT blocks of pre-activations, from column ``block`` on, before products are added."""
    sums = ()
    for k in tl.static_range(COUNT):
        at = block + k * size + unit
        if gx is not None:
            sums = sums + (tl.load(gx + row * (BLOCKS * size) + at, mask=mask, other=0.0)
                           .to(zero.dtype),)  # fmt: skip
        else:
            b = tl.load(bias + layer * (BLOCKS * size) + at, mask=unit < size, other=0.0)
            sums = sums + (zero + b.to(zero.dtype),)
    return sums


@triton.jit
def layer_backward(
    d_h, gates, d_gates, d_products, w_hh, rows, d_rows, candidate, lower, d_lower,
    mixture, d_mixture, state, new_state, d_state, first, row, unit, batch, last, step,
    PARTS: tl.constexpr, size: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr,
    ADDED: tl.constexpr, PARAMS: tl.constexpr, GRADS: tl.constexpr, CELLS: tl.constexpr,
    cell: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of the pre-activations, and that of the previous state to ``d_state``.

    ``first`` is the first row of the tile; the rows of the step start at ``step``. d_h is the
    gradient of h from above. Unless this is the ``last`` step, the gradient through the next step's
    U h is added to it. The gradient of c of the layer below is added to d_lower, that of
    elementwise parameters to d_rows ``(PARAMS, H)``. d_mixture ``(T, PARTS, B, CELLS)`` gets the
    partial gradient of the mixture's weights from these units.
    """
    inside, mask = row < batch, (row < batch) & (unit < size)
    offset = row * size + unit
    width: tl.constexpr = (BLOCKS if ADDED == PRODUCTS else PRODUCTS) * size
    prev = load(state + offset, mask, d_state)
    d_new = load(d_state + offset, mask, d_state)
    saved_row = step + row
    at = saved_row * (BLOCKS * size) + unit
    a, new, below, u_h, p = (), prev, 0.0, 0.0, ()
    if CELLS == 0:
        p = load_blocks(rows + unit, size, PARAMS, unit < size, d_state)
        a = load_blocks(gates + at, size, BLOCKS, mask, d_state)
        new = load(new_state + offset, mask, d_state)
        if lower is not None:
            below = load(lower + offset, mask, d_state)
        if ADDED < PRODUCTS:
            u_h = load(candidate + saved_row * size + unit, mask, d_state)
    d_h += multiply_back(
        d_products + (step + batch) * width, first, tl.where(last == 0, batch, 0), w_hh,
        tl.program_id(1) * tiles.UNITS, width, size, size, PRODUCTS * size, tiles, d_h.dtype,
    )  # fmt: skip
    if CELLS > 0:
        parts = (step * PARTS + tl.program_id(1) * batch + row) * CELLS
        d_prev = tl.zeros_like(prev)
        for s in range(CELLS):
            block = 4 * s * size
            a_s = load_blocks(gates + at + block, size, 4, mask, d_state)
            c_s = a_s[0] * a_s[2] + a_s[1] * prev
            h_s = a_s[3] * tanh(c_s)
            d_alpha = tl.sum(d_h * h_s + d_new * c_s, axis=1)[:, None]
            if d_mixture is not None:
                tl.store(d_mixture + parts + s, d_alpha, mask=inside)
            alpha = tl.load(mixture + saved_row * CELLS + s, mask=inside, other=0.0)
            d_a, d_prev_s, _, _, _ = lstm_backward(
                a_s, prev, c_s, 0.0, 0.0, (), alpha * d_h, alpha * d_new
            )
            store_blocks(d_gates + at + block, size, 4, mask, d_a)
            d_prev += d_prev_s
    else:
        d_a, d_prev, d_below, d_candidate, d_p = cell(a, prev, new, below, u_h, p, d_h, d_new)
        store_blocks(d_gates + at, size, BLOCKS, mask, d_a)
        if ADDED < PRODUCTS:
            products_at = d_products + saved_row * width + unit
            store_blocks(products_at, size, ADDED, mask, d_a)
            tl.store(
                products_at + ADDED * size, d_candidate.to(d_products.dtype.element_ty), mask=mask
            )
        if d_lower is not None:
            d_lower_sum = load(d_lower + offset, mask, d_state)
            tl.store(d_lower + offset, d_lower_sum + d_below, mask=mask)
        if GRADS > 0:
            unit_index = tl.program_id(1) * tiles.UNITS + tl.arange(0, tiles.UNITS)
            for k in tl.static_range(GRADS):
                total = load(d_rows + k * size + unit_index, unit_index < size, d_state)
                tl.store(
                    d_rows + k * size + unit_index,
                    total + tl.sum(d_p[k], axis=0),
                    mask=unit_index < size,
                )
    tl.store(d_state + offset, d_prev, mask=mask)

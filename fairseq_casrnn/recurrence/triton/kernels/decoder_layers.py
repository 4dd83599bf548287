"""One decoder layer at one step on a tile of rows and units, for the kernels of :mod:`.decoder`.

Pointers refer to the first row of the step; ``row`` ``(ROWS, 1)`` and ``unit`` ``(1, UNITS)`` are
the indices of the tile. ``weights``, ``kept`` and ``grads`` are those of the bottom layer or of
all upper layers, :class:`..decoder_loop.LayerWeights`, ``LayerKept`` and ``LayerGrads``, and
``layer`` the index among the upper layers, or 0; ``shape`` is :class:`..plan.CellShape`. Shapes,
with B rows and H units: x, h ``(B, H)``; state ``(B, H)``, which is c, or h for a cell without c;
lower ``(B, H)``, c of the layer below. See :mod:`..cells.triton_base`.
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
    weights, kept, gx, routed, x, x_rows, h, state, lower, temperature, new_h, new_state, drop, up,
    goes_up, first, row, unit, batch, layer, at, up_at, stride: tl.constexpr, size: tl.constexpr,
    shape: tl.constexpr, cell: tl.constexpr, WAYS: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """Writes h, the state, h after dropout (``up``), and what is ``kept`` for the backward.

    Pre-activations start from ``gx`` (T, B, BLOCKS*H) or from the bias. Only the first ``x_rows``
    rows of x are read, and none if W is None. ``goes_up`` tells whether a layer above reads h.
    ``first`` is the first row of the tile. The rows of the step start at ``at``, in drop and up at
    ``up_at``. Rows of W are ``stride`` apart.
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
    w_hh = weights.w_hh + layer * (shape.PRODUCTS * size * size)
    FEED: tl.constexpr = weights.w_ih is not None
    w_ih = w_hh  # without FEED it is not read
    if FEED:
        w_ih = weights.w_ih + layer * (shape.BLOCKS * size * size)
    if shape.CELLS > 0:
        ways = tl.arange(0, WAYS)[None, :]
        attention = weights.attention
        if attention is not None:
            attention += layer * (shape.CELLS * size)
        if routed is not None:
            routed += saved_row * shape.CELLS
        alphas = mixture_weights(
            x + row * size, has_x, attention, routed, temperature, inside, ways, new_state,
            stride, size, shape.CELLS, WAYS, tiles, FEED,
        )  # fmt: skip
        if kept.mixture is not None:
            writes = inside & (ways < shape.CELLS) & (tl.program_id(1) == 0)
            tl.store(kept.mixture + saved_row * shape.CELLS + ways, alphas, mask=writes)
        h_out, state_out = zero, zero
        for s in range(shape.CELLS):
            block = 4 * s * size
            sums = initial_sums(
                gx, weights.bias, layer, block, saved_row, unit, mask, zero, size, shape.BLOCKS, 4
            )
            sums, _ = multiply_both(
                sums, (), x, x_rows, h, first, batch, w_ih + block * stride, w_hh + block * size,
                column_0, stride, size, 4, 4, 4, tiles, FEED,
            )  # fmt: skip
            a, c_s, h_s, _ = lstm_forward(sums, prev, 0.0, 0.0, ())
            alpha = column(alphas, ways, s)
            h_out += alpha * h_s
            state_out += alpha * c_s
            if kept.gates is not None:
                gates_at = kept.gates + saved_row * (shape.BLOCKS * size) + block + unit
                store_blocks(gates_at, size, 4, mask, a)
    else:
        p = load_blocks(
            weights.rows + layer * (shape.PARAMS * size) + unit, size, shape.PARAMS, unit < size,
            new_state,
        )  # fmt: skip
        sums = initial_sums(
            gx, weights.bias, layer, 0, saved_row, unit, mask, zero, size, shape.BLOCKS,
            shape.BLOCKS,
        )  # fmt: skip
        below, u_h, parts = 0.0, 0.0, ()
        if lower is not None:
            below = load(lower + offset, mask, new_state)
        if shape.ADDED < shape.PRODUCTS:
            parts = (zero,)
        a, parts = multiply_both(
            sums, parts, x, x_rows, h, first, batch, w_ih, w_hh, column_0, stride, size,
            shape.BLOCKS, shape.PRODUCTS, shape.ADDED, tiles, FEED,
        )  # fmt: skip
        if shape.ADDED < shape.PRODUCTS:
            u_h = parts[0]
        a, state_out, h_out, u_h = cell(a, prev, below, u_h, p)
        if kept.gates is not None:
            gates_at = kept.gates + saved_row * (shape.BLOCKS * size) + unit
            store_blocks(gates_at, size, shape.BLOCKS, mask, a)
            if shape.ADDED < shape.PRODUCTS:
                tl.store(kept.candidate + saved_row * size + unit, u_h, mask=mask)
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
    d_h, weights, kept, grads, lower, d_lower, state, new_state, d_state, first, row, unit, batch,
    last, layer, layers, step, PARTS: tl.constexpr, size: tl.constexpr, shape: tl.constexpr,
    cell: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of the pre-activations, and that of the previous state to ``d_state``.

    ``first`` is the first row of the tile; the rows of the step start at ``step``. d_h is the
    gradient of h from above. Unless this is the ``last`` step, the gradient through the next step's
    U h is added to it. The gradient of c of the layer below is added to d_lower. ``layers`` is the
    number of layers in ``weights``.
    """
    inside, mask = row < batch, (row < batch) & (unit < size)
    offset = row * size + unit
    width: tl.constexpr = (shape.BLOCKS if shape.ADDED == shape.PRODUCTS else shape.PRODUCTS) * size
    prev = load(state + offset, mask, d_state)
    d_new = load(d_state + offset, mask, d_state)
    saved_row = step + row
    at = saved_row * (shape.BLOCKS * size) + unit
    a, new, below, u_h, p = (), prev, 0.0, 0.0, ()
    if shape.CELLS == 0:
        rows = weights.rows + layer * (shape.PARAMS * size) + unit
        p = load_blocks(rows, size, shape.PARAMS, unit < size, d_state)
        a = load_blocks(kept.gates + at, size, shape.BLOCKS, mask, d_state)
        new = load(new_state + offset, mask, d_state)
        if lower is not None:
            below = load(lower + offset, mask, d_state)
        if shape.ADDED < shape.PRODUCTS:
            u_h = load(kept.candidate + saved_row * size + unit, mask, d_state)
    w_hh = weights.w_hh + layer * (shape.PRODUCTS * size * size)
    d_h += multiply_back(
        grads.products + (step + batch) * width, first, tl.where(last == 0, batch, 0), w_hh,
        tl.program_id(1) * tiles.UNITS, width, size, size, shape.PRODUCTS * size, tiles, d_h.dtype,
    )  # fmt: skip
    if shape.CELLS > 0:
        parts = (step * PARTS + tl.program_id(1) * batch + row) * shape.CELLS
        d_prev = tl.zeros_like(prev)
        for s in range(shape.CELLS):
            block = 4 * s * size
            a_s = load_blocks(kept.gates + at + block, size, 4, mask, d_state)
            c_s = a_s[0] * a_s[2] + a_s[1] * prev
            h_s = a_s[3] * tanh(c_s)
            d_alpha = tl.sum(d_h * h_s + d_new * c_s, axis=1)[:, None]
            if grads.mixture is not None:
                tl.store(grads.mixture + parts + s, d_alpha, mask=inside)
            alpha = tl.load(kept.mixture + saved_row * shape.CELLS + s, mask=inside, other=0.0)
            d_a, d_prev_s, _, _, _ = lstm_backward(
                a_s, prev, c_s, 0.0, 0.0, (), alpha * d_h, alpha * d_new
            )
            store_blocks(grads.gates + at + block, size, 4, mask, d_a)
            d_prev += d_prev_s
    else:
        d_a, d_prev, d_below, d_candidate, d_p = cell(a, prev, new, below, u_h, p, d_h, d_new)
        store_blocks(grads.gates + at, size, shape.BLOCKS, mask, d_a)
        if shape.ADDED < shape.PRODUCTS:
            products_at = grads.products + saved_row * width + unit
            store_blocks(products_at, size, shape.ADDED, mask, d_a)
            tl.store(
                products_at + shape.ADDED * size,
                d_candidate.to(grads.products.dtype.element_ty),
                mask=mask,
            )
        if d_lower is not None:
            d_lower_sum = load(d_lower + offset, mask, d_state)
            tl.store(d_lower + offset, d_lower_sum + d_below, mask=mask)
        if shape.GRADS > 0:
            d_rows = grads.rows + (tl.program_id(0) * layers + layer) * (shape.PARAMS * size)
            unit_index = tl.program_id(1) * tiles.UNITS + tl.arange(0, tiles.UNITS)
            for k in tl.static_range(shape.GRADS):
                total = load(d_rows + k * size + unit_index, unit_index < size, d_state)
                tl.store(
                    d_rows + k * size + unit_index,
                    total + tl.sum(d_p[k], axis=0),
                    mask=unit_index < size,
                )
    tl.store(d_state + offset, d_prev, mask=mask)

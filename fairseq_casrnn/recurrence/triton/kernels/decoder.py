"""The decoder loop with attention, for all steps and layers in one launch.

A program computes the same tile of ROWS rows of the batch and UNITS hidden units in every layer.
Programs with the same rows wait for each other at a barrier before they read what the others have
written: at each step after each layer, after the attention (of which each program computes some
rows), and after the output. They must run at the same time, so the launch is cooperative. Rows are
independent: if there are more tiles of rows than fit on the GPU, each program processes several.

Triton's interpreter runs one program after another. There, a launch runs one PHASE of one step and
has no barriers.

Shapes: T steps, B rows, H units (``size``), L layers, S source positions (``span``), R sentences.
Tensors of the upper layers are stacked, so that depth is a loop. ``weights``, ``saved`` and
``grads`` are :class:`..decoder_loop.Weights`, ``Saved`` and ``Grads``; ``tiles`` and
``attention_tiles`` are :class:`..plan.Tiles` and :class:`..decoder_plan.AttentionTiles`; a
``shape`` is :class:`..plan.CellShape`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....cells.triton_base import tanh
from .attention import attend, attend_backward
from .decoder_layers import layer_backward, layer_forward, mixture_scores_grad
from .decoder_products import accumulate, multiply_back
from .products import to_dot_operand
from .sequences import grid_barrier
from .tiles import load

ALL = tl.constexpr("all")
COUNTER_STRIDE = tl.constexpr(32)
"""Elements between counters, so that each has a cache line of its own."""
FORWARD = ("bottom", "upper", "attend", "output")
BACKWARD = ("feed", "attend", "top", "upper", "between", "bottom")
"""The phases of a step, in order; "upper" and "between" are repeated for each upper layer."""


@triton.jit
def barrier_of_rows(count, passed, PHASE: tl.constexpr):
    """Wait for the programs with the same rows; returns ``passed``, the barrier count, plus 1."""
    if PHASE == ALL:
        passed += 1
        grid_barrier(count + tl.program_id(0) * COUNTER_STRIDE, passed * tl.num_programs(1))
    return passed


INTEGERS = ["batch", "span", "steps", "layers", "begin", "end", "first", "last"]
"""Arguments for whose values kernels are not specialised."""


@triton.jit(do_not_specialize=[*INTEGERS, "plane", "hop"])
def decode_forward(
    weights,
    saved,  # hs and states strided by ``plane`` and ``hop``
    gx,  # (T, B, BLOCKS*H), pre-activations of the bottom layer
    routed,  # (T, B, CELLS), its scores, or None
    feed,  # (B, H), or None
    drop_layers,  # (L-1, T, B, H), or None
    drop_out,  # (T, B, H), or None
    keys,  # (R, S, H)
    values,  # (R, S, H)
    padding,  # (R, S), bool, or None
    source,  # (B,), int64, or None
    w_out,  # (H, H), rows ``out_stride`` apart
    temperature,  # (), or None
    context,  # (B, H)
    count,  # (tiles of rows * COUNTER_STRIDE,), int32, zeros
    batch, span, steps, layers, plane, hop, begin, end, first, last,
    size: tl.constexpr, stride: tl.constexpr, out_stride: tl.constexpr,
    bottom_shape: tl.constexpr, upper_shape: tl.constexpr,
    bottom_cell: tl.constexpr, upper_cell: tl.constexpr,
    tiles: tl.constexpr, attention_tiles: tl.constexpr, WAYS: tl.constexpr,
    LOWER: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Run steps ``begin`` to ``end`` and the upper layers ``first`` to ``last``.

    The bottom layer's W and attention, whose rows are ``stride`` apart, and w_out may be slices of
    larger matrices. In hs and states, layers are ``plane`` rows apart and steps ``hop`` rows. In
    the first step the bottom layer reads ``feed`` (if None: zeros), later the attention output of
    the previous step, in ``saved.fed``.
    """
    hs, states, fed, ups = saved.hs, saved.states, saved.fed, saved.ups
    unit = tl.program_id(1) * tiles.UNITS + tl.arange(0, tiles.UNITS)[None, :]
    plane, hop = plane.to(tl.int64) * size, hop.to(tl.int64) * size
    rows_of_layer = steps.to(tl.int64) * batch
    passed = 0
    for tile in range(tl.program_id(0), tl.cdiv(batch, tiles.ROWS), tl.num_programs(0)):
        row = tile * tiles.ROWS + tl.arange(0, tiles.ROWS)[:, None]
        inside, mask = row < batch, (row < batch) & (unit < size)
        offset = row * size + unit
        for t in range(begin, end):
            step_row = begin.to(tl.int64) * batch + (t - begin) * batch
            prev_step, next_step = t * hop, (t + 1) * hop
            if PHASE == ALL or PHASE == "bottom":
                x, x_rows = feed, batch
                if feed is None:
                    x, x_rows = fed + (step_row - batch) * size, tl.where(t > 0, batch, 0)
                layer_forward(
                    weights.bottom, saved.bottom, gx, routed, x, x_rows, hs + prev_step,
                    states + prev_step, None, temperature, hs + next_step, states + next_step,
                    drop_layers, ups, layers > 1, tile * tiles.ROWS, row, unit, batch, 0, step_row,
                    step_row, stride, size, bottom_shape, bottom_cell, WAYS, tiles,
                )  # fmt: skip
                passed = barrier_of_rows(count, passed, PHASE)
            for k in range(first, last):
                j = k - 1  # among the upper layers
                at = j * rows_of_layer + step_row
                lower_plane, own_plane = j * plane, (j + 1) * plane
                x = hs + lower_plane + next_step
                if ups is not None:
                    x = ups + at * size
                lower = None
                if LOWER:
                    lower = states + lower_plane + next_step
                layer_forward(
                    weights.upper, saved.upper, None, None, x, batch, hs + own_plane + prev_step,
                    states + own_plane + prev_step, lower, temperature,
                    hs + own_plane + next_step, states + own_plane + next_step, drop_layers, ups,
                    k + 1 < layers, tile * tiles.ROWS, row, unit, batch, j, at, at + rows_of_layer,
                    size, size, upper_shape, upper_cell, WAYS, tiles,
                )  # fmt: skip
                passed = barrier_of_rows(count, passed, PHASE)
            top = hs + (layers - 1) * plane + next_step
            if PHASE == ALL or PHASE == "attend":
                attend(
                    top, keys, values, padding, source, saved.alphas + step_row * span, context,
                    tile * tiles.ROWS, batch, span, size, tiles.ROWS, attention_tiles,
                )  # fmt: skip
                passed = barrier_of_rows(count, passed, PHASE)
            if PHASE == ALL or PHASE == "output":
                total = tl.zeros((tiles.ROWS, tiles.UNITS), states.dtype.element_ty)
                total = accumulate(
                    total, top + row * size, inside, w_out, unit, size, out_stride, size, tiles
                )
                c = tl.load(context + offset, mask=mask, other=0.0, cache_modifier=".cg")
                out = tanh(total + c).to(fed.dtype.element_ty)
                if drop_out is not None:
                    tl.store(saved.outs + step_row * size + offset, out, mask=mask)
                    value = out.to(states.dtype.element_ty)
                    out = (value * load(drop_out + step_row * size + offset, mask, states)).to(
                        out.dtype
                    )
                tl.store(fed + step_row * size + offset, out, mask=mask)
                passed = barrier_of_rows(count, passed, PHASE)


@triton.jit(do_not_specialize=INTEGERS)
def decode_backward(
    weights,
    saved,
    grads,
    drop_layers,  # (L-1, T, B, H), or None
    drop_out,  # (T, B, H), or None
    keys,  # (B, S, H)
    values,  # (B, S, H)
    w_out,  # (H, H), rows ``out_stride`` apart
    temperature,  # (), or None
    grad_out,  # (T, B, H), or None
    grad_alphas,  # (T, B, S), or None
    d_query,  # (B, H)
    d_up,  # (B, H)
    count,  # (tiles of rows * COUNTER_STRIDE,), int32, zeros
    batch, span, steps, layers, begin, end, first, last,
    size: tl.constexpr, stride: tl.constexpr, out_stride: tl.constexpr,
    bottom_shape: tl.constexpr, upper_shape: tl.constexpr,
    bottom_cell: tl.constexpr, upper_cell: tl.constexpr,
    tiles: tl.constexpr, attention_tiles: tl.constexpr, WAYS: tl.constexpr,
    LOWER: tl.constexpr, PARTS: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Run steps ``end`` back to ``begin``, and the upper layers ``last`` back to ``first``.

    ``grads.states`` is the gradient of the states after the last step, and becomes that of the
    initial states. d_query and d_up are buffers for one step: the gradient of the attention's
    query, and that of a layer's h from the layer above. PARTS is the number of tiles of units.
    """
    CELLS: tl.constexpr = bottom_shape.CELLS
    width0: tl.constexpr = bottom_shape.BLOCKS * size
    width: tl.constexpr = upper_shape.BLOCKS * size
    states, d_states, d_pre = saved.states, grads.states, grads.pre
    column = tl.program_id(1) * tiles.UNITS
    unit = column + tl.arange(0, tiles.UNITS)[None, :]
    rows_of_layer = steps.to(tl.int64) * batch
    plane = (rows_of_layer + batch) * size
    passed = 0
    for tile in range(tl.program_id(0), tl.cdiv(batch, tiles.ROWS), tl.num_programs(0)):
        row = tile * tiles.ROWS + tl.arange(0, tiles.ROWS)[:, None]
        inside, mask = row < batch, (row < batch) & (unit < size)
        offset = row * size + unit
        zero = tl.zeros((tiles.ROWS, tiles.UNITS), states.dtype.element_ty)
        for back in range(end - begin):
            t = end - 1 - back
            step_row = t.to(tl.int64) * batch
            next_state = (step_row + batch) * size
            is_last = (t + 1 == steps).to(tl.int32)
            has_next = inside & (is_last == 0)
            if PHASE == ALL or PHASE == "feed":
                d = zero
                if weights.bottom.w_ih is not None:
                    d = multiply_back(
                        grads.bottom.gates + (step_row + batch) * width0, tile * tiles.ROWS,
                        tl.where(is_last == 0, batch, 0), weights.bottom.w_ih, column, width0,
                        stride, size, width0, tiles, d.dtype,
                    )  # fmt: skip
                    if CELLS > 0 and temperature is not None:
                        d += through_mixture(
                            grads.bottom.mixture + (step_row + batch) * (PARTS * CELLS),
                            saved.bottom.mixture + (step_row + batch) * CELLS,
                            weights.bottom.attention, temperature, row, has_next, unit, batch,
                            zero, states, stride, size, CELLS, WAYS, PARTS, tiles,
                        )  # fmt: skip
                if grad_out is not None:
                    d += load(grad_out + step_row * size + offset, mask, states)
                if drop_out is not None:
                    d *= load(drop_out + step_row * size + offset, mask, states)
                out = load(saved.outs + step_row * size + offset, mask, states)
                d = (d * (1.0 - out * out)).to(d_pre.dtype.element_ty)
                tl.store(d_pre + step_row * size + offset, d, mask=mask)
                passed = barrier_of_rows(count, passed, PHASE)
            if PHASE == ALL or PHASE == "attend":
                attend_backward(
                    d_pre + step_row * size, keys, values, saved.alphas, grad_alphas, grads.scores,
                    step_row * span, d_query,
                    tile * tiles.ROWS, batch, span, size, tiles.ROWS, attention_tiles,
                )  # fmt: skip
                passed = barrier_of_rows(count, passed, PHASE)
            d_h = zero
            if PHASE == ALL or PHASE == "top":
                d_h = tl.load(d_query + offset, mask=mask, other=0.0, cache_modifier=".cg")
                d_h += multiply_back(
                    d_pre + step_row * size, tile * tiles.ROWS, batch, w_out, column, size,
                    out_stride, size, size, tiles, d_h.dtype,
                )  # fmt: skip
                if PHASE != ALL:
                    tl.store(d_up + offset, d_h, mask=mask)
            for i in range(last - first):
                j = last - 2 - i  # among the upper layers
                at = j * rows_of_layer + step_row
                lower_plane, own_plane = j * plane, (j + 1) * plane
                lower, d_lower = None, None
                if LOWER:
                    lower, d_lower = states + lower_plane + next_state, d_states + j * batch * size
                if PHASE == ALL or PHASE == "upper":
                    if PHASE != ALL:
                        d_h = load(d_up + offset, mask, states)
                    layer_backward(
                        d_h, weights.upper, saved.upper, grads.upper, lower, d_lower,
                        states + own_plane + step_row * size, states + own_plane + next_state,
                        d_states + (j + 1) * batch * size, tile * tiles.ROWS, row, unit, batch,
                        is_last, j, layers - 1, at, PARTS, size, upper_shape, upper_cell, tiles,
                    )  # fmt: skip
                    passed = barrier_of_rows(count, passed, PHASE)
                if PHASE == ALL or PHASE == "between":
                    d_h = multiply_back(
                        grads.upper.gates + at * width, tile * tiles.ROWS, batch,
                        weights.upper.w_ih + j * (width * size), column, width, size, size, width,
                        tiles, d_h.dtype,
                    )  # fmt: skip
                    if CELLS > 0 and temperature is not None:
                        d_h += through_mixture(
                            grads.upper.mixture + at * (PARTS * CELLS),
                            saved.upper.mixture + at * CELLS,
                            weights.upper.attention + j * (CELLS * size), temperature,
                            row, inside, unit, batch, zero, states, size, size,
                            CELLS, WAYS, PARTS, tiles,
                        )  # fmt: skip
                    if drop_layers is not None:
                        d_h *= load(drop_layers + at * size + offset, mask, states)
                    if PHASE != ALL:
                        tl.store(d_up + offset, d_h, mask=mask)
            if PHASE == ALL or PHASE == "bottom":
                if PHASE != ALL:
                    d_h = load(d_up + offset, mask, states)
                layer_backward(
                    d_h, weights.bottom, saved.bottom, grads.bottom, None, None,
                    states + step_row * size, states + next_state, d_states, tile * tiles.ROWS,
                    row, unit, batch, is_last, 0, 1, step_row, PARTS, size, bottom_shape,
                    bottom_cell, tiles,
                )  # fmt: skip
                passed = barrier_of_rows(count, passed, PHASE)


@triton.jit
def through_mixture(
    parts, mixture, attention, temperature, row, inside, unit, batch, zero, like,
    stride: tl.constexpr, size: tl.constexpr, CELLS: tl.constexpr, WAYS: tl.constexpr,
    PARTS: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """The gradient ``(ROWS, UNITS)`` of a mixture's input through its routing scores."""
    ways = tl.arange(0, WAYS)
    d = mixture_scores_grad(
        parts, mixture, temperature, row, inside, ways[None, :], batch, like,
        CELLS, tiles.ROWS, WAYS, PARTS,
    )  # fmt: skip
    mask = (ways < CELLS)[:, None] & (unit < size)
    w = tl.load(attention + ways[:, None] * stride + unit, mask=mask, other=0.0)
    d = to_dot_operand(d, tiles.FACTOR, tiles.PRECISION)
    w = to_dot_operand(w, tiles.FACTOR, tiles.PRECISION)
    return tl.dot(d, w, zero, input_precision=tiles.PRECISION, out_dtype=zero.dtype)

"""The decoder loop with attention, for all steps and layers in one launch.

A program computes the same tile of ROWS rows of the batch and UNITS hidden units in every layer.
Programs with the same rows wait for each other at a barrier before they read what the others have
written: at each step after each layer, after the attention (of which each program computes some
rows), and after the output. They must run at the same time, so the launch is cooperative. Rows are
independent: if there are more tiles of rows than fit on the GPU, each program processes several.

Triton's interpreter runs one program after another. There, a launch runs one PHASE of one step and
has no barriers.

Shapes: T steps, B rows, H units (``size``), L layers, S source positions (``span``), R sentences.
Names that end in 0 are those of the bottom layer; tensors of the upper layers are stacked, so that
depth is a loop. See :class:`..decoder_loop.Saved`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....cells.triton_base import tanh
from .attention import attend, attend_backward
from .decoder_layers import layer_backward, layer_forward, mixture_scores_grad
from .decoder_products import accumulate, multiply_back
from .products import Tiles, to_dot_operand
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
    gx,  # (T, B, BLOCKS0*H)
    w_ih0,  # (BLOCKS0*H, H), rows ``stride`` apart
    w_hh0,  # (PRODUCTS0*H, H)
    rows0,  # (PARAMS0, H)
    attention0,  # (CELLS, H), rows ``stride`` apart, or None
    routed,  # (T, B, CELLS), or None
    gates0,  # (T, B, BLOCKS0*H), or None
    candidate0,  # (T, B, H), or None
    mixture0,  # (T, B, CELLS), or None
    w_ih,  # (L-1, BLOCKS*H, H)
    w_hh,  # (L-1, PRODUCTS*H, H)
    bias,  # (L-1, BLOCKS*H)
    rows,  # (L-1, PARAMS, H)
    attention,  # (L-1, CELLS, H), or None
    gates,  # (L-1, T, B, BLOCKS*H), or None
    candidate,  # (L-1, T, B, H), or None
    mixture,  # (L-1, T, B, CELLS), or None
    hs,  # (L, T+1, B, H), strided by ``plane`` and ``hop``
    states,  # (L, T+1, B, H), likewise
    feed,  # (B, H), or None
    fed,  # (T, B, H)
    outs,  # (T, B, H)
    ups,  # (L-1, T, B, H), or None
    drop_layers,  # (L-1, T, B, H), or None
    drop_out,  # (T, B, H), or None
    keys,  # (R, S, H)
    values,  # (R, S, H)
    padding,  # (R, S), bool, or None
    source,  # (B,), int64, or None
    alphas,  # (T, B, S)
    context,  # (B, H)
    w_out,  # (H, H), rows ``out_stride`` apart
    temperature,  # (), or None
    count,  # (tiles of rows * APART,), int32, zeros
    batch, span, steps, layers, plane, hop, begin, end, first, last,
    size: tl.constexpr, stride: tl.constexpr, out_stride: tl.constexpr, LOWER: tl.constexpr,
    BLOCKS0: tl.constexpr, PRODUCTS0: tl.constexpr, ADDED0: tl.constexpr, PARAMS0: tl.constexpr,
    BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr, ADDED: tl.constexpr, PARAMS: tl.constexpr,
    CELLS: tl.constexpr, FEED: tl.constexpr, cell0: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, WAYS: tl.constexpr, DEPTH: tl.constexpr,
    SPLIT: tl.constexpr, RB: tl.constexpr, SPAN: tl.constexpr, CHUNK: tl.constexpr,
    FACTOR: tl.constexpr, PRECISION: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Run steps ``begin`` to ``end`` and the upper layers ``first`` to ``last``.

    w_ih0, attention0 and w_out may be slices of larger matrices. In hs and states, layers are
    ``plane`` rows apart and steps ``hop`` rows. In the first step the bottom layer reads ``feed``
    (if None: zeros), later the attention output of the previous step, in ``fed``.
    """
    tiles: tl.constexpr = Tiles(ROWS, UNITS, DEPTH, SPLIT, FACTOR, PRECISION, 1, False)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]
    plane, hop = plane.to(tl.int64) * size, hop.to(tl.int64) * size
    rows_of_layer = steps.to(tl.int64) * batch
    passed = 0
    for tile in range(tl.program_id(0), tl.cdiv(batch, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
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
                    x, x_rows, hs + prev_step, states + prev_step, w_ih0, w_hh0,
                    gx, None, rows0, gates0, candidate0, None, attention0, routed, mixture0,
                    temperature, hs + next_step, states + next_step, drop_layers, ups, layers > 1,
                    tile * ROWS, row, unit, batch, 0, step_row, step_row,
                    stride, size, BLOCKS0, PRODUCTS0, ADDED0, PARAMS0, CELLS, cell0,
                    WAYS, tiles, FEED,
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
                    x, batch, hs + own_plane + prev_step, states + own_plane + prev_step,
                    w_ih, w_hh, None, bias, rows, gates, candidate, lower, attention, None, mixture,
                    temperature, hs + own_plane + next_step, states + own_plane + next_step,
                    drop_layers, ups,
                    k + 1 < layers, tile * ROWS, row, unit, batch, j, at, at + rows_of_layer,
                    size, size, BLOCKS, PRODUCTS, ADDED, PARAMS, CELLS, cell,
                    WAYS, tiles, True,
                )  # fmt: skip
                passed = barrier_of_rows(count, passed, PHASE)
            top = hs + (layers - 1) * plane + next_step
            if PHASE == ALL or PHASE == "attend":
                attend(
                    top, keys, values, padding, source, alphas + step_row * span, context,
                    tile * ROWS, batch, span, size, ROWS, RB, SPAN, CHUNK,
                )  # fmt: skip
                passed = barrier_of_rows(count, passed, PHASE)
            if PHASE == ALL or PHASE == "output":
                total = tl.zeros((ROWS, UNITS), states.dtype.element_ty)
                total = accumulate(
                    total, top + row * size, inside, w_out, unit, size, out_stride, size, tiles
                )
                c = tl.load(context + offset, mask=mask, other=0.0, cache_modifier=".cg")
                out = tanh(total + c).to(fed.dtype.element_ty)
                if drop_out is not None:
                    tl.store(outs + step_row * size + offset, out, mask=mask)
                    value = out.to(states.dtype.element_ty)
                    out = (value * load(drop_out + step_row * size + offset, mask, states)).to(
                        out.dtype
                    )
                tl.store(fed + step_row * size + offset, out, mask=mask)
                passed = barrier_of_rows(count, passed, PHASE)


@triton.jit(do_not_specialize=INTEGERS)
def decode_backward(
    w_ih0,  # (BLOCKS0*H, H), rows ``stride`` apart, or None
    w_hh0,  # (PRODUCTS0*H, H)
    rows0,  # (PARAMS0, H)
    attention0,  # (CELLS, H), rows ``stride`` apart, or None
    gates0,  # (T, B, BLOCKS0*H)
    candidate0,  # (T, B, H), or None
    mixture0,  # (T, B, CELLS), or None
    d_gates0,  # (T, B, BLOCKS0*H), may be gates0
    d_products0,  # (T, B, PRODUCTS0*H), may be d_gates0
    d_rows0,  # (tiles of rows, 1, GRADS0, H)
    d_mixture0,  # (T, PARTS, B, CELLS), or None
    w_ih,  # (L-1, BLOCKS*H, H)
    w_hh,  # (L-1, PRODUCTS*H, H)
    rows,  # (L-1, PARAMS, H)
    attention,  # (L-1, CELLS, H), or None
    gates,  # (L-1, T, B, BLOCKS*H)
    candidate,  # (L-1, T, B, H), or None
    mixture,  # (L-1, T, B, CELLS), or None
    d_gates,  # (L-1, T, B, BLOCKS*H), may be gates
    d_products,  # (L-1, T, B, PRODUCTS*H), may be d_gates
    d_rows,  # (tiles of rows, L-1, GRADS, H)
    d_mixture,  # (L-1, T, PARTS, B, CELLS), or None
    hs,  # (L, T+1, B, H)
    states,  # (L, T+1, B, H)
    outs,  # (T, B, H)
    drop_layers,  # (L-1, T, B, H), or None
    drop_out,  # (T, B, H), or None
    keys,  # (B, S, H)
    values,  # (B, S, H)
    alphas,  # (T, B, S)
    w_out,  # (H, H), rows ``out_stride`` apart
    temperature,  # (), or None
    grad_out,  # (T, B, H), or None
    grad_alphas,  # (T, B, S), or None
    d_states,  # (L, B, H)
    d_pre,  # (T, B, H)
    d_scores,  # (T, B, S)
    d_query,  # (B, H)
    d_up,  # (B, H)
    count,  # (tiles of rows * APART,), int32, zeros
    batch, span, steps, layers, begin, end, first, last,
    size: tl.constexpr, stride: tl.constexpr, out_stride: tl.constexpr, LOWER: tl.constexpr,
    BLOCKS0: tl.constexpr, PRODUCTS0: tl.constexpr, ADDED0: tl.constexpr, PARAMS0: tl.constexpr,
    GRADS0: tl.constexpr, BLOCKS: tl.constexpr, PRODUCTS: tl.constexpr, ADDED: tl.constexpr,
    PARAMS: tl.constexpr, GRADS: tl.constexpr, CELLS: tl.constexpr, PARTS: tl.constexpr,
    cell0: tl.constexpr, cell: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, WAYS: tl.constexpr, DEPTH: tl.constexpr,
    SPLIT: tl.constexpr, RB: tl.constexpr, SPAN: tl.constexpr, CHUNK: tl.constexpr,
    FACTOR: tl.constexpr, PRECISION: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Run steps ``end`` back to ``begin``, and the upper layers ``last`` back to ``first``.

    d_states is the gradient of the states after the last step, and becomes that of the initial
    states. d_pre is the gradient of the output before its tanh. d_query and d_up are buffers for
    one step: the gradient of the attention's query, and that of a layer's h from the layer above.
    d_mixture has a partial gradient of a mixture's weights per tile of units.
    """
    tiles: tl.constexpr = Tiles(ROWS, UNITS, DEPTH, SPLIT, FACTOR, PRECISION, 1, False)
    column = tl.program_id(1) * UNITS
    unit = column + tl.arange(0, UNITS)[None, :]
    rows_of_layer = steps.to(tl.int64) * batch
    plane = (rows_of_layer + batch) * size
    passed = 0
    for tile in range(tl.program_id(0), tl.cdiv(batch, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        inside, mask = row < batch, (row < batch) & (unit < size)
        offset = row * size + unit
        zero = tl.zeros((ROWS, UNITS), states.dtype.element_ty)
        for back in range(end - begin):
            t = end - 1 - back
            step_row = t.to(tl.int64) * batch
            next_state = (step_row + batch) * size
            is_last = (t + 1 == steps).to(tl.int32)
            has_next = inside & (is_last == 0)
            if PHASE == ALL or PHASE == "feed":
                d = zero
                if w_ih0 is not None:
                    d = multiply_back(
                        d_gates0 + (step_row + batch) * (BLOCKS0 * size), tile * ROWS,
                        tl.where(is_last == 0, batch, 0), w_ih0, column, BLOCKS0 * size, stride,
                        size, BLOCKS0 * size, tiles, d.dtype,
                    )  # fmt: skip
                    if CELLS > 0 and temperature is not None:
                        d += through_mixture(
                            d_mixture0 + (step_row + batch) * (PARTS * CELLS),
                            mixture0 + (step_row + batch) * CELLS, attention0, temperature,
                            row, has_next, unit, batch, zero, states, stride, size,
                            CELLS, WAYS, PARTS, tiles,
                        )  # fmt: skip
                if grad_out is not None:
                    d += load(grad_out + step_row * size + offset, mask, states)
                if drop_out is not None:
                    d *= load(drop_out + step_row * size + offset, mask, states)
                out = load(outs + step_row * size + offset, mask, states)
                d = (d * (1.0 - out * out)).to(d_pre.dtype.element_ty)
                tl.store(d_pre + step_row * size + offset, d, mask=mask)
                passed = barrier_of_rows(count, passed, PHASE)
            if PHASE == ALL or PHASE == "attend":
                attend_backward(
                    d_pre + step_row * size, keys, values, alphas, grad_alphas, d_scores,
                    step_row * span, d_query,
                    tile * ROWS, batch, span, size, ROWS, RB, SPAN, CHUNK,
                )  # fmt: skip
                passed = barrier_of_rows(count, passed, PHASE)
            d_h = zero
            if PHASE == ALL or PHASE == "top":
                d_h = tl.load(d_query + offset, mask=mask, other=0.0, cache_modifier=".cg")
                d_h += multiply_back(
                    d_pre + step_row * size, tile * ROWS, batch, w_out, column, size, out_stride,
                    size,
                    size, tiles, d_h.dtype,
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
                        d_h, gates, d_gates, d_products, w_hh + j * (PRODUCTS * size * size),
                        rows + j * (PARAMS * size),
                        d_rows + (tl.program_id(0) * (layers - 1) + j) * (PARAMS * size),
                        candidate, lower, d_lower, mixture, d_mixture,
                        states + own_plane + step_row * size, states + own_plane + next_state,
                        d_states + (j + 1) * batch * size, tile * ROWS, row, unit, batch, is_last,
                        at, PARTS,
                        size, BLOCKS, PRODUCTS, ADDED, PARAMS, GRADS, CELLS, cell,
                        tiles,
                    )  # fmt: skip
                    passed = barrier_of_rows(count, passed, PHASE)
                if PHASE == ALL or PHASE == "between":
                    d_h = multiply_back(
                        d_gates + at * (BLOCKS * size), tile * ROWS, batch,
                        w_ih + j * (BLOCKS * size * size), column, BLOCKS * size, size, size,
                        BLOCKS * size, tiles, d_h.dtype,
                    )  # fmt: skip
                    if CELLS > 0 and temperature is not None:
                        d_h += through_mixture(
                            d_mixture + at * (PARTS * CELLS), mixture + at * CELLS,
                            attention + j * (CELLS * size), temperature,
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
                    d_h, gates0, d_gates0, d_products0, w_hh0, rows0,
                    d_rows0 + tl.program_id(0) * (PARAMS0 * size), candidate0, None, None,
                    mixture0, d_mixture0, states + step_row * size, states + next_state, d_states,
                    tile * ROWS, row, unit, batch, is_last, step_row, PARTS,
                    size, BLOCKS0, PRODUCTS0, ADDED0, PARAMS0, GRADS0, CELLS, cell0,
                    tiles,
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

"""The time loops of engine ``triton``, forward and backward.

One launch runs all steps if :mod:`.plan` has a plan for it; otherwise each step is a matrix product
and a launch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ...cells.base import Cell
from ..choice import log_once
from ..inputs import LoopTensors, accumulation_dtype
from . import launching
from .barriers import RefusedError, launch
from .host import contiguous, kernels, on_its_device, optional_arguments, product
from .plan import Plan, Tiles, plan, shape_of

StateGrads: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]
"""The incoming gradients of hs, cs, h_n and c_n."""

TILE = 4, 128
"""Maximum rows and units of a tile in a launch for one step; small, to use the whole GPU."""


def explain_steps(reason: str) -> None:
    """Log once why each step needs a launch of its own."""
    log_once(logging.INFO, "engine 'triton' launches a kernel a step: %s", reason)


class Saved(NamedTuple):
    """What the forward computes.

    Attributes:
        gates: ``(T, B, ih_blocks*H)``, activated.
        candidate: ``(T, B, H)``, the block of U h that is not added to the gates, or None.
        hs: ``(T+1, B, H)`` in the inputs' dtype, the initial state first.
        states: ``(T+1, B, H)``, c, or h for a cell without c; it may be hs itself.
        rows: the elementwise parameters as the kernels read them, or None.
    """

    gates: Tensor
    candidate: Tensor | None
    hs: Tensor
    states: Tensor
    rows: Tensor | None


class Grads(NamedTuple):
    """Gradients that the backward computes.

    Attributes:
        products: of U h for all steps, ``(T, B, hh_blocks*H)``.
        side: of ``side`` in :class:`.inputs.LoopTensors`, or None.
        rows: of the rows of elementwise parameters, or None.
        state: ``(B, H)``, of the initial state.
    """

    products: Tensor
    side: Tensor | None
    rows: Tensor | None
    state: Tensor


def single_steps(batch: int, size: int) -> Plan:
    """The plan for a launch of a single step."""
    rows, units = TILE[0], min(TILE[1], 1 << (size - 1).bit_length())
    return Plan((-(-batch // rows), -(-size // units)), Tiles(rows, units))


def arguments(cell: Cell, saved: Saved, side: Tensor | None, table: str) -> dict[str, Any]:
    """The arguments that all kernels have in common."""
    gates, candidate, hs, states, rows = saved
    return {
        "gates": gates,
        "candidate": candidate,
        "side": contiguous(side),
        "rows": gates if rows is None else rows,  # a placeholder that is not read
        "states": states,
        "batch": hs.size(1),
        "steps": gates.size(0),
        "size": hs.size(2),
        "shape": shape_of(cell, rows),
        "cell": getattr(kernels("single_steps"), table)[cell.kernel],
    }


def allocate(cell: Cell, tensors: LoopTensors, params: Sequence[Tensor]) -> Saved:
    """Buffers for the forward; gates are initialised to W x, or to ``gx``, which includes b."""
    gx, x, weight_ih, _, weight_hh, h0, _, _ = tensors
    dtype, wide = weight_hh.dtype, accumulation_dtype(weight_hh.dtype)
    batch, size = h0.shape
    if gx is not None:
        # In place: gx is the output of a linear map, which autograd does not save.
        gates = contiguous(gx.detach().to(wide))
    else:
        assert x is not None
        assert weight_ih is not None
        gates = x.new_empty(x.size(0), batch, weight_ih.size(0), dtype=wide)
        product(x.flatten(0, 1), weight_ih.t(), gates.flatten(0, 1))
    shape = gates.size(0) + 1, batch, size
    hs = gates.new_empty(shape, dtype=dtype)
    states = hs if not cell.has_cell and dtype == wide else gates.new_empty(shape)
    candidate = gates.new_empty(gates.size(0), batch, size) if cell.num_separate_gates else None
    rows = cell.kernel_rows([p.to(wide) for p in params], gates, size)
    return Saved(gates, candidate, hs, states, contiguous(rows))


@on_its_device
def forward(
    cell: Cell,
    tensors: LoopTensors,
    last: Tensor | None,
    params: Sequence[Tensor],
    keep: bool,
) -> tuple[Saved, Tensor, Tensor | None]:
    """The forward loop; with ``keep``, the activated gates are kept for the backward.

    Returns:
        Saved, and h and c ``(B, H)`` at each row's last step; c is None for a cell without c.
    """
    saved = allocate(cell, tensors, params)
    weight_hh, h0, c0 = tensors.weight_hh, tensors.h0, tensors.c0
    gates, _, hs, states, _ = saved
    steps, batch = gates.shape[:2]
    h_n = torch.empty_like(hs[0])
    c_n = torch.empty_like(h_n) if cell.has_cell else None
    shared = arguments(cell, saved, tensors.side, "FORWARD")
    shared |= {"bias": contiguous(tensors.bias), "hs": hs, "h_n": h_n, "c_n": c_n, "KEEP": keep}
    shared |= optional_arguments(gates.device, last=(last, torch.int64))
    sequence_plan = plan(cell, weight_hh, batch) if steps > 1 else None
    if sequence_plan is not None:
        inputs: dict[str, Any] = {
            "weight": contiguous(weight_hh),
            "h0": contiguous(h0),
            "c0": contiguous(c0),
        }
        try:
            launch(kernels("sequences").forward_sequence, sequence_plan, **shared, **inputs)
        except RefusedError as error:
            explain_steps(str(error))
        else:
            return saved, h_n, c_n
    hs[0] = h0
    states[0] = h0 if c0 is None else c0
    grid, tiles = single_steps(batch, hs.size(2))
    kernel, weight_t = kernels("single_steps").forward_step, weight_hh.t()
    products = gates.new_empty(batch, weight_hh.size(0))
    for t in range(steps):
        product(hs[t], weight_t, products)
        launching.run(kernel, grid, **shared, tiles=tiles, products=products, t=t)
    return saved, h_n, c_n


@on_its_device
def backward(
    cell: Cell,
    saved: Saved,
    *,
    side: Tensor | None,
    weight_hh: Tensor,
    d_gates: Tensor,
    grads: StateGrads,
    last: Tensor | None,
    wants_side: bool,
) -> Grads:
    """The backward loop.

    Args:
        cell, saved, side, weight_hh, last: as in the forward.
        d_gates: buffer for the gradient of the pre-activations, ``(T, B, ih_blocks*H)``; it may be
            ``saved.gates``.
        grads: of hs, cs, h_n and c_n.
        wants_side: whether to compute the gradient of ``side``.
    """
    gates, candidate, hs, states, rows = saved
    steps, batch, size = hs.size(0) - 1, *hs.shape[1:]
    split = cell.hh_blocks * size
    d_products = d_gates[..., :split] if candidate is None else hs.new_empty(steps, batch, split)
    d_state = torch.empty_like(states[0])
    shared = arguments(cell, saved, side, "BACKWARD")
    shared |= {"d_gates": d_gates, "d_products": d_products, "d_state": d_state}
    dtypes = hs.dtype, gates.dtype, hs.dtype, hs.dtype
    names = "grad_h", "grad_c", "grad_hn", "grad_cn"
    incoming = dict(zip(names, zip(grads, dtypes, strict=True), strict=True))
    shared |= optional_arguments(gates.device, last=(last, torch.int64), **incoming)

    def partial_sums(launch_plan: Plan) -> dict[str, Tensor | None]:
        """Buffers for gradients to which each tile of rows, or of units, adds a partial sum."""
        d_rows, d_side = gates, None
        if rows is not None and shared["shape"].GRADS:
            d_rows = gates.new_zeros(-(-batch // launch_plan.tiles.ROWS), *rows.shape)
        if side is not None and cell.num_cells:
            d_side = gates.new_empty(launch_plan.grid[1], *side.shape)
        elif side is not None and wants_side:
            d_side = torch.empty_like(side, memory_format=torch.contiguous_format)
        return {"d_rows": d_rows, "d_side": d_side}

    sequence_plan = plan(cell, weight_hh, batch, backwards=True) if steps > 1 else None
    if sequence_plan is not None:
        kernel, parts = kernels("sequences").backward_sequence, partial_sums(sequence_plan)
        try:
            launch(
                kernel,
                sequence_plan,
                backwards=True,
                **shared,
                **parts,
                weight=contiguous(weight_hh),
            )
        except RefusedError as error:
            explain_steps(str(error))
            sequence_plan = None
    if sequence_plan is None:
        step_plan = single_steps(batch, size)
        kernel, parts = kernels("single_steps").backward_step, partial_sums(step_plan)
        dh = torch.empty_like(d_state)
        for t in reversed(range(steps)):
            launching.run(
                kernel, step_plan.grid, **shared, **parts, tiles=step_plan.tiles, dh=dh, t=t
            )
            if t > 0:
                product(d_products[t], weight_hh, dh)
    d_rows, d_side = parts["d_rows"], parts["d_side"]
    d_rows = d_rows.sum(0) if d_rows is not None and shared["shape"].GRADS else None
    d_side = d_side.sum(0) if d_side is not None and cell.num_cells else d_side
    return Grads(d_products, d_side, d_rows, d_state)

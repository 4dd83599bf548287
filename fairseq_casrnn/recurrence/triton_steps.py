"""The time loops of engine ``triton``, forward and backward.

Where U and the batch fit on the chip (:mod:`.triton_plan`), one launch makes all steps; otherwise
each step is a product and a launch.
"""

from __future__ import annotations

import functools
import importlib
import logging
from typing import NamedTuple

import torch

from .cpp import kernel_params
from .inputs import kept
from .triton_plan import Plan, RefusedError, launch, plan

logger = logging.getLogger(__name__)

TILE = 4, 128
"""Rows and units of a program that makes one step, at most: few, to spread over the whole GPU."""


@functools.cache
def kernels(kind: str):
    """The module ``triton_kind``; reading it needs Triton and takes a second."""
    return importlib.import_module(f"{__package__}.triton_{kind}")


@functools.cache
def say(reason: str) -> None:
    """Log once why a sequence is not launched whole."""
    logger.info("engine 'triton' launches a kernel a step: %s", reason)


class Saved(NamedTuple):
    """What the forward fills.

    Attributes:
        gates: ``(T, B, ih_blocks*H)``, activated.
        inner: ``(T, B, H)``, the part of U h that is not simply added, or None.
        hs: ``(T+1, B, H)`` in the inputs' dtype, the initial state first.
        states: ``(T+1, B, H)``, c, or h where the cell has no c; hs itself where that will do.
        rows: the elementwise parameters as the kernels read them, or None.
    """

    gates: torch.Tensor
    inner: torch.Tensor | None
    hs: torch.Tensor
    states: torch.Tensor
    rows: torch.Tensor | None


class Grads(NamedTuple):
    """What the backward fills; shapes as of what they are gradients of.

    Attributes:
        gates: of the gates' sums, in the inputs' dtype.
        products: of U h for all steps, ``(T, B, hh_blocks*H)``.
        extra: or None.
        rows: of the parameters' rows, or None.
        h, state: ``(B, H)``, of the initial state.
    """

    gates: torch.Tensor
    products: torch.Tensor
    extra: torch.Tensor | None
    rows: torch.Tensor | None
    h: torch.Tensor
    state: torch.Tensor


def product(a, b, out):
    """The product of two matrices, summed in the precision of ``out``, where it is written."""
    if a.dtype == out.dtype:
        return torch.mm(a, b, out=out)
    if a.is_cuda and hasattr(torch.ops.aten.mm, "dtype_out"):
        return torch.mm(a, b, out_dtype=out.dtype, out=out)
    return torch.mm(a.to(out.dtype), b.to(out.dtype), out=out)


def contiguous(tensor):
    """``tensor``, or None, with its elements in order."""
    return None if tensor is None else tensor.contiguous()


def on_its_device(function):
    """Make ``function(cell, …)`` launch kernels where its first tensor is, with several GPUs."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        first = next(t for t in args if isinstance(t, torch.Tensor))
        with torch.cuda.device_of(first):
            return function(*args, **kwargs)

    return wrapped


def single_steps(batch: int, size: int) -> Plan:
    """The grid of programs for one step and the tile of each."""
    rows, units = TILE[0], min(TILE[1], 1 << (size - 1).bit_length())
    return Plan((-(-batch // rows), -(-size // units)), {"ROWS": rows, "UNITS": units})


def arguments(cell, saved: Saved, extra) -> dict:
    """Those that all kernels have."""
    gates, inner, hs, states, rows = saved
    return {
        "gates": gates,
        "inner": inner,
        "extra": extra,
        "rows": gates if rows is None else rows,  # a pointer all the same, though it is not read
        "states": states,
        "batch": hs.size(1),
        "size": hs.size(2),
        "BLOCKS": cell.ih_blocks,
        "PRODUCTS": cell.hh_blocks,
        "PARAMS": 0 if rows is None else rows.size(0),
        "CELLS": cell.routes,
    }


@on_its_device
def forward(cell, gx, x, weight_ih, bias, weight_hh, h0, c0, extra, params, keep) -> Saved:
    """The forward loop; the gates are not activated unless ``keep``."""
    dtype, wide = weight_hh.dtype, kept(weight_hh.dtype)
    batch, size = h0.shape
    if x is None:
        # The result of a linear map is ours to overwrite, for nobody keeps it.
        gates = gx.detach().to(wide).contiguous()
    else:
        gates = x.new_empty(x.size(0), batch, weight_ih.size(0), dtype=wide)
        product(x.flatten(0, 1), weight_ih.t(), gates.flatten(0, 1))
    steps = gates.size(0)
    hs = gates.new_empty(steps + 1, batch, size, dtype=dtype)
    states = hs if not cell.has_cell and dtype == wide else torch.empty_like(hs, dtype=wide)
    hs[0] = h0
    states[0] = c0 if cell.has_cell else h0
    inner = gates.new_empty(steps, batch, size) if cell.inner_blocks else None
    name, rows = kernel_params(cell, size, [p.to(wide) for p in params], gates)
    saved = Saved(gates, inner, hs, states, contiguous(rows))
    shared = arguments(cell, saved, contiguous(extra))
    shared |= {"bias": contiguous(bias), "hs": hs, "KEEP": keep}
    shared |= {"ADDED": cell.hh_blocks - cell.inner_blocks}
    shared |= {"cell": kernels("kernels").FORWARD[name]}
    whole = plan(cell, weight_hh, batch) if steps > 1 else None
    if whole is not None:
        kernel = kernels("sequences").forward_sequence
        try:
            launch(kernel, whole, steps, weight=weight_hh.contiguous(), **shared)
        except RefusedError as error:
            say(str(error))
        else:
            return saved
    grid, tiles = single_steps(batch, size)
    kernel, weight_t = kernels("kernels").forward_step[grid], weight_hh.t()
    products = gates.new_empty(batch, weight_hh.size(0))
    for t in range(steps):
        product(hs[t], weight_t, products)
        kernel(**shared, **tiles, products=products, t=t)
    return saved


def trained(name: str, rows) -> int:
    """How many of the rows of elementwise parameters get a gradient."""
    return 0 if rows is None or name == "cas" else rows.size(0)


@on_its_device
def backward(
    cell,
    name,
    saved: Saved,
    extra,
    weight_hh,
    d_gates,
    grad_h,
    grad_state,
    dh,
    d_state,
    wants_extra,
) -> Grads:
    """The backward loop. ``d_gates`` is where to write; dh and d_state are those of step T-1."""
    gates, inner, hs, _, rows = saved
    steps, batch, size = hs.size(0) - 1, *hs.shape[1:]
    split = cell.hh_blocks * size
    d_products = d_gates[..., :split] if inner is None else hs.new_empty(steps, batch, split)
    shared = arguments(cell, saved, contiguous(extra))
    shared |= {"d_gates": d_gates, "d_products": d_products, "steps": steps}
    shared |= {"grad_h": contiguous(grad_h), "grad_state": contiguous(grad_state)}
    shared |= {"dh": dh, "d_state": d_state, "GRADS": trained(name, rows)}
    shared |= {"cell": kernels("kernels").BACKWARD[name]}

    learns = trained(name, rows) > 0

    def sums(how: Plan) -> dict:
        """Where each tile of rows, or of units, is to sum its own part of a gradient."""
        row_tiles = -(-batch // how.tiles["ROWS"])
        d_rows = gates.new_zeros(row_tiles, *rows.shape) if learns else gates
        d_extra = None
        if cell.routes:
            d_extra = gates.new_empty(how.grid[1], *extra.shape)
        elif extra is not None and wants_extra:
            d_extra = torch.empty_like(extra, memory_format=torch.contiguous_format)
        return {"d_rows": d_rows, "d_extra": d_extra}

    whole = plan(cell, weight_hh, batch, backwards=True) if steps > 1 else None
    if whole is not None:
        kernel, parts = kernels("sequences").backward_sequence, sums(whole)
        inputs = shared | parts | {"weight": weight_hh.contiguous()}
        try:
            launch(kernel, whole, steps, backwards=True, **inputs)
            product(d_products[0], weight_hh, dh)
        except RefusedError as error:
            say(str(error))
            whole = None
    if whole is None:
        how = single_steps(batch, size)
        kernel, parts = kernels("kernels").backward_step[how.grid], sums(how)
        inputs = shared | parts | how.tiles
        for t in reversed(range(steps)):
            kernel(**inputs, t=t)
            product(d_products[t], weight_hh, dh)
    if not cell.has_cell:
        dh += d_state
    d_rows = parts["d_rows"].sum(0) if learns else None
    d_extra = parts["d_extra"].sum(0) if cell.routes else parts["d_extra"]
    return Grads(d_gates, d_products, d_extra, d_rows, dh, d_state)

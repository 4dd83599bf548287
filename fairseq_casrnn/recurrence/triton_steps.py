"""The time loops of engine ``triton``, forward and backward.

Where :mod:`.triton_plan` allows it, one launch makes all steps; otherwise each step is a product
and a launch.
"""

from __future__ import annotations

import functools
import importlib
import logging
from typing import NamedTuple

import torch

from . import triton_compiling
from .engine import log_once
from .inputs import accumulation_dtype
from .triton_plan import GIVEN, Plan, RefusedError, launch, plan

TILE = 4, 128
"""Rows and units of a program that makes one step, at most: few, to spread over the whole GPU."""


@functools.cache
def kernels(kind: str):
    """The module ``triton_kind``; reading it needs Triton and takes a second."""
    triton_compiling.listen()
    return importlib.import_module(f"{__package__}.triton_{kind}")


def explain_steps(reason: str) -> None:
    """Log once why a sequence is not launched whole."""
    log_once(logging.INFO, "engine 'triton' launches a kernel a step: %s", reason)


class Saved(NamedTuple):
    """What the forward fills.

    Attributes:
        gates: ``(T, B, ih_blocks*H)``, activated.
        candidate: ``(T, B, H)``, the part of U h that is not simply added, or None.
        hs: ``(T+1, B, H)`` in the inputs' dtype, the initial state first.
        states: ``(T+1, B, H)``, c, or h where the cell has no c; hs itself where that will do.
        rows: the elementwise parameters as the kernels read them, or None.
    """

    gates: torch.Tensor
    candidate: torch.Tensor | None
    hs: torch.Tensor
    states: torch.Tensor
    rows: torch.Tensor | None


class Grads(NamedTuple):
    """What the backward fills; shapes as of what they are gradients of.

    Attributes:
        products: of U h for all steps, ``(T, B, hh_blocks*H)``.
        side: of what the step read through ``side``, or None.
        rows: of the parameters' rows, or None.
        state: ``(B, H)``, of the initial state.
    """

    products: torch.Tensor
    side: torch.Tensor | None
    rows: torch.Tensor | None
    state: torch.Tensor


def product(a, b, out):
    """The product of two matrices, summed in the precision of ``out``, where it is written."""
    if a.dtype == out.dtype:
        return torch.mm(a, b, out=out)
    if a.is_cuda and hasattr(torch.ops.aten.mm, "dtype_out"):
        return torch.mm(a, b, out_dtype=out.dtype, out=out)
    return torch.mm(a.to(out.dtype), b.to(out.dtype), out=out)


def contiguous(tensor):
    """``tensor``, or None, with its elements in order, at an address that kernels expect.

    Triton compiles another kernel for one that is no multiple of 16.
    """
    if tensor is None:
        return None
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


@functools.cache
@torch.inference_mode(False)
def nothing(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """For an argument that is not there, and not read."""
    return torch.zeros(16, dtype=dtype, device=device)


def given(device: torch.device, **tensors) -> dict:
    """Arguments that may be missing, each a pair ``(tensor or None, dtype)``, in the order of
    :data:`.triton_plan.GIVEN`, and the bits that say which there are.
    """
    arguments, bits = {}, 0
    for bit, (name, (tensor, dtype)) in zip(GIVEN, tensors.items(), strict=False):
        bits |= 0 if tensor is None else bit
        arguments[name] = nothing(dtype, device) if tensor is None else contiguous(tensor)
    return arguments | {"given": bits}


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


def arguments(cell, saved: Saved, side, table: str) -> dict:
    """Those that all kernels have."""
    gates, candidate, hs, states, rows = saved
    return {
        "gates": gates,
        "candidate": candidate,
        "side": contiguous(side),
        "rows": gates if rows is None else rows,  # a pointer all the same, though it is not read
        "states": states,
        "batch": hs.size(1),
        "steps": gates.size(0),
        "size": hs.size(2),
        "BLOCKS": cell.ih_blocks,
        "PRODUCTS": cell.hh_blocks,
        "PARAMS": 0 if rows is None else rows.size(0),
        "CELLS": cell.num_cells,
        "cell": getattr(kernels("kernels"), table)[cell.kernel],
    }


def allocate(cell, gx, x, weight_ih, weight_hh, h0, params) -> Saved:
    """What the forward fills, with W x in gates."""
    dtype, wide = weight_hh.dtype, accumulation_dtype(weight_hh.dtype)
    batch, size = h0.shape
    if x is None:
        # In place: gx is the output of a linear map, which autograd does not save.
        gates = contiguous(gx.detach().to(wide))
    else:
        gates = x.new_empty(x.size(0), batch, weight_ih.size(0), dtype=wide)
        product(x.flatten(0, 1), weight_ih.t(), gates.flatten(0, 1))
    shape = gates.size(0) + 1, batch, size
    hs = gates.new_empty(shape, dtype=dtype)
    states = hs if not cell.has_cell and dtype == wide else gates.new_empty(shape)
    candidate = gates.new_empty(gates.size(0), batch, size) if cell.num_separate_gates else None
    rows = cell.kernel_rows([p.to(wide) for p in params], gates, size)
    return Saved(gates, candidate, hs, states, contiguous(rows))


@on_its_device
def forward(cell, gx, x, weight_ih, bias, weight_hh, h0, c0, side, last, params, keep):
    """The forward loop; the gates are not activated unless ``keep``.

    Returns:
        Saved, and h and c ``(B, H)`` at each row's last step, c None for a cell without c.
    """
    saved = allocate(cell, gx, x, weight_ih, weight_hh, h0, params)
    gates, _, hs, states, _ = saved
    steps, batch = gates.shape[:2]
    h_n = torch.empty_like(hs[0])
    c_n = torch.empty_like(h_n) if cell.has_cell else None
    shared = arguments(cell, saved, side, "FORWARD")
    shared |= {"bias": contiguous(bias), "hs": hs, "h_n": h_n, "c_n": c_n, "KEEP": keep}
    shared |= {"ADDED": cell.hh_blocks - cell.num_separate_gates}
    shared |= given(gates.device, last=(last, torch.int64))
    whole = plan(cell, weight_hh, batch) if steps > 1 else None
    if whole is not None:
        inputs = {"weight": contiguous(weight_hh), "h0": contiguous(h0), "c0": contiguous(c0)}
        try:
            launch(kernels("sequences").forward_sequence, whole, **shared, **inputs)
        except RefusedError as error:
            explain_steps(str(error))
        else:
            return saved, h_n, c_n
    hs[0] = h0
    states[0] = c0 if cell.has_cell else h0
    grid, tiles = single_steps(batch, hs.size(2))
    kernel, weight_t = kernels("kernels").forward_step[grid], weight_hh.t()
    products = gates.new_empty(batch, weight_hh.size(0))
    for t in range(steps):
        product(hs[t], weight_t, products)
        kernel(**shared, **tiles, products=products, t=t)
    return saved, h_n, c_n


def trained(cell, rows) -> int:
    """How many of the rows of elementwise parameters get a gradient."""
    return rows.size(0) if cell.params and rows is not None else 0


@on_its_device
def backward(cell, saved: Saved, side, weight_hh, d_gates, grads, last, wants_side):
    """The backward loop.

    Args:
        d_gates: where to write the gradient of the gates' sums.
        grads: of hs, cs, h_n and c_n, each may be None.

    Returns:
        Grads.
    """
    gates, candidate, hs, states, rows = saved
    steps, batch, size = hs.size(0) - 1, *hs.shape[1:]
    split = cell.hh_blocks * size
    d_products = d_gates[..., :split] if candidate is None else hs.new_empty(steps, batch, split)
    d_state = torch.empty_like(states[0])
    shared = arguments(cell, saved, side, "BACKWARD")
    shared |= {"d_gates": d_gates, "d_products": d_products, "d_state": d_state}
    shared |= {"GRADS": trained(cell, rows)}
    dtypes = hs.dtype, gates.dtype, hs.dtype, hs.dtype
    names = "grad_h", "grad_c", "grad_hn", "grad_cn"
    grads = dict(zip(names, zip(grads, dtypes, strict=True), strict=True))
    shared |= given(gates.device, last=(last, torch.int64), **grads)

    def sums(how: Plan) -> dict:
        """Where each tile of rows, or of units, is to sum its own part of a gradient."""
        d_rows, d_side = gates, None
        if shared["GRADS"]:
            d_rows = gates.new_zeros(-(-batch // how.tiles["ROWS"]), *rows.shape)
        if cell.num_cells:
            d_side = gates.new_empty(how.grid[1], *side.shape)
        elif side is not None and wants_side:
            d_side = torch.empty_like(side, memory_format=torch.contiguous_format)
        return {"d_rows": d_rows, "d_side": d_side}

    whole = plan(cell, weight_hh, batch, backwards=True) if steps > 1 else None
    if whole is not None:
        kernel, parts = kernels("sequences").backward_sequence, sums(whole)
        try:
            launch(kernel, whole, backwards=True, **shared, **parts, weight=contiguous(weight_hh))
        except RefusedError as error:
            explain_steps(str(error))
            whole = None
    if whole is None:
        how = single_steps(batch, size)
        kernel, parts = kernels("kernels").backward_step[how.grid], sums(how)
        dh = torch.empty_like(d_state)
        for t in reversed(range(steps)):
            kernel(**shared, **parts, **how.tiles, dh=dh, t=t)
            if t > 0:
                product(d_products[t], weight_hh, dh)
    d_rows = parts["d_rows"].sum(0) if shared["GRADS"] else None
    d_side = parts["d_side"].sum(0) if cell.num_cells else parts["d_side"]
    return Grads(d_products, d_side, d_rows, d_state)

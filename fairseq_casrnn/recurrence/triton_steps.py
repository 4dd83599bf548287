"""The time loops of engine ``triton``, forward and backward: a product and a kernel a step."""

from __future__ import annotations

import functools
import importlib
from typing import NamedTuple

import torch

from .cpp import kernel_params
from .inputs import kept

TILE = 4, 128
"""Rows and units of a program, at most: few, for a step is to spread over the whole GPU."""


@functools.cache
def kernels():
    """The module of kernels; reading it needs Triton and takes a second."""
    return importlib.import_module(f"{__package__}.triton_kernels")


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


def product(a, b, out):
    """The product of two matrices, summed in the precision of ``out``, where it is written."""
    if a.dtype == out.dtype:
        return torch.mm(a, b, out=out)
    if a.is_cuda and hasattr(torch.ops.aten.mm, "dtype_out"):
        return torch.mm(a, b, out_dtype=out.dtype, out=out)
    return torch.mm(a.to(out.dtype), b.to(out.dtype), out=out)


def tiles(batch: int, size: int) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid of programs for a step and the tile of each."""
    rows, units = TILE[0], min(TILE[1], 1 << (size - 1).bit_length())
    return (-(-batch // rows), -(-size // units)), {"ROWS": rows, "UNITS": units}


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
    step = forward_step(cell, name, saved, contiguous(bias), contiguous(extra), keep)
    weight_t, products = weight_hh.t(), gates.new_empty(batch, weight_hh.size(0))
    for t in range(steps):
        product(hs[t], weight_t, products)
        step(products, t)
    return saved


def forward_step(cell, name, saved: Saved, bias, extra, keep):
    """A function that launches one step's kernel: ``step(products, t)``."""
    gates, inner, hs, states, rows = saved
    batch, size = hs.shape[1:]
    module, (grid, shape) = kernels(), tiles(batch, size)
    if cell.routes:
        kernel = module.mixture_forward_step[grid]
        shape |= {"CELLS": cell.routes, "KEEP": keep}

        def mixture_step(products, t):
            kernel(gates, bias, products, extra, hs, states, t, batch, size, **shape)

        return mixture_step
    kernel = module.forward_step[grid]
    added = cell.hh_blocks - cell.inner_blocks
    shape |= blocks(cell, rows) | {"ADDED": added, "KEEP": keep, "cell": module.FORWARD[name]}
    rows = gates if rows is None else rows  # a pointer all the same, though it is not read

    def step(products, t):
        kernel(gates, bias, products, inner, extra, rows, hs, states, t, batch, size, **shape)

    return step


def blocks(cell, rows) -> dict[str, int]:
    """The sizes of ``cell`` as its kernels want them."""
    count = 0 if rows is None else rows.size(0)
    return {"BLOCKS": cell.ih_blocks, "PRODUCTS": cell.hh_blocks, "PARAMS": count}


def trained(name: str, rows) -> int:
    """How many of the rows of elementwise parameters get a gradient."""
    return 0 if rows is None or name == "cas" else rows.size(0)


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
    (row_tiles, unit_tiles), _ = tiles(batch, size)
    split = cell.hh_blocks * size
    d_products = d_gates[..., :split] if inner is None else hs.new_empty(steps, batch, split)
    d_rows = d_extra = None
    if trained(name, rows):
        d_rows = gates.new_zeros(row_tiles, *rows.shape)
    if cell.routes:
        d_extra = gates.new_empty(unit_tiles, *extra.shape)
    elif extra is not None and wants_extra:
        d_extra = torch.empty_like(extra, memory_format=torch.contiguous_format)
    grads = Grads(d_gates, d_products, d_extra, d_rows, dh, d_state)
    outside = contiguous(grad_h), contiguous(grad_state)
    step = backward_step(cell, name, saved, contiguous(extra), grads, *outside)
    for t in reversed(range(steps)):
        step(t)
        product(d_products[t], weight_hh, dh)
    if not cell.has_cell:
        dh += d_state
    # Every tile of rows, or of units, has summed its own.
    d_rows = None if d_rows is None else d_rows.sum(0)
    d_extra = d_extra.sum(0) if cell.routes else d_extra
    return grads._replace(rows=d_rows, extra=d_extra)


def backward_step(cell, name, saved: Saved, extra, grads: Grads, grad_h, grad_state):
    """A function that launches one step's kernel: ``step(t)``."""
    gates, inner, _, states, rows = saved
    batch, size = states.shape[1:]
    module, (grid, shape) = kernels(), tiles(batch, size)
    ends = grad_h, grad_state, grads.h, grads.state
    if cell.routes:
        kernel, steps = module.mixture_backward_step[grid], gates.size(0)
        shape |= {"CELLS": cell.routes}

        def mixture_step(t):
            kernel(
                gates,
                grads.gates,
                extra,
                grads.extra,
                states,
                *ends,
                t,
                batch,
                steps,
                size,
                **shape,
            )

        return mixture_step
    kernel = module.backward_step[grid]
    shape |= blocks(cell, rows) | {"GRADS": trained(name, rows), "cell": module.BACKWARD[name]}
    rows = gates if rows is None else rows
    d_rows = gates if grads.rows is None else grads.rows
    tensors = (
        *(gates, grads.gates, inner, grads.products, extra, grads.extra, rows, d_rows, states),
        *ends,
    )

    def step(t):
        kernel(*tensors, t, batch, size, **shape)

    return step

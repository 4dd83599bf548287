"""Engine ``triton``: the loop of :mod:`.eager` on a GPU.

The input's product is one for all steps; each step is a product U h and one kernel with all of the
cell's maths (:mod:`.triton_kernels`), forward and backward; the weights' gradients are one product
each after the loop.

In float16 and bfloat16 only the products' factors are rounded: gates, cell states and their
gradients are kept in float32, of a cell without c also h. The cells ``cs`` that :func:`run` returns
are float32 then, for the layer above; all else has the inputs' dtype.

The engine runs on CUDA tensors; on others where Triton interprets its kernels
(``TRITON_INTERPRET=1``), which is for tests. For anything else, and for a cell without a kernel,
``eager`` steps in. Nothing is compiled before the first run.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
from typing import NamedTuple

import torch

from ..cells.base import Cell
from ..cells.cas_lstm import CASCell
from . import eager
from .cpp import KERNELS, kernel_params, param_grads
from .inputs import InputProduct
from .reference import at_last

logger = logging.getLogger(__name__)

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
TILE = 4, 128
"""Rows and units of a program, at most: few, for a step is to spread over the whole GPU."""


def missing() -> str | None:
    """Why there is no engine ``triton`` here, or None."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    return None


@functools.cache
def kernels():
    """The module of kernels; reading it needs Triton and takes a second."""
    return importlib.import_module(f"{__package__}.triton_kernels")


def interpreting() -> bool:
    """Whether Triton interprets its kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0", "false", "False")


def why_not(cell: Cell, *tensors) -> str | None:
    """Why the kernels cannot run ``cell`` on ``tensors`` (None among them is ignored), or None."""
    tensors = [t for t in tensors if t is not None]
    first = tensors[0]
    if type(cell) not in KERNELS:
        return f"it has no kernel for {type(cell).__name__}"
    if first.device.type != "cuda" and not (interpreting() and first.device.type == "cpu"):
        return f"it runs on CUDA tensors, these are on {first.device.type}"
    if any(t.device != first.device for t in tensors):
        return "the tensors are on several devices"
    if first.dtype not in DTYPES:
        return f"it does not run in {first.dtype}"
    if any(t.dtype not in (first.dtype, kept(first.dtype)) for t in tensors):
        return "the tensors are of several dtypes"
    return None


@functools.cache
def say(reason: str) -> None:
    """Log once why ``eager`` steps in."""
    logger.info("engine 'triton' leaves this to 'eager': %s", reason)


def kept(dtype: torch.dtype) -> torch.dtype:
    """The dtype of gates and states for inputs of ``dtype``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def run(cell: Cell, gx, weight_hh, h0, c0, extra=None, last=None, params=()):
    """Run ``cell`` over time; see :func:`fairseq_casrnn.recurrence.run` for the arguments."""
    fused = isinstance(gx, InputProduct)
    inputs = (None, gx.x, gx.weight, gx.bias) if fused else (gx, None, None, None)
    tensors = (*inputs, weight_hh, h0, c0, extra)
    reason = why_not(cell, weight_hh, *tensors, *params)
    if reason is not None:
        say(reason)
        gx = gx.compute() if fused else gx
        return eager.run(cell, gx, weight_hh, h0, c0, extra, last, params)
    if torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (*tensors, *params)
    ):
        result = _Loop.apply(cell, last, *tensors, *params)
    else:
        result = outputs(cell, forward(cell, *tensors, params, keep=False), last)
    hs, cs, h_n, c_n = result
    return (hs, cs, h_n, c_n) if cell.has_cell else (hs, None, h_n, None)


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
    saved = Saved(gates, inner, hs, states, rows)
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


def outputs(cell, saved: Saved, last):
    """What an engine returns; c and c_n None for a cell without c."""
    hs, cs, c_n = saved.hs[1:], None, None
    if cell.has_cell:
        cs = saved.states[1:]
        c_n = at_last(cs, last).to(hs.dtype, copy=True)
    return hs, cs, at_last(hs, last).clone(), c_n


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


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cell, last, gx, x, weight_ih, bias, weight_hh, h0, c0, extra, *params):
        saved = forward(cell, gx, x, weight_ih, bias, weight_hh, h0, c0, extra, params, keep=True)
        ctx.cell = cell
        ctx.dtypes = [None if t is None else t.dtype for t in (gx, bias, h0, c0, extra)]
        ctx.save_for_backward(*saved, x, weight_ih, weight_hh, extra, last, *params)
        ctx.set_materialize_grads(False)
        return outputs(cell, saved, last)

    @staticmethod
    @eager.without_autocast
    def backward(ctx, grad_hs, grad_cs, grad_hn, grad_cn):
        eager.refuse_create_graph("triton")
        cell, tensors = ctx.cell, ctx.saved_tensors
        saved, (x, weight_ih, weight_hh, extra, last, *params) = Saved(*tensors[:5]), tensors[5:]
        gates, _, hs, states, rows = saved
        grad_hs, dh = eager.merge_last(grad_hs, grad_hn, last, hs)
        grad_cn = None if grad_cn is None else grad_cn.to(gates.dtype)
        grad_cs, dc = eager.merge_last(grad_cs, grad_cn, last, states)
        dh, dc = (
            torch.zeros_like(states[0]) if g is None else g.to(gates.dtype, copy=True).contiguous()
            for g in (dh, dc)
        )
        overwrite = gates.dtype == hs.dtype and not eager.keeps_graph()
        d_gates = gates if overwrite else torch.empty_like(gates, dtype=hs.dtype)
        name = "cas_trained" if params and isinstance(cell, CASCell) else KERNELS[type(cell)]
        wants = ctx.needs_input_grad
        grads = backward(
            cell, name, saved, extra, weight_hh, d_gates, grad_hs, grad_cs, dh, dc, wants[9]
        )
        d_params = param_grads(cell, grads.rows, rows, params) if params else ()
        d_params = [d.to(p.dtype) for d, p in zip(d_params, params, strict=True)]
        d_weight_hh = torch.mm(grads.products.flatten(0, 1).t(), hs[:-1].flatten(0, 1))
        d_gx = d_x = d_weight_ih = d_bias = None
        if x is None:
            d_gx = d_gates
        else:
            flat = d_gates.flatten(0, 1)
            d_x = torch.mm(flat, weight_ih).view_as(x) if wants[3] else None
            d_weight_ih = torch.mm(flat.t(), x.flatten(0, 1))
            d_bias = flat.sum(0, dtype=gates.dtype)
        outer = (d_gx, d_bias, grads.h, grads.state if cell.has_cell else None, grads.extra)
        d_gx, d_bias, dh, dc, d_extra = (
            g if g is None else g.to(dtype) for g, dtype in zip(outer, ctx.dtypes, strict=True)
        )
        return None, None, d_gx, d_x, d_weight_ih, d_bias, d_weight_hh, dh, dc, d_extra, *d_params

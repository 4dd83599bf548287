"""Engine ``triton``: the loop of :mod:`.eager` on a GPU.

The input's product is one for all steps, and the weights' gradients are one product each after the
loop. The loop is one launch (:mod:`.triton_sequences`); in float64, for a single step and on GPUs
that cannot do that each step is a product U h and one kernel with all of the cell's maths
(:mod:`.triton_kernels`). A small layer takes longer to launch than to compute: what a kernel can
read or write itself is not worth an operation of torch's.

In float16 and bfloat16 only the products' factors are rounded: gates, cell states and their
gradients are kept in float32, of a cell without c also h. The cells ``cs`` that :func:`run` returns
are float32 then, for the layer above; all else has the inputs' dtype.

The engine runs on CUDA tensors; on others where Triton interprets its kernels
(``TRITON_INTERPRET=1``), which is for tests. For anything else, for a cell without a kernel, and
where Triton does not work (:mod:`.triton_failures`), ``eager`` steps in, on the CPU its default.
Kernels are compiled as they are first needed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util

import torch

from ..cells.base import Cell
from . import eager
from .inputs import InputProduct, accumulation_dtype, side_input, wants_gradient
from .triton_failures import stop
from .triton_plan import interpreting
from .triton_steps import Saved, backward, forward, product

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
OLDEST = 3, 6
"""Version of Triton."""


def missing() -> str | None:
    """Why there is no engine ``triton`` here, or None."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:  # a build under another name
        return None
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        return f"Triton {version} is too old; it needs {'.'.join(map(str, OLDEST))} or newer"
    return None


def why_not(cell: Cell, tensors, states=()) -> str | None:
    """Why the kernels cannot run ``cell`` on these, or None. None among the tensors is ignored.

    ``states`` may have the dtype in which states are kept.
    """
    if cell.kernel is None:
        return f"it has no kernel for {type(cell).__name__}"
    return why_not_on(tensors, states)


def why_not_on(tensors, states=()) -> str | None:
    """Why kernels cannot run on these, or None; as in :func:`why_not`."""
    device, dtype = tensors[0].device, tensors[0].dtype
    if device.type != "cuda" and not (interpreting() and device.type == "cpu"):
        return f"it runs on CUDA tensors, these are on {device.type}"
    if dtype not in DTYPES:
        return f"it does not run in {dtype}"
    wide = accumulation_dtype(dtype)
    for given, allowed in ((tensors, (dtype,)), (states, (dtype, wide))):
        for t in given:
            if t is not None and t.device != device:
                return "the tensors are on several devices"
            if t is not None and t.dtype not in allowed:
                return "the tensors are of several dtypes"
    return None


def run(cell: Cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params):
    """Run ``cell`` over time; see :func:`fairseq_casrnn.recurrence.run` for the arguments."""
    fused = isinstance(gx, InputProduct)
    inputs = (None, gx.x, gx.weight, gx.bias) if fused else (gx, None, None, None)
    tensors = (*inputs, weight_hh, h0, c0, side_input(lower_c, mixture))
    if wants_gradient(*tensors, *params):
        hs, cs, h_n, c_n = _Loop.apply(cell, last, *tensors, *params)
    else:
        made = forward(cell, *tensors, last, params, keep=False)
        hs, cs, h_n, c_n = outputs(cell, *made)
    return (hs, cs, h_n, c_n) if cell.has_cell else (hs, None, h_n, None)


def outputs(cell, saved: Saved, h_n, c_n):
    """What an engine returns; c and c_n None for a cell without c."""
    return saved.hs[1:], saved.states[1:] if cell.has_cell else None, h_n, c_n


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cell, last, gx, x, weight_ih, bias, weight_hh, h0, c0, side, *params):
        saved, h_n, c_n = forward(
            cell, gx, x, weight_ih, bias, weight_hh, h0, c0, side, last, params, keep=True
        )
        ctx.cell = cell
        ctx.dtypes = [None if t is None else t.dtype for t in (gx, bias, h0, c0, side)]
        ctx.save_for_backward(*saved, x, weight_ih, weight_hh, side, last, *params)
        ctx.set_materialize_grads(False)
        return outputs(cell, saved, h_n, c_n)

    @staticmethod
    @eager.without_autocast
    def backward(ctx, *grads):
        eager.check_backward("triton", *grads)
        cell, tensors = ctx.cell, ctx.saved_tensors
        saved, (x, weight_ih, weight_hh, side, last, *params) = Saved(*tensors[:5]), tensors[5:]
        gates, _, hs, _, rows = saved
        overwrite = gates.dtype == hs.dtype and not eager.retain_graph_requested()
        d_gates = gates if overwrite else torch.empty_like(gates, dtype=hs.dtype)
        _, _, _, wants_x, _, _, wants_hh, wants_h, wants_c, wants_side, *_ = ctx.needs_input_grad
        try:
            made = backward(cell, saved, side, weight_hh, d_gates, grads, last, wants_side)
        except Exception as error:
            stop(error)
        d_params = cell.kernel_param_grads(made.rows, rows, params)
        d_params = [d.to(p.dtype) for d, p in zip(d_params, params, strict=True)]
        d_gx, d_x, d_weight_ih, d_bias = input_grads(d_gates, x, weight_ih, wants_x)
        d_weight_hh = dh = None
        if wants_hh:
            d_weight_hh = torch.mm(made.products.flatten(0, 1).t(), hs[:-1].flatten(0, 1))
        if wants_h:
            dh = torch.empty_like(made.state)
            product(made.products[0], weight_hh, dh)
            dh = dh if cell.has_cell else dh.add_(made.state)
        dc = made.state if wants_c else None
        d_gx, d_bias, dh, dc, d_side = (
            g if g is None else g.to(dtype)
            for g, dtype in zip((d_gx, d_bias, dh, dc, made.side), ctx.dtypes, strict=True)
        )
        return None, None, d_gx, d_x, d_weight_ih, d_bias, d_weight_hh, dh, dc, d_side, *d_params


def input_grads(d_gates, x, weight_ih, wants_x: bool):
    """Gradients of gx (where there is no x), x, weight_ih and the bias."""
    if x is None:
        return d_gates, None, None, None
    flat = d_gates.flatten(0, 1)
    d_x = torch.mm(flat, weight_ih).view_as(x) if wants_x else None
    # In half precision torch's sum is one of float32, too.
    return None, d_x, torch.mm(flat.t(), x.flatten(0, 1)), flat.sum(0)

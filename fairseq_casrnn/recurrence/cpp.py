"""Engine ``cpp``: the loop of :mod:`.eager` in C++ (``fairseq_casrnn/csrc``), compiled when the package is installed.

It runs float32 and float64 on the CPU; for anything else, or a cell without a kernel, ``eager`` steps in.
"""

from __future__ import annotations

import functools
import importlib

import torch

from ..cells.base import Cell
from ..cells.cas_lstm import CASCell
from ..cells.dg_lstm import DGCell, PeepholeCell
from ..cells.gru import GRUCell
from ..cells.highway_lstm import HighwayCell
from ..cells.lstm import LSTMCell
from ..cells.normalized_lstm import NormalizedLSTMCell
from ..cells.second_order_lstm import SecondOrderCell
from . import eager
from .reference import at_last

KERNELS: dict[type[Cell], str] = {
    LSTMCell: "lstm",
    NormalizedLSTMCell: "normalized",
    CASCell: "cas",
    HighwayCell: "highway",
    PeepholeCell: "peephole",
    DGCell: "depth_gated",
    GRUCell: "gru",
    SecondOrderCell: "mixture",
}
"""The kernel of each cell; by exact class, for a subclass may compute something else."""


@functools.cache
def extension():
    """``(module, None)``, or ``(None, why not)`` when there is no compiled extension to use."""
    name = f"{__package__.rpartition('.')[0]}._cpp"
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError):
            return None, "it was not compiled at installation"
        return None, f"it cannot be loaded: {error}"
    built, here = (".".join(v.split(".")[:2]) for v in (module.torch_version, torch.__version__))
    if built != here:
        return None, f"it was compiled for torch {built} and this is torch {here}; install again"
    return module, None


def supports(cell: Cell, *tensors) -> bool:
    """Whether the compiled loop can run ``cell`` on ``tensors`` (None among them is ignored)."""
    if type(cell) not in KERNELS:
        return False
    dtype = tensors[0].dtype
    return dtype in (torch.float32, torch.float64) and all(
        t is None or (t.dtype == dtype and t.device.type == "cpu") for t in tensors
    )


def run(cell: Cell, gx, weight_hh, h0, c0, extra=None, last=None, params=()):
    """Run ``cell`` over time; see :func:`fairseq_casrnn.recurrence.run` for the arguments."""
    if not supports(cell, gx, weight_hh, h0, c0, extra, *params):
        return eager.run(cell, gx, weight_hh, h0, c0, extra, last, params)
    hs, cs, h_n, c_n = _Loop.apply(cell, gx, weight_hh, h0, c0, extra, last, *params)
    if cell.has_cell:
        return hs, cs, h_n, c_n
    return hs, None, h_n, None


def kernel_params(cell: Cell, size: int, params, like):
    """The kernel's name and its elementwise parameters as one ``(rows, size)`` tensor or None."""
    name = KERNELS[type(cell)]
    if isinstance(cell, CASCell):
        past, lower = cell.weights(params)
        if cell.trainable:
            return "cas_trained", torch.stack([past, lower])
        rows = torch.tensor([[past], [lower]], dtype=like.dtype)
        return name, rows.expand(2, size).contiguous()
    rows = [p.view(-1, size) for p in params]
    if len(rows) < 2:
        return name, rows[0] if rows else None
    return name, torch.cat(rows)


def param_grads(cell: Cell, d_rows, rows, params):
    """The gradients of ``params`` from those of the kernel's rows."""
    if not params:
        return ()
    if isinstance(cell, CASCell):  # the rows are 1-λ and λ = σ(lam_logit)
        return (((d_rows[1] - d_rows[0]) * rows[0] * rows[1]).view_as(params[0]),)
    size = d_rows.size(1)
    parts = d_rows.split([p.numel() // size for p in params])
    return tuple(part.view_as(p) for part, p in zip(parts, params, strict=True))


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cell, gx, weight_hh, h0, c0, extra, last, *params):
        module, _ = extension()
        gates = (
            gx.detach().contiguous()
        )  # ours to overwrite: nobody keeps the result of a linear map
        name, rows = kernel_params(cell, h0.size(-1), params, gates)
        hs, cs, inner = module.forward(name, gates, weight_hh, None, h0, c0, extra, rows)
        ctx.cell, ctx.name = cell, name
        ctx.save_for_backward(gates, inner, hs, cs, weight_hh, extra, last, rows, *params)
        ctx.set_materialize_grads(False)
        out_c = None if cs is None else cs[1:]
        c_n = None if cs is None else at_last(out_c, last).clone()
        return hs[1:], out_c, at_last(hs[1:], last).clone(), c_n

    @staticmethod
    def backward(ctx, grad_hs, grad_cs, grad_hn, grad_cn):
        eager.refuse_create_graph("cpp")
        cell = ctx.cell
        gates, inner, hs, cs, weight_hh, extra, last, rows, *params = ctx.saved_tensors
        grad_hs, dh_n = eager.merge_last(grad_hs, grad_hn, last, hs)
        grad_cs, dc_n = eager.merge_last(grad_cs, grad_cn, last, hs)
        if eager.keeps_graph():  # a second backward must find the activated gates again
            gates = gates.clone()
            inner = None if inner is None else inner.clone()
        module, _ = extension()
        d_weight, dh, dc, d_extra, d_rows = module.backward(
            ctx.name, gates, inner, hs, cs, weight_hh, extra, rows, grad_hs, grad_cs, dh_n, dc_n,
            ctx.needs_input_grad[5],
        )  # fmt: skip
        d_params = param_grads(cell, d_rows, rows, params)
        return None, gates, d_weight, dh, dc, d_extra, None, *d_params

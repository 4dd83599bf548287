"""Engine ``cpp``: the loop of :mod:`.eager` in C++ (``csrc/``), compiled at installation.

It runs float32 and float64 on the CPU.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import torch

from ..cells.base import Cell
from . import eager, sources
from .inputs import InputProduct, side_input, wants_gradient
from .ragged import PackedLayout, PaddedLayout, after_start

DTYPES = (torch.float32, torch.float64)


ROUTED_WEIGHTS = 1 << 16
"""Elements of a mixture's recurrent weights from which the chosen cells alone are faster."""


RAGGED_PRODUCTS = 1 << 22
"""Multiplications for padding from which it is faster to sort the sequences and leave it out."""


PACKAGE = Path(__file__).resolve().parents[1]


OPS = torch.ops.fairseq_casrnn
"""The registered operators (``csrc/ops.cpp``), once :func:`extension` has loaded them."""


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` as it lies in memory for C++, which knows neither strides nor a pending sign."""
    return tensor.contiguous().resolve_neg()


@functools.cache
def extension():
    """``(module, None)``, or ``(None, why not)`` when there is no compiled extension to use."""
    name = f"{__package__.rpartition('.')[0]}._cpp"
    spec = importlib.util.find_spec(name)
    if spec is None or Path(spec.origin).parent.resolve() != PACKAGE:
        # Or it is another copy's, which an editable installation lends to every package here.
        return None, not_compiled(spec and Path(spec.origin).parent)
    compiled = Path(spec.origin).read_bytes()
    if sources.digest(PACKAGE) not in (None, marked(compiled, "sources")):
        return None, "it was compiled from other C++ sources than this package's; install again"
    if lacking := sorted(needs(compiled) - instructions()):
        return None, (
            f"it was compiled for a processor with {', '.join(lacking)}, which this one lacks; "
            "install again here, or with CASRNN_MARCH=x86-64-v3 for all that have AVX2"
        )
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        return None, not_compiled()
    except ImportError as error:
        return None, f"it cannot be loaded ({error}); install again"
    built, here = (".".join(v.split(".")[:2]) for v in (module.torch_version, torch.__version__))
    if built != here:
        return None, f"it was compiled for torch {built} and this is torch {here}; install again"
    from . import cpp_fakes  # needs the operators, which the module has registered

    cpp_fakes.register()
    return module, None


def not_compiled(other: Path | None = None) -> str:
    """Why there is no extension here; ``other`` is a copy of the package that has one."""
    for folder in sys.path if other is None else ():
        for library in Path(folder, PACKAGE.name).glob("_cpp.*"):
            if library.parent.resolve() != PACKAGE:
                other = library.parent.resolve()
    if other is None:
        return "it was not compiled at installation"
    return (
        f"it was compiled for the copy of this package in {other}, and this one is in {PACKAGE}; "
        f"install this one: pip install --no-build-isolation -e {PACKAGE.parent}"
    )


def marked(compiled: bytes, what: str) -> str | None:
    """What the compiled file says of itself: ``csrc/needs.h``."""
    found = re.search(rb"fairseq_casrnn %b: *([ \w]*);" % what.encode(), compiled)
    return None if found is None else found[1].decode()


def needs(compiled: bytes) -> set[str]:
    """The instructions that the extension was compiled with."""
    return set((marked(compiled, "needs") or "").split()) if instructions() else set()


@functools.cache
def instructions() -> frozenset[str]:
    """Those of this machine's processor by Linux's names; empty where they are not known."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def why_not(cell: Cell, *tensors) -> str | None:
    """Why the compiled loop cannot run ``cell`` on ``tensors`` (None among them is ignored)."""
    if cell.kernel is None:
        return f"it has no kernel for {type(cell).__name__}"
    dtype = tensors[0].dtype
    if dtype not in DTYPES:
        return f"it does not run in {dtype}"
    # torch.compile cannot ask is_neg; the dispatcher resolves the sign before it calls an operator.
    compiling = torch.compiler.is_compiling()
    for t in tensors:
        if t is None:
            continue
        if t.dtype != dtype or not t.is_cpu or not t.numel() or (not compiling and t.is_neg()):
            return "a tensor is of another dtype, elsewhere, empty, or a view with the other sign"
    return None


def run(cell: Cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params):
    """Run ``cell`` over time; see :func:`fairseq_casrnn.recurrence.run` for the arguments."""
    fused = isinstance(gx, InputProduct)
    inputs = (None, gx.x, gx.weight, gx.bias) if fused else (gx, None, None, None)
    tensors = (*inputs, weight_hh, h0, c0, side_input(lower_c, mixture))
    layout = layout_of(cell, gx, h0, last)
    if wants_gradient(*tensors, *params):
        hs, cs, h_n, c_n = _Loop.apply(cell, layout, *tensors, *params)
    else:
        hs, cs, *_ = forward(cell, layout, *tensors, params, keep=False)
        hs, cs, h_n, c_n = outputs(hs, cs, layout)
    if cell.has_cell:
        return hs, cs, h_n, c_n
    return hs, None, h_n, None


def why_not_routed(cell: Cell, gx, weight_hh, h0, c0) -> str | None:
    """Why :func:`run_routed` cannot run these, or is not worth its sorting of the rows.

    Small weights are multiplied faster than rows are sorted.
    """
    if not isinstance(gx, InputProduct) or cell.kernel != "second_order_lstm" or cell.num_cells < 2:
        return "it is no mixture"
    tensors = (gx.x, gx.weight, gx.bias, weight_hh, h0, c0)
    if weight_hh.numel() < ROUTED_WEIGHTS or wants_gradient(*tensors):
        return "the layer is small, or learns"
    return why_not(cell, *tensors)


def run_routed(gx: InputProduct, weight_hh, h0, c0, cells, last=None):
    """Run a mixture, each input ``(T, B)`` through the one cell that ``cells`` names.

    The arithmetic is that of one cell. For the rest see :func:`fairseq_casrnn.recurrence.run`.
    """
    hs, cs = OPS.routed_layer(gx.x, gx.weight, gx.bias, weight_hh, h0, c0, cells)
    layout = PaddedLayout(*gx.x.shape[:2], last)
    return outputs(hs.flatten(0, 1), cs.flatten(0, 1), layout)


def layout_of(cell: Cell, gx, h0, last) -> PaddedLayout | PackedLayout:
    """How the rows of all steps lie in memory: padding is left out where that is worth its cost."""
    fused = isinstance(gx, InputProduct)
    steps, batch = (gx.x if fused else gx).shape[:2]
    if not fused or last is None or torch.compiler.is_compiling():  # lengths are not known there
        return PaddedLayout(steps, batch, last)
    weights = gx.weight.numel() + cell.hh_blocks * h0.size(-1) ** 2
    padding = steps * batch - int(last.sum()) - batch
    if padding * 16 < steps * batch or padding * weights < RAGGED_PRODUCTS:
        return PaddedLayout(steps, batch, last)
    return PackedLayout(steps, batch, last)


def forward(cell, layout, gx, x, weight_ih, bias, weight_hh, h0, c0, side, params, keep):
    """The compiled forward, in the layout's rows.

    Returns:
        hs, cs ``(B+N, H)`` with the initial state first, gates ``(N, ·)`` and candidate as the
        backward wants them, the kernel's parameters.
    """
    rows = cell.kernel_rows(params, h0, h0.size(-1))
    rest = (
        *(weight_hh, layout.sort(h0), layout.sort(c0), layout.pack(side)),
        *(rows, layout.counts, keep),
    )
    if gx is None:
        return *OPS.layer_forward(cell.kernel, layout.pack(x), weight_ih, bias, *rest), rows
    # In place: gx is the output of a linear map, which autograd does not save.
    gates = layout.pack(gx.detach().contiguous())
    hs, cs, candidate = OPS.layer_forward_(cell.kernel, gates, *rest)
    return hs, cs, gates, candidate, rows


def outputs(hs, cs, layout):
    """What an engine returns, from the buffers that start with the initial state."""
    h_n = layout.final(hs)
    hs = layout.unpack(after_start(hs, layout.batch))
    if cs is None:
        return hs, None, h_n, None
    return hs, layout.unpack(after_start(cs, layout.batch)), h_n, layout.final(cs)


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cell, layout, gx, x, weight_ih, bias, weight_hh, h0, c0, side, *params):
        hs, cs, gates, candidate, rows = forward(
            cell, layout, gx, x, weight_ih, bias, weight_hh, h0, c0, side, params, keep=True
        )
        ctx.cell, ctx.layout = cell, layout
        ctx.save_for_backward(
            x, weight_ih, gates, candidate, hs, cs, weight_hh, side, rows, *params
        )
        ctx.set_materialize_grads(False)
        return outputs(hs, cs, layout)

    @staticmethod
    def backward(ctx, grad_hs, grad_cs, grad_hn, grad_cn):
        eager.check_backward("cpp", grad_hs, grad_cs, grad_hn, grad_cn)
        cell, layout = ctx.cell, ctx.layout
        x, weight_ih, gates, candidate, hs, cs, weight_hh, side, rows, *params = ctx.saved_tensors
        grad_hs, dh_n = layout.merge_grads(grad_hs, grad_hn)
        grad_cs, dc_n = layout.merge_grads(grad_cs, grad_cn)
        if eager.retain_graph_requested():  # a second backward must find the activated gates again
            gates = gates.clone()
            candidate = None if candidate is None else candidate.clone()
        wants_x, wants_side = ctx.needs_input_grad[3], ctx.needs_input_grad[9]
        dx, d_weight_ih, d_bias, d_weight_hh, dh, dc, d_side, d_rows = OPS.layer_backward(
            cell.kernel, layout.pack(x), weight_ih, gates, candidate, hs, cs, weight_hh,
            layout.pack(side), rows, grad_hs, grad_cs, dh_n, dc_n, layout.counts,
            wants_x, wants_side,
        )  # fmt: skip
        d_gx = layout.unpack(gates) if x is None else None
        dx, d_side = layout.unpack(dx), layout.unpack(d_side)
        dh, dc = layout.unsort(dh), layout.unsort(dc)
        d_params = cell.kernel_param_grads(d_rows, rows, params)
        return None, None, d_gx, dx, d_weight_ih, d_bias, d_weight_hh, dh, dc, d_side, *d_params

"""Engine ``cpp``: the loop of :mod:`.eager` in C++ (``csrc/``), compiled at installation.

It runs float32 and float64 on the CPU.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..cells.base import Cell
from . import eager, sources
from .inputs import (
    InputProduct,
    LayerInputs,
    LayerOutputs,
    LoopTensors,
    MaybeTensor,
    wants_gradient,
)
from .ragged import Layout, PackedLayout, PaddedLayout, after_start

DTYPES = (torch.float32, torch.float64)

ROUTED_WEIGHTS = 1 << 16
"""With at least as many recurrent weights, only a mixture's chosen cells are computed."""

RAGGED_PRODUCTS = 1 << 22
"""With at least as many multiplications for padding, sequences are sorted to leave padding out."""

PACKAGE = Path(__file__).resolve().parents[1]

OPS = torch.ops.fairseq_casrnn
"""The registered operators (``csrc/ops.cpp``), once :func:`extension` has loaded them."""


def dense(tensor: MaybeTensor) -> MaybeTensor:
    """``tensor``, or None, contiguous and with any pending negation resolved.

    The C++ code reads memory directly and would ignore the negation.
    """
    return None if tensor is None else tensor.contiguous().resolve_neg()


@functools.cache
def extension() -> tuple[Any, str | None]:
    """``(module, None)``, or ``(None, why not)`` if there is no compiled extension to use."""
    name = f"{__package__.rpartition('.')[0]}._cpp"
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None, not_compiled()
    library = Path(spec.origin)
    if library.parent.resolve() != PACKAGE:  # found through an editable install of another copy
        return None, not_compiled(library.parent)
    compiled = library.read_bytes()
    if sources.digest(PACKAGE) not in (None, marked(compiled, "sources")):
        return None, "it was compiled from other C++ sources than this package's; install again"
    if lacking := sorted(required_instructions(compiled) - instructions()):
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
    built, running = (".".join(v.split(".")[:2]) for v in (module.torch_version, torch.__version__))
    if built != running:
        return None, f"it was compiled for torch {built} and this is torch {running}; install again"
    from . import cpp_fakes  # after the module has registered the operators

    cpp_fakes.register()
    return module, None


def not_compiled(other: Path | None = None) -> str:
    """Why there is no extension; ``other`` is the folder of another copy that has one."""
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
    """The value that ``csrc/build_info.h`` recorded in the compiled file, or None."""
    found = re.search(rb"fairseq_casrnn %b: *([ \w]*);" % what.encode(), compiled)
    return None if found is None else found[1].decode()


def required_instructions(compiled: bytes) -> set[str]:
    """The instruction sets that the extension was compiled for."""
    return set((marked(compiled, "needs") or "").split()) if instructions() else set()


@functools.cache
def instructions() -> frozenset[str]:
    """The CPU's instruction sets as Linux names them; empty on other systems."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def why_not(cell: Cell, dtype: torch.dtype, *tensors: Tensor | None) -> str | None:
    """Why the compiled loop cannot run ``cell`` on ``tensors``, all of ``dtype``; or None.

    None among the tensors is ignored.
    """
    if cell.kernel is None:
        return f"it has no kernel for {type(cell).__name__}"
    if dtype not in DTYPES:
        return f"it does not run in {dtype}"
    # torch.compile cannot trace is_neg; there the dispatcher resolves the sign before the call.
    compiling = torch.compiler.is_compiling()
    for t in tensors:
        if t is None:
            continue
        if t.dtype != dtype:
            return "the tensors are of several dtypes"
        if not t.is_cpu:
            return f"it runs on CPU tensors, one is on {t.device.type}"
        if not t.numel():
            return "a tensor is empty"
        if not compiling and t.is_neg():
            return "a tensor has its negative bit set (see torch.Tensor.is_neg)"
    return None


def run(inputs: LayerInputs) -> LayerOutputs:
    """Run a layer over time; see :func:`fairseq_casrnn.recurrence.run`."""
    cell, tensors, params = inputs.cell, LoopTensors.of(inputs), inputs.params
    layout = layout_of(cell, inputs.gx, inputs.h0, inputs.last)
    if wants_gradient(*tensors, *params):
        outputs: LayerOutputs = _Loop.apply(cell, layout, *tensors, *params)
        return outputs
    hs, cs, *_ = forward(cell, layout, tensors, params, keep=False)
    return outputs_of(hs, cs, layout)


def why_not_routed(inputs: LayerInputs) -> str | None:
    """Why :func:`run_routed` cannot run these, or would be slower; or None.

    Sorting rows by their cells takes longer than a product with small weights.
    """
    cell, gx, weight_hh = inputs.cell, inputs.gx, inputs.weight_hh
    # csrc/routed.cpp implements only this cell.
    if not isinstance(gx, InputProduct) or cell.kernel != "second_order_lstm" or cell.num_cells < 2:
        return "the layer is not a mixture"
    tensors = (gx.x, gx.weight, gx.bias, weight_hh, inputs.h0, inputs.c0)
    if weight_hh.numel() < ROUTED_WEIGHTS or wants_gradient(*tensors):
        return "the layer is small, or learns"
    return why_not(cell, gx.x.dtype, *tensors)


def run_routed(inputs: LayerInputs, cells: Tensor) -> LayerOutputs:
    """Run a mixture, computing for each input only the cell that ``cells`` ``(T, B)`` names.

    For the rest see :func:`fairseq_casrnn.recurrence.run`.
    """
    x, weight_ih, bias = LoopTensors.of(inputs)[1:4]
    assert x is not None  # as why_not_routed has checked
    hs, cs = OPS.routed_layer(x, weight_ih, bias, inputs.weight_hh, inputs.h0, inputs.c0, cells)
    layout = PaddedLayout(x.size(0), x.size(1), inputs.last)
    return outputs_of(hs.flatten(0, 1), cs.flatten(0, 1), layout)


def layout_of(
    cell: Cell, gx: Tensor | InputProduct, h0: Tensor, last: Tensor | None
) -> PaddedLayout | PackedLayout:
    """The layout of the rows of all steps; it omits padding if that saves enough arithmetic."""
    steps, batch = (gx.x if isinstance(gx, InputProduct) else gx).shape[:2]
    # The lengths are unknown while torch.compile or torch.export trace.
    if not isinstance(gx, InputProduct) or last is None or torch.compiler.is_compiling():
        return PaddedLayout(steps, batch, last)
    weights = gx.weight.numel() + cell.hh_blocks * h0.size(-1) ** 2
    padding = steps * batch - int(last.sum()) - batch
    if padding * 16 < steps * batch or padding * weights < RAGGED_PRODUCTS:
        return PaddedLayout(steps, batch, last)
    return PackedLayout(steps, batch, last)


Saved: TypeAlias = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]
"""What the forward computes, in the layout's N rows.

hs, cs: ``(B+N, H)``, the initial state first; cs is None for a cell without c.
gates: ``(N, ih_blocks*H)``, activated; undefined or None unless kept for the backward.
candidate: ``(N, num_separate_gates*H)``, or None.
rows: the elementwise parameters as the kernel reads them, or None.
"""


def forward(
    cell: Cell, layout: Layout, tensors: Sequence[Any], params: Sequence[Tensor], keep: bool
) -> Saved:
    """The compiled forward loop; with ``keep``, gates and candidate are kept for the backward.

    ``tensors`` are those of :class:`.inputs.LoopTensors`, in its order.
    """
    gx, x, weight_ih, bias, weight_hh, h0, c0, side = tensors
    rows = cell.kernel_rows(params, h0, h0.size(-1))
    states = layout.sort(h0), layout.sort(c0)
    rest = weight_hh, *states, layout.pack(side), rows, layout.counts, keep
    if gx is None:
        hs, cs, gates, candidate = OPS.layer_forward(
            cell.kernel, layout.pack(x), weight_ih, bias, *rest
        )
        return hs, cs, gates, candidate, rows
    # In place: gx is the output of a linear map, which autograd does not save.
    gates = layout.pack(gx.detach().contiguous())
    hs, cs, candidate = OPS.layer_forward_(cell.kernel, gates, *rest)
    return hs, cs, gates, candidate, rows


def outputs_of(hs: Tensor, cs: Tensor | None, layout: Layout) -> LayerOutputs:
    """The outputs of :func:`run`, given all states ``(B+N, H)``, the initial ones first."""
    h_n = layout.final(hs)
    hs = layout.unpack(after_start(hs, layout.batch))
    if cs is None:
        return hs, None, h_n, None
    return hs, layout.unpack(after_start(cs, layout.batch)), h_n, layout.final(cs)


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cell: Cell, layout: Layout, *arguments: Any) -> LayerOutputs:
        tensors, params = arguments[:8], arguments[8:]
        saved = forward(cell, layout, tensors, params, keep=True)
        ctx.cell, ctx.layout = cell, layout
        _, x, weight_ih, _, weight_hh, _, _, side = tensors
        ctx.save_for_backward(*saved, x, weight_ih, weight_hh, side, *params)
        ctx.set_materialize_grads(False)
        return outputs_of(saved[0], saved[1], layout)

    @staticmethod
    def backward(
        ctx: Any,
        grad_hs: Tensor | None,
        grad_cs: Tensor | None,
        grad_hn: Tensor | None,
        grad_cn: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        eager.check_backward("cpp", grad_hs, grad_cs, grad_hn, grad_cn)
        cell, layout = ctx.cell, ctx.layout
        hs, cs, gates, candidate, rows, x, weight_ih, weight_hh, side, *params = ctx.saved_tensors
        grad_hs, dh_n = layout.merge_grads(grad_hs, grad_hn)
        grad_cs, dc_n = layout.merge_grads(grad_cs, grad_cn)
        if eager.retain_graph_requested():  # the next backward needs the activated gates, too
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

"""Engine ``triton``: the loop of :mod:`..eager` on a GPU.

The product with the input is computed for all steps at once before the loop, the gradients of the
weights after it. The loop is one launch (:mod:`.kernels.sequences`). In float64, for a single step,
and on GPUs that do not support such a launch, each step is a product U h and one kernel for the
cell's elementwise maths (:mod:`.kernels.single_steps`). In a small layer, launches take longer than
the computation, so the kernels include work that would take further torch operations.

In float16 and bfloat16 only the products' factors are rounded: gates, cell states (h, for a cell
without c) and their gradients are float32. The cells ``cs`` that :func:`run` returns are then
float32, for the layer above; everything else has the inputs' dtype.

The engine runs on CUDA tensors and, in Triton's interpreter (``TRITON_INTERPRET=1``, for tests), on
CPU tensors. For other tensors, for a cell without a kernel, and if Triton does not work
(:mod:`.failures`), the fallback runs: ``eager`` on a GPU, the default engine on the CPU. Kernels
are compiled at their first launch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...cells.base import Cell
from .. import eager
from ..inputs import LayerInputs, LayerOutputs, LoopTensors, wants_gradient
from .failures import stop
from .host import product
from .layer_loop import Saved, backward, forward


def run(inputs: LayerInputs) -> LayerOutputs:
    """Run a layer over time; see :func:`fairseq_casrnn.recurrence.run`."""
    cell, last, params = inputs.cell, inputs.last, inputs.params
    tensors = LoopTensors.of(inputs)
    if wants_gradient(*tensors, *params):
        result: LayerOutputs = _Loop.apply(cell, last, *tensors, *params)
        return result
    return outputs(cell, *forward(cell, tensors, last, params, keep=False))


def outputs(cell: Cell, saved: Saved, h_n: Tensor, c_n: Tensor | None) -> LayerOutputs:
    """The outputs of :func:`run`."""
    return saved.hs[1:], saved.states[1:] if cell.has_cell else None, h_n, c_n


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cell: Cell, last: Tensor | None, *arguments: Any) -> LayerOutputs:
        tensors, params = LoopTensors(*arguments[:8]), arguments[8:]
        saved, h_n, c_n = forward(cell, tensors, last, params, keep=True)
        ctx.cell = cell
        gx, x, weight_ih, bias, weight_hh, h0, c0, side = tensors
        ctx.dtypes = [None if t is None else t.dtype for t in (gx, bias, h0, c0, side)]
        ctx.save_for_backward(*saved, x, weight_ih, weight_hh, side, last, *params)
        ctx.set_materialize_grads(False)
        return outputs(cell, saved, h_n, c_n)

    @staticmethod
    @eager.without_autocast
    def backward(
        ctx: Any,
        grad_hs: Tensor | None,
        grad_cs: Tensor | None,
        grad_hn: Tensor | None,
        grad_cn: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        grads = grad_hs, grad_cs, grad_hn, grad_cn
        eager.check_backward("triton", *grads)
        cell, tensors = ctx.cell, ctx.saved_tensors
        saved, (x, weight_ih, weight_hh, side, last, *params) = Saved(*tensors[:5]), tensors[5:]
        gates, _, hs, _, rows = saved
        overwrite = gates.dtype == hs.dtype and not eager.retain_graph_requested()
        d_gates = gates if overwrite else torch.empty_like(gates, dtype=hs.dtype)
        _, _, _, wants_x, _, _, wants_hh, wants_h, wants_c, wants_side, *_ = ctx.needs_input_grad
        try:
            results = backward(
                cell,
                saved,
                side=side,
                weight_hh=weight_hh,
                d_gates=d_gates,
                grads=grads,
                last=last,
                wants_side=wants_side,
            )
        except Exception as error:
            stop(error)
        d_params = cell.kernel_param_grads(results.rows, rows, params)
        d_params = [d.to(p.dtype) for d, p in zip(d_params, params, strict=True)]
        d_gx, d_x, d_weight_ih, d_bias = input_grads(d_gates, x, weight_ih, wants_x)
        d_weight_hh = dh = None
        if wants_hh:
            d_weight_hh = torch.mm(results.products.flatten(0, 1).t(), hs[:-1].flatten(0, 1))
        if wants_h:
            dh = torch.empty_like(results.state)
            product(results.products[0], weight_hh, dh)
            dh = dh if cell.has_cell else dh.add_(results.state)
        dc = results.state if wants_c else None
        d_gx, d_bias, dh, dc, d_side = (
            g if g is None else g.to(dtype)
            for g, dtype in zip((d_gx, d_bias, dh, dc, results.side), ctx.dtypes, strict=True)
        )
        return None, None, d_gx, d_x, d_weight_ih, d_bias, d_weight_hh, dh, dc, d_side, *d_params


def input_grads(
    d_gates: Tensor, x: Tensor | None, weight_ih: Tensor | None, wants_x: bool
) -> tuple[Tensor | None, ...]:
    """Gradients of gx, x, weight_ih and bias; without x only of gx, with x only of the others."""
    if x is None or weight_ih is None:
        return d_gates, None, None, None
    flat = d_gates.flatten(0, 1)
    d_x = torch.mm(flat, weight_ih).view_as(x) if wants_x else None
    # In half precision, too, torch's sum accumulates in float32.
    return None, d_x, torch.mm(flat.t(), x.flatten(0, 1)), flat.sum(0)

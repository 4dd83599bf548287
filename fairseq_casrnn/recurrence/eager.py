"""Engine ``eager``: one ``autograd.Function`` for all cells.

A step of the loop, forward or backward, is the recurrent product and the cell's elementwise maths
in place. Activated gates overwrite their pre-activations, all states are in one buffer that both
passes share, and the gradient of the recurrent weight is one product after the loop.

For weights in float16 and bfloat16 the loop runs in float32. The cells ``cs`` that :func:`run`
returns are then float32, for the layer above; everything else has the weights' dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..cells.base import Cell
from ..errors import UserError
from .inputs import LayerInputs, LayerOutputs, accumulation_dtype, cast
from .memory import readable
from .reference import at_step, gather_last


def run(inputs: LayerInputs) -> LayerOutputs:
    """Run a layer over time; see :func:`fairseq_casrnn.recurrence.run`."""
    cell, dtype = inputs.cell, inputs.weight_hh.dtype
    states = inputs.h0, inputs.c0, inputs.lower_c, inputs.mixture
    tensors = [inputs.gates_input(), inputs.weight_hh, *states]
    params = list(inputs.params)
    wide = accumulation_dtype(dtype)
    if wide != dtype:
        tensors = [cast(t, wide) for t in tensors]
        params = [cast(p, wide) for p in params]
    hs, cs, h_n, c_n = _Loop.apply(cell, *tensors, inputs.last, *params)
    if wide != dtype:
        hs, h_n, c_n = cast(hs, dtype), cast(h_n, dtype), cast(c_n, dtype)
    return hs, cs, h_n, c_n


def add_recurrent_(
    cell: Cell, gates: Tensor, candidate: Tensor | None, h: Tensor, weight_t: Tensor
) -> None:
    """Add the first blocks of U h to ``gates``; write the separate ones to ``candidate``.

    ``weight_t`` is ``(H, hh_blocks*H)``.
    """
    if candidate is None:
        width = weight_t.size(1)
        out = gates if width == gates.size(1) else gates[:, :width]
        torch.addmm(out, h, weight_t, out=out)
        return
    split = weight_t.size(1) - candidate.size(1)
    gates[:, :split].addmm_(h, weight_t[:, :split])
    torch.mm(h, weight_t[:, split:], out=candidate)


def without_autocast(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that disables autocast within a backward."""

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Tensor | None) -> Any:
        # Not the device of a saved tensor: under torch.utils.checkpoint, ctx.saved_tensors can be
        # read only once.
        device = next((g.device.type for g in grads if g is not None), "cpu")
        with torch.autocast(device, enabled=False):
            return backward(ctx, *grads)

    return wrapped


def forward_(
    cell: Cell,
    gates: Tensor,
    weight_hh: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    *,
    lower_c: Tensor | None,
    mixture: Tensor | None,
    params: tuple[Tensor, ...],
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The forward loop, without autograd.

    Args:
        cell, weight_hh, h0, c0, lower_c, mixture, params: see :class:`.inputs.LayerInputs`.
        gates: ``(T, B, ih_blocks*H)`` pre-activations without the recurrent product, contiguous.
            They are overwritten with the activated gates.

    Returns:
        hs and cs ``(T+1, B, H)``, from the initial state on (cs None for a cell without c), and
        the separate gates ``(T, B, num_separate_gates*H)`` or None.
    """
    steps, batch, _ = gates.shape
    size = h0.size(-1)
    weight_t = weight_hh.t().contiguous()
    hs = gates.new_empty(steps + 1, batch, size)
    hs[0] = h0
    cs = candidate = None
    if c0 is not None:
        cs = torch.empty_like(hs)
        cs[0] = c0
    if cell.num_separate_gates:
        candidate = gates.new_empty(steps, batch, cell.num_separate_gates * size)
    c_prev = c = None
    for t in range(steps):
        candidate_t = at_step(candidate, t)
        if cs is not None:
            c_prev, c = cs[t], cs[t + 1]
        add_recurrent_(cell, gates[t], candidate_t, hs[t], weight_t)
        cell.forward_(
            gates[t],
            hs[t],
            c_prev,
            hs[t + 1],
            c,
            candidate=candidate_t,
            lower_c=at_step(lower_c, t),
            mixture=at_step(mixture, t),
            params=params,
        )
    return hs, cs, candidate


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cell: Cell,
        gx: Tensor,
        weight_hh: Tensor,
        h0: Tensor,
        c0: Tensor | None,
        lower_c: Tensor | None,
        mixture: Tensor | None,
        last: Tensor | None,
        *params: Tensor,
    ) -> LayerOutputs:
        # In place: gx is the output of a linear map, which autograd does not save.
        gates = gx.detach().contiguous()
        hs, cs, candidate = forward_(
            cell, gates, weight_hh, h0, c0, lower_c=lower_c, mixture=mixture, params=params
        )
        ctx.cell = cell
        ctx.save_for_backward(gates, candidate, hs, cs, weight_hh, lower_c, mixture, last, *params)
        ctx.set_materialize_grads(False)
        out_c = None if cs is None else cs[1:]
        c_n = None if out_c is None else gather_last(out_c, last).clone()
        return hs[1:], out_c, gather_last(hs[1:], last).clone(), c_n

    @staticmethod
    @without_autocast
    def backward(
        ctx: Any,
        grad_hs: Tensor | None,
        grad_cs: Tensor | None,
        grad_hn: Tensor | None,
        grad_cn: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        check_backward("eager", grad_hs, grad_cs, grad_hn, grad_cn)
        cell = ctx.cell
        gates, candidate, hs, cs, weight_hh, lower_c, mixture, last, *params = ctx.saved_tensors
        steps, batch, _ = gates.shape
        size = hs.size(-1)
        grad_hs, dh_n = scatter_last_grad(grad_hs, grad_hn, last, steps)
        grad_cs, dc_n = scatter_last_grad(grad_cs, grad_cn, last, steps)
        d_params = tuple(torch.zeros_like(p) for p in params)
        d_lower_c = torch.empty_like(lower_c) if cell.lower_cell else None
        d_mixture = torch.empty_like(mixture) if cell.num_cells else None
        if retain_graph_requested():  # the next backward needs the activated gates, too
            gates = gates.clone()
            candidate = None if candidate is None else candidate.clone()
        split = (cell.hh_blocks - cell.num_separate_gates) * size
        dh = hs.new_zeros(batch, size) if dh_n is None else dh_n.clone()
        dc = None
        if cs is not None:
            dc = hs.new_zeros(batch, size) if dc_n is None else dc_n.clone()
        c_prev = c = None
        for t in reversed(range(steps)):
            if grad_hs is not None:
                dh = dh.add_(grad_hs[t])
            if grad_cs is not None and dc is not None:
                dc = dc.add_(grad_cs[t])
            if cs is not None:
                c_prev, c = cs[t], cs[t + 1]
            gates_t, candidate_t = gates[t], at_step(candidate, t)
            direct, dc, d_lower_c_t, d_mixture_t = cell.backward_(
                dh,
                dc,
                gates_t,
                hs[t],
                c_prev,
                c,
                candidate=candidate_t,
                lower_c=at_step(lower_c, t),
                mixture=at_step(mixture, t),
                params=params,
                d_params=d_params,
            )
            if d_lower_c is not None and d_lower_c_t is not None:
                d_lower_c[t] = d_lower_c_t
            if d_mixture is not None and d_mixture_t is not None:
                d_mixture[t] = d_mixture_t
            dh = torch.mm(gates_t[:, :split], weight_hh[:split])
            if candidate_t is not None:
                dh.addmm_(candidate_t, weight_hh[split:])
            if direct is not None:
                dh.add_(direct)
        cell.param_grads(gates, cs, lower_c=lower_c, d_params=d_params)
        flat_h = hs[:-1].reshape(-1, size)
        d_weight = torch.mm(gates[:, :, :split].reshape(-1, split).t(), flat_h)
        if candidate is not None:
            d_weight = torch.cat(
                [d_weight, torch.mm(candidate.reshape(steps * batch, -1).t(), flat_h)]
            )
        return None, gates, d_weight, dh, dc, d_lower_c, d_mixture, None, *d_params


def check_backward(engine: str, *grads: Tensor | None) -> None:
    """Refuse a backward with ``create_graph=True``, or with batched gradients.

    Gradients are enabled in a backward only with ``create_graph=True``. ``once_differentiable`` is
    not enough: if the incoming gradient is a constant, it returns zero second derivatives silently.
    Batched gradients come from ``is_grads_batched`` and ``jacobian(…, vectorize=True)``.

    Raises:
        UserError: either of them.
    """
    if not readable(*grads):
        raise UserError(
            f"engine {engine!r} takes one gradient at a time; use engine='reference' for batched "
            "gradients (vmap, is_grads_batched, vectorize=True)"
        )
    if torch.is_grad_enabled():
        raise UserError(
            f"engine {engine!r} has no second derivatives; use engine='reference' for them"
        )


def retain_graph_requested() -> bool:
    """Whether the running backward was called with ``retain_graph=True``."""
    keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return True if keeps_graph is None else bool(keeps_graph())


def scatter_last_grad(
    grad: Tensor | None, grad_last: Tensor | None, last: Tensor | None, steps: int
) -> tuple[Tensor | None, Tensor | None]:
    """Add the gradient of the last states to that of all states if sequences have lengths.

    Args:
        grad: ``(T, B, H)``, of all states, or None.
        grad_last: ``(B, H)``, of the states at ``last``, or None.
        last: ``(B,)``, or None if all sequences have T steps.
        steps: T.

    Returns:
        The gradient of all states ``(T, B, H)``, or None; and ``(B, H)``, the gradient with which
        the backward loop starts, or None.
    """
    if grad_last is None or last is None:
        return grad, grad_last
    grad = grad_last.new_zeros(steps, *grad_last.shape) if grad is None else grad.clone()
    # index_put_ with accumulate=True would sort the indices on a GPU.
    grad.scatter_add_(0, last.view(1, -1, 1).expand(1, *grad_last.shape), grad_last.unsqueeze(0))
    return grad, None

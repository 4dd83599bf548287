"""Engine ``eager``: one ``autograd.Function`` for all cells.

The recurrent product and the cell's in-place elementwise maths are all that the time loop does,
forward and backward. Activated gates are kept over the pre-activations, the states in one buffer
that both passes share, and the gradient of the recurrent weight is a single product after the loop.

In float16 and bfloat16 the loop runs in float32. The cells ``cs`` that :func:`run` returns are
float32 then, for the layer above; all else has the weights' dtype.
"""

from __future__ import annotations

import functools

import torch

from ..cells.base import Cell
from ..errors import UserError
from .inputs import accumulation_dtype, cast
from .memory import readable
from .reference import at_step, gather_last


def run(cell: Cell, gx, weight_hh, h0, c0, lower_c=None, mixture=None, last=None, params=()):
    """Run ``cell`` over time; see :func:`fairseq_casrnn.recurrence.run` for the arguments."""
    dtype, wide = weight_hh.dtype, accumulation_dtype(weight_hh.dtype)
    tensors = (gx, weight_hh, h0, c0, lower_c, mixture)
    if wide != dtype:
        tensors = [cast(t, wide) for t in tensors]
        params = [cast(p, wide) for p in params]
    hs, cs, *final = _Loop.apply(cell, *tensors, last, *params)
    if wide != dtype:
        hs, *final = (cast(t, dtype) for t in (hs, *final))
    if cell.has_cell:
        return hs, cs, *final
    return hs, None, final[0], None


def add_recurrent_(cell: Cell, gates, candidate, h, weight_t):
    """Add U h to the additive blocks of ``gates``, write the others to ``candidate``.

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


def without_autocast(backward):
    """Make ``backward`` compute in its tensors' own precision, also where autocast is active."""

    @functools.wraps(backward)
    def wrapped(ctx, *grads):
        # Not that of the saved tensors: torch.utils.checkpoint lets them be asked for only once.
        device = next((g.device.type for g in grads if g is not None), "cpu")
        with torch.autocast(device, enabled=False):
            return backward(ctx, *grads)

    return wrapped


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cell, gx, weight_hh, h0, c0, lower_c, mixture, last, *params):
        steps, batch, _ = gx.shape
        size = h0.size(-1)
        gates = gx.detach().contiguous()  # ours to overwrite: nobody keeps a linear map's result
        weight_t = weight_hh.t().contiguous()
        hs = gx.new_empty(steps + 1, batch, size)
        hs[0] = h0
        cs = candidate = None
        if cell.has_cell:
            cs = torch.empty_like(hs)
            cs[0] = c0
        if cell.num_separate_gates:
            candidate = gx.new_empty(steps, batch, cell.num_separate_gates * size)
        c_prev = c = None
        for t in range(steps):
            candidate_t = at_step(candidate, t)
            if cs is not None:
                c_prev, c = cs[t], cs[t + 1]
            add_recurrent_(cell, gates[t], candidate_t, hs[t], weight_t)
            reads = {"lower_c": at_step(lower_c, t), "mixture": at_step(mixture, t)}
            cell.forward_(
                *(gates[t], hs[t], c_prev, hs[t + 1], c),
                candidate=candidate_t, params=params, **reads,
            )  # fmt: skip
        ctx.cell, ctx.num_params = cell, len(params)
        ctx.save_for_backward(gates, candidate, hs, cs, weight_hh, lower_c, mixture, last, *params)
        ctx.set_materialize_grads(False)
        out_c = None if cs is None else cs[1:]
        c_n = None if cs is None else gather_last(out_c, last).clone()
        return hs[1:], out_c, gather_last(hs[1:], last).clone(), c_n

    @staticmethod
    @without_autocast
    def backward(ctx, grad_hs, grad_cs, grad_hn, grad_cn):
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
        if retain_graph_requested():  # a second backward must find the activated gates again
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
            if grad_cs is not None:
                dc = dc.add_(grad_cs[t])
            if cs is not None:
                c_prev, c = cs[t], cs[t + 1]
            gates_t, candidate_t = gates[t], at_step(candidate, t)
            reads = {"lower_c": at_step(lower_c, t), "mixture": at_step(mixture, t)}
            direct, dc, d_lower_c_t, d_mixture_t = cell.backward_(
                *(dh, dc, gates_t, hs[t], c_prev, c),
                candidate=candidate_t, params=params, d_params=d_params, **reads,
            )  # fmt: skip
            if d_lower_c_t is not None:
                d_lower_c[t] = d_lower_c_t
            if d_mixture_t is not None:
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


def check_backward(engine: str, *grads) -> None:
    """Raises UserError in a backward that has to be differentiated, or has batched gradients.

    Nothing but ``create_graph=True`` leaves gradients enabled there. ``once_differentiable`` would
    not do: where the incoming gradient is a constant it lets the second derivative pass as zero.
    Batched gradients come from ``is_grads_batched`` and ``jacobian(…, vectorize=True)``.
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
    ask = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return True if ask is None else ask()


def scatter_last_grad(grad, grad_last, last, steps):
    """Gradients of all states and of those at ``last``, as (grad (T, B, H), grad of step T-1).

    Without lengths the latter starts the backward loop; with lengths it is added where it belongs.
    """
    if grad_last is None or last is None:
        return grad, grad_last
    grad = grad_last.new_zeros(steps, *grad_last.shape) if grad is None else grad.clone()
    # index_put_ with accumulate=True would sort the indices on a GPU.
    grad.scatter_add_(0, last.view(1, -1, 1).expand(1, *grad_last.shape), grad_last.unsqueeze(0))
    return grad, None

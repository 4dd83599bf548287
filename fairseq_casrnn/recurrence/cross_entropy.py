"""Cross entropy of a linear map to the vocabulary, without storing its logits.

The logits of a batch, ``(N, V)``, are the largest tensor of most models, and only the softmax and
its gradient read them. The compiled extension computes a few rows of logits at a time, and from
these the loss and all gradients while the logits are in the cache; it skips padding. For the GPU
kernels of engine ``triton`` see :mod:`.triton.cross_entropy`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from .choice import choose
from .cpp import OPS
from .eager import retain_graph_requested
from .inputs import LossSpec, autocast, cast
from .memory import readable


def can_fuse(weight: Tensor, engine: str | None = None) -> bool:
    """Whether the engine has :func:`cross_entropy` for a vocabulary with this ``weight``."""
    device = weight.device.type
    return device in ("cpu", "cuda") and choose(engine, device).supports_loss(weight) is None


def cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, loss_spec: LossSpec, engine: str | None = None
) -> tuple[Tensor, Tensor]:
    """The loss with label smoothing and the loss without, each summed over all tokens.

    Args:
        x: ``(*, E)``.
        weight: ``(V, E)``.
        bias: ``(V,)``.
        loss_spec: its target has the shape of x without the last dimension.
        engine: name of an engine, or None for the default; see :func:`can_fuse`.

    Only the first has a gradient. With weights in half precision, or under autocast, the sums are
    in float32.
    """
    device = weight.device.type
    if autocast(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight, bias = cast(x, dtype), cast(weight, dtype), cast(bias, dtype)
    target = loss_spec.target.reshape(-1).contiguous()
    rows = x.reshape(-1, x.size(-1))
    return choose(engine, device).cross_entropy(
        rows, weight, bias, loss_spec._replace(target=target)
    )


def run_compiled(
    x: Tensor, weight: Tensor, bias: Tensor | None, loss_spec: LossSpec
) -> tuple[Tensor, Tensor]:
    """:func:`cross_entropy` of x ``(N, E)`` in the compiled extension."""
    sums: tuple[Tensor, Tensor] = _CrossEntropy.apply(
        x, weight, bias, *loss_spec, torch.is_grad_enabled()
    )
    return sums


def refuse_second_derivatives() -> None:
    """Raise UserError in a backward with ``create_graph=True`` (:func:`.eager.check_backward`)."""
    if torch.is_grad_enabled():
        raise UserError(
            "the fused criterions have no second derivatives; use cross_entropy or "
            "label_smoothed_cross_entropy for them"
        )


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        pad: int,
        enable_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        wants = [enable_grad and needed for needed in ctx.needs_input_grad[:3]]
        loss, plain, *grads = OPS.cross_entropy(x, weight, bias, target, smoothing, pad, wants)
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        grads = ctx.saved_tensors
        # Usually grad is 1, which saves a pass over the gradients.
        if not readable(grad) or grad != 1 or retain_graph_requested():
            grads = [None if g is None else g * grad for g in grads]
        return *grads, None, None, None, None

"""Cross entropy of a linear map to the vocabulary, without its table of logits.

The logits of a batch, ``(N, V)``, are the largest tensor of most models, and are read only by the
softmax and its gradient. The compiled extension makes them some rows at a time, goes on to the loss
and all gradients while they are in the cache, and leaves padding out. Engine ``triton`` has kernels
for the GPU: see :mod:`.triton_cross_entropy`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import UserError
from .cpp import OPS
from .eager import retain_graph_requested
from .engine import autocast, choose
from .inputs import cast
from .memory import readable


class LossSpec(NamedTuple):
    """The loss that a criterion wants of a decoder, instead of logits.

    Attributes:
        target: ``(*)``, tokens.
        smoothing: probability shared by all tokens but the target.
        pad: the token that counts for nothing.
    """

    target: Tensor
    smoothing: float
    pad: int


def can_fuse(weight: Tensor, engine: str | None = None) -> bool:
    """Whether :func:`cross_entropy` serves a vocabulary with this ``weight`` on an engine."""
    device = weight.device.type
    return device in ("cpu", "cuda") and choose(engine, device).supports_loss(weight) is None


def cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, loss_spec: LossSpec, engine: str | None = None
) -> tuple[Tensor, Tensor]:
    """Sums over all tokens of the loss with label smoothing, and of the loss without.

    Args:
        x: ``(*, E)``.
        weight: ``(V, E)``.
        bias: ``(V,)``.
        loss_spec: its target is of x's shape without the last.
        engine: name of an engine, or None for the default; see :func:`can_fuse`.

    Only the first has a gradient. With weights in half precision, and where autocast makes them so,
    the sums are in float32.
    """
    device = weight.device.type
    if autocast(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight, bias = (cast(t, dtype) for t in (x, weight, bias))
    target = loss_spec.target.reshape(-1).contiguous()
    args = x.reshape(-1, x.size(-1)), weight, bias, target, loss_spec.smoothing, loss_spec.pad
    return choose(engine, device).cross_entropy(*args)


def run_compiled(*args) -> tuple[Tensor, Tensor]:
    """:func:`cross_entropy` of x ``(N, E)`` in the compiled extension."""
    return _CrossEntropy.apply(*args, torch.is_grad_enabled())


def refuse_second_derivatives() -> None:
    """Raise UserError in a backward with ``create_graph=True``; see eager.check_backward."""
    if torch.is_grad_enabled():
        raise UserError(
            "the fused criterions have no second derivatives; use cross_entropy or "
            "label_smoothed_cross_entropy for them"
        )


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, target, smoothing, pad, learns):
        wants = [learns and needed for needed in ctx.needs_input_grad[:3]]
        loss, plain, *grads = OPS.cross_entropy(x, weight, bias, target, smoothing, pad, wants)
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(ctx, grad, _):
        refuse_second_derivatives()
        grads = ctx.saved_tensors
        # Seldom; as they are, a pass is saved.
        if not readable(grad) or grad != 1 or retain_graph_requested():
            grads = [None if found is None else found * grad for found in grads]
        return *grads, None, None, None, None

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
from . import autocast, engine_name
from .cpp import OPS
from .eager import keeps_graph
from .inputs import cast
from .memory import readable
from .triton_plan import interpreting

DTYPES = {
    "cpp": (torch.float32, torch.float64),
    "triton": (torch.float32, torch.float16, torch.bfloat16),
}
"""Of the weights, by the engines that have a fused cross entropy."""


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
    if device not in ("cpu", "cuda") or not readable(weight):
        return False
    name = engine_name(engine, device)
    if name == "cpp" and torch.is_autocast_enabled("cpu"):
        return False
    devices = {"cpp": ("cpu",), "triton": ("cuda", "cpu") if interpreting() else ("cuda",)}
    return device in devices.get(name, ()) and weight.dtype in DTYPES[name]


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
    if engine_name(engine, device) == "triton":
        from .triton_cross_entropy import cross_entropy as on_gpu  # needs Triton

        return on_gpu(*args)
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
        if not readable(grad) or grad != 1 or keeps_graph():  # seldom; as they are, a pass is saved
            grads = [None if found is None else found * grad for found in grads]
        return *grads, None, None, None, None

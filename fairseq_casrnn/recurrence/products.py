"""Linear maps that heed ``--float32-matmul-precision medium`` on more processors than torch's.

torch multiplies float32 matrices in bfloat16 inside only on CPUs with AMX. The compiled extension
does so on those with AVX-512's dot products of bfloat16, too; elsewhere, and at any other
precision, these are torch's own functions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import cpp


def is_narrow(x: Tensor) -> bool:
    """Whether products of the rows ``x`` (*, I) are to have their factors rounded to bfloat16."""
    module, _ = cpp.extension()
    if module is None or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    return module.is_narrow(x, x.shape[:-1].numel())


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``: x ``(*, I)`` times weight ``(O, I)`` transposed, plus bias ``(O,)``."""
    if not is_narrow(x):
        return F.linear(x, weight, bias)
    y = _Linear.apply(x.reshape(-1, x.size(-1)), weight).view(*x.shape[:-1], -1)
    return y if bias is None else y.add_(bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return cpp.extension()[0].mm(x, weight.t())

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad
        return (
            linear(grad, weight.t()) if wants_x else None,
            linear(grad.t(), x.t()) if wants_weight else None,
        )

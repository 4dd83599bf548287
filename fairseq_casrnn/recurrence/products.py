"""Linear maps that the compiled extension computes where it does so better than torch.

``--float32-matmul-precision medium`` makes torch multiply float32 matrices in bfloat16 inside, but
only on CPUs with AMX, and slowly; the extension does so on all with dot products of bfloat16
(AVX512_BF16). Large products in single precision it computes with weights in panels. Elsewhere
these are torch's own functions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import cpp

# Rows; with fewer, bringing a weight into another order costs more than it saves.
LARGE = 256
LARGE_NARROW = 64


def is_narrow(x: Tensor) -> bool:
    """Whether products of the rows ``x`` (*, I) are to have their factors rounded to bfloat16."""
    module, rows = _extension(x), x.shape[:-1].numel()
    return module is not None and rows >= LARGE_NARROW and module.is_narrow(x, rows)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``: x ``(*, I)`` times weight ``(O, I)`` transposed, plus bias ``(O,)``."""
    if not (_is_large(x) or is_narrow(x)):
        return F.linear(x, weight, bias)
    y = _Linear.apply(x.reshape(-1, x.size(-1)), weight, bias)
    return y.view(*x.shape[:-1], -1)


def log_probs(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, bool] | None:
    """Log-probabilities ``(N, O)`` of x ``(N, I)``, :func:`linear` and its log softmax in one pass.

    Without gradients, and only where the compiled extension can.

    Returns:
        the table and whether it holds NaN (in whole rows); or None.
    """
    if _extension(x) is None or torch.is_grad_enabled() or x.dtype != torch.float32:
        return None
    return cpp.extension()[0].log_probs(x, weight.t(), bias)


def _extension(x: Tensor):
    """The compiled module where it may compute products of ``x``, or None."""
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return None
    return cpp.extension()[0]


def _is_large(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.shape[:-1].numel() >= LARGE and _extension(x) is not None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return cpp.extension()[0].mm(x, weight.t(), bias)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            linear(grad, weight.t()) if wants_x else None,
            linear(grad.t(), x.t()) if wants_weight else None,
            grad.sum(0) if wants_bias else None,
        )

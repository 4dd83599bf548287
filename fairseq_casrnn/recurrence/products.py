"""Linear maps, computed by the compiled extension where it is faster than torch.

With ``--float32-matmul-precision medium`` torch multiplies float32 matrices in bfloat16, but only
on CPUs with AMX, and slowly; the extension does so on all CPUs with AVX512_BF16. With ``int8`` it
quantises both factors of products without gradients, see :mod:`..precision`. Large products in
float32 use weights packed in panels. In all other cases, and on every engine but ``cpp``, torch's
own functions compute the products.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import cpp
from .choice import choose
from .cpp import OPS, dense
from .inputs import wants_gradient
from .next_words import NextWords

LARGE = 256
"""Minimum number of rows of x; with fewer, packing the weight takes longer than it saves."""
LARGE_NARROW = 64
"""The same minimum for products in bfloat16."""


def is_narrow(x: Tensor, engine: str | None = None) -> bool:
    """Whether the factors of products with ``x`` (*, I) are rounded to bfloat16."""
    rows = x.shape[:-1].numel()
    if rows < LARGE_NARROW or not is_compiled(engine, x):
        return False
    return bool(cpp.extension()[0].is_narrow(x, rows))


def is_quantised(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, engine: str | None = None
) -> bool:
    """Whether int8 is enabled and the product needs no gradients."""
    in_backward = torch._C._current_graph_task_id() != -1
    if in_backward or wants_gradient(x, weight, bias) or not x.numel() or x.dtype != torch.float32:
        return False
    module, _ = cpp.extension()
    return bool(module and module.is_quantised(weight) and is_compiled(engine, x, weight, bias))


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, engine: str | None = None
) -> Tensor:
    """``F.linear``: x ``(*, I)`` times weight ``(O, I)`` transposed, plus bias ``(O,)``.

    ``engine`` is the name of an engine, or None for the default.
    """
    # Reading the number of rows would specialise the graph to that number.
    if torch.compiler.is_compiling():
        return F.linear(x, weight, bias)
    if is_quantised(x, weight, bias, engine):
        rows = dense(x).view(-1, x.size(-1))
        factor = cpp.extension()[0].Factor(weight.t().resolve_neg(), rows, 1, True)
        quantised: Tensor = factor.mm(rows, dense(bias))
        return quantised.view(*x.shape[:-1], -1)
    large = x.dtype == torch.float32 and x.shape[:-1].numel() >= LARGE
    compiled = (large or is_narrow(x, engine)) and is_compiled(engine, x, weight, bias)
    if not compiled or not x.numel():
        return F.linear(x, weight, bias)
    y: Tensor = _Linear.apply(x.reshape(-1, x.size(-1)), weight, bias)
    return y.view(*x.shape[:-1], -1)


def next_words(
    weight: Tensor, bias: Tensor | None, rows: int, steps: int, engine: str | None = None
) -> NextWords | None:
    """The engine's search for the next words; None if it has none, or gradients are enabled."""
    if torch.is_grad_enabled():
        return None
    return choose(engine, weight.device.type).next_words(weight, bias, rows, steps)


def is_compiled(engine: str | None, first: Tensor, *others: Tensor | None) -> bool:
    """Whether the engine has products of its own for these tensors."""
    device = first.device.type
    return device == "cpu" and choose(engine, device).supports_products(first, *others) is None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        y: Tensor = OPS.mm(x, weight.t(), bias)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            linear(grad, weight.t(), engine="cpp") if wants_x else None,
            linear(grad.t(), x.t(), engine="cpp") if wants_weight else None,
            grad.sum(0) if wants_bias else None,
        )

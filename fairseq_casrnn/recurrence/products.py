"""Linear maps that the compiled extension computes where it does so better than torch.

``--float32-matmul-precision medium`` makes torch multiply float32 matrices in bfloat16 inside, but
only on CPUs with AMX, and slowly; the extension does so on all with dot products of bfloat16
(AVX512_BF16). Large products in single precision it computes with weights in panels. Elsewhere,
and on any other engine than ``cpp``, these are torch's own functions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import cpp
from .cpp import OPS, dense
from .engine import choose
from .memory import readable

# Rows; with fewer, bringing a weight into another order costs more than it saves.
LARGE = 256
LARGE_NARROW = 64


def is_narrow(x: Tensor, engine: str | None = None) -> bool:
    """Whether products of the rows ``x`` (*, I) are to have their factors rounded to bfloat16."""
    rows = x.shape[:-1].numel()
    return rows >= LARGE_NARROW and is_compiled(engine, x) and cpp.extension()[0].is_narrow(x, rows)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, engine: str | None = None
) -> Tensor:
    """``F.linear``: x ``(*, I)`` times weight ``(O, I)`` transposed, plus bias ``(O,)``.

    ``engine`` is the name of an engine, or None for the default.
    """
    if torch.compiler.is_compiling():  # a look at the number of rows would fix it
        return F.linear(x, weight, bias)
    large = x.dtype == torch.float32 and x.shape[:-1].numel() >= LARGE
    if not (large or is_narrow(x, engine)) or not is_compiled(engine, x, weight, bias):
        return F.linear(x, weight, bias)
    y = _Linear.apply(x.reshape(-1, x.size(-1)), weight, bias)
    return y.view(*x.shape[:-1], -1)


class SharedWeightLinear:
    """The map x → x · weightᵀ, as :func:`linear`, of several x in turn: those of a loop's steps.

    The compiled extension brings ``weight`` ``(O, I)`` into order once for all of them, and adds
    its gradients up in place, where torch would make one of its size for each x. An object serves
    one forward and the backward of it, and x with as many rows as the first or fewer.

    Args:
        weight: ``(O, I)``.
        times: of how many x, at least 1.
        engine: name of an engine, or None for the default.
    """

    def __init__(self, weight: Tensor, times: int, engine: str | None = None):
        self._weight, self._shared, self._sink, self._engine = weight, None, None, engine
        single_or_double = weight.dtype in (torch.float32, torch.float64)
        if single_or_double and is_compiled(engine, weight):
            self._shared = _PackedWeight(times)
            if weight.requires_grad and torch.is_grad_enabled():
                self._sink = _GradAccumulator.apply(weight, self._shared)

    def __call__(self, x: Tensor) -> Tensor:
        """``(*, O)`` of x ``(*, I)``."""
        if self._shared is None or not x.numel() or not readable(x):
            return linear(x, self._weight, engine=self._engine)
        rows = x.reshape(-1, x.size(-1))
        y = _SharedWeightLinear.apply(rows, self._weight, self._sink, self._shared)
        return y.view(*x.shape[:-1], -1)


def log_probs(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, engine: str | None = None
) -> tuple[Tensor, bool] | None:
    """Log-probabilities ``(N, O)`` of x ``(N, I)``, :func:`linear` and its log softmax in one pass.

    Without gradients, and only where the compiled extension can.

    Returns:
        the table and whether it holds NaN (in whole rows); or None.
    """
    if torch.is_grad_enabled() or x.dtype != torch.float32:
        return None
    if not is_compiled(engine, x, weight, bias):
        return None
    return OPS.log_probs(x, weight, bias)


def is_compiled(engine: str | None, *tensors: Tensor | None) -> bool:
    """Whether the engine has products of its own for these; all but the first may be None."""
    device = tensors[0].device.type
    return device == "cpu" and choose(engine, device).supports_products(*tensors) is None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return OPS.mm(x, weight.t(), bias)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            linear(grad, weight.t(), engine="cpp") if wants_x else None,
            linear(grad.t(), x.t(), engine="cpp") if wants_weight else None,
            grad.sum(0) if wants_bias else None,
        )


class _PackedWeight:
    """What the products with a weight have in common; it must not hold what holds it."""

    def __init__(self, times: int):
        self.times = times
        self.factors: dict[bool, object] = {}
        self.gradient: Tensor | None = None
        self.backward_pass: int | None = None  # that the gradient is of

    def product(self, x: Tensor, weight: Tensor, back: bool) -> Tensor:
        """X times the weight, or times its transpose."""
        if back not in self.factors:
            factor = weight.detach().resolve_neg()
            self.factors[back] = cpp.extension()[0].Factor(
                factor if back else factor.t(), x, self.times
            )
        return self.factors[back].mm(x)

    def add(self, grad: Tensor, x: Tensor) -> Tensor | None:
        """Add to the weight's gradient; returned is what autograd is to add to what it has."""
        # One that did not want this gradient, or failed, leaves some of it behind.
        current = torch._C._current_graph_task_id()
        if self.gradient is not None and self.backward_pass == current:
            OPS.add_mm_(self.gradient, grad.t(), x)
            return None
        self.gradient, self.backward_pass = OPS.mm(grad.t(), x, None), current
        return self.gradient


class _GradAccumulator(torch.autograd.Function):
    """Identity on the weight: all products accumulate into one buffer, returned to autograd once.

    Nothing else depends on what it returns, so that autograd has nothing to add to the first.
    """

    @staticmethod
    def forward(ctx, weight, shared):
        ctx.shared = shared
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx, grad):
        ctx.shared.gradient = None
        return grad, None


class _SharedWeightLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, sink, shared):
        ctx.save_for_backward(x, weight)
        ctx.shared = shared
        return shared.product(dense(x), weight, back=False)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wants_x, _, wants_weight, _ = ctx.needs_input_grad
        if torch.is_grad_enabled() or not readable(grad):  # second derivatives, batched gradients
            return (
                grad @ weight if wants_x else None,
                None,
                grad.t() @ x if wants_weight else None,
                None,
            )
        grad, x = dense(grad), dense(x)
        return (
            ctx.shared.product(grad, weight, back=True) if wants_x else None,
            None,
            ctx.shared.add(grad, x) if wants_weight else None,
            None,
        )

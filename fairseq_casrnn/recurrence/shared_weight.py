"""Linear maps of the steps of a loop that share a weight, which is packed only once.

The weight's gradient is accumulated in one buffer. On engine ``cpp`` this saves up to a third of
the time of a sentence-state LSTM.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import cpp
from .cpp import OPS, dense
from .memory import readable
from .products import is_compiled, linear


class SharedWeightLinear:
    """:func:`.products.linear` without bias, for several inputs x with the same weight.

    The compiled extension packs ``weight`` once for all of them and accumulates its gradient in
    place, while torch would allocate a gradient for each x. Use an object for a single forward and
    its backward; no x may have more rows than the first.

    Args:
        weight: ``(O, I)``.
        times: number of calls, at least 1.
        engine: name of an engine, or None for the default.
    """

    def __init__(self, weight: Tensor, times: int, engine: str | None = None):
        self._weight, self._engine = weight, engine
        self._shared: _PackedWeight | None = None
        self._sink: Tensor | None = None  # view of the weight that gets its gradient
        single_or_double = weight.dtype in (torch.float32, torch.float64)
        if single_or_double and is_compiled(engine, weight):
            self._shared = _PackedWeight(times, inference=not torch.is_grad_enabled())
            if weight.requires_grad and torch.is_grad_enabled():
                # Only these products use it, so autograd adds nothing else to their buffer.
                self._sink = weight.view_as(weight)
                self._sink.register_hook(self._shared.release)

    def __call__(self, x: Tensor) -> Tensor:
        """``(*, O)`` of x ``(*, I)``."""
        if self._shared is None or not x.numel() or not readable(x):
            return linear(x, self._weight, engine=self._engine)
        rows = x.reshape(-1, x.size(-1))
        y: Tensor = _Product.apply(rows, self._weight, self._sink, self._shared)
        return y.view(*x.shape[:-1], -1)


class _PackedWeight:
    """A weight packed for products, and its gradient.

    Autograd's nodes refer to this object, so it must not refer to them or the weight: memory would
    only be freed by the cycle collector.
    """

    def __init__(self, times: int, inference: bool):
        self.times, self.inference = times, inference
        self.factors: dict[bool, Any] = {}
        self.gradient: Tensor | None = None
        self.backward_pass: int | None = None  # number of the pass that computed it

    def product(self, x: Tensor, weight: Tensor, back: bool) -> Tensor:
        """x · weightᵀ, or x · weight if ``back``."""
        if back not in self.factors:
            factor = weight.detach().resolve_neg()
            self.factors[back] = cpp.extension()[0].Factor(
                factor if back else factor.t(), x, self.times, self.inference and not back
            )
        y: Tensor = self.factors[back].mm(x)
        return y

    def add(self, grad: Tensor, x: Tensor) -> Tensor | None:
        """Add a product to the weight's gradient; return the buffer on the first call, then None.

        Autograd accumulates what is returned, so the buffer must be returned only once.
        """
        # A backward that failed, or did not need this gradient, leaves its buffer behind.
        current: int = torch._C._current_graph_task_id()
        if self.gradient is not None and self.backward_pass == current:
            OPS.add_mm_(self.gradient, grad.t(), x)
            return None
        self.gradient, self.backward_pass = OPS.mm(grad.t(), x, None), current
        return self.gradient

    def release(self, grad: Tensor) -> None:
        """Drop the reference to the buffer ``grad``, so that autograd can use it uncopied."""
        self.gradient = None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, sink: Tensor | None, shared: _PackedWeight
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shared = shared
        return shared.product(dense(x), weight, back=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
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

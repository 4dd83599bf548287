"""Fake kernels of the registered operators: the shapes of their results, for torch.compile.

Operators that write to their arguments, or whose output shapes depend on data, have none and are
never traced. Shapes are those of ``csrc/ops.cpp``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def register() -> None:
    """Register the fake kernels; the extension must have defined the operators."""
    for function in (layer_forward, routed_layer, mm, window_concat):
        torch.library.register_fake(f"fairseq_casrnn::{function.__name__}", function)


def layer_forward(  # names and order are the schema's
    kernel: str,
    x: Tensor,
    weight_ih: Tensor,
    bias: Tensor,
    weight_hh: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    side: Tensor | None,
    params: Tensor | None,
    rows: list[int] | None,
    keep: bool,
) -> tuple[Tensor, Tensor | None, None, None]:
    """States ``(B+N, H)``; gates and candidate are None without ``keep``."""
    torch._check(not keep, lambda: "layer_forward has no fake kernel for training")
    hs = h0.new_empty(h0.size(0) + x.size(0), h0.size(1))
    return hs, None if c0 is None else torch.empty_like(hs), None, None


def routed_layer(  # names and order are the schema's
    x: Tensor,
    weight_ih: Tensor,
    bias: Tensor,
    weight_hh: Tensor,
    h0: Tensor,
    c0: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor]:
    """States ``(T + 1, B, H)``."""
    hs = h0.new_empty(x.size(0) + 1, *h0.shape)
    return hs, torch.empty_like(hs)


def mm(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """The product ``(M, N)`` of a ``(M, K)`` and b ``(K, N)``."""
    return a.new_empty(a.size(0), b.size(1))


def window_concat(h: Tensor, window: int, counts: list[int]) -> tuple[Tensor, Tensor]:
    """:meth:`.WordOps.window_concat`: ``(N, (2w+1)*H)`` and ``(B, H)``."""
    return h.new_empty(h.size(0), (2 * window + 1) * h.size(1)), h.new_empty(counts[0], h.size(1))

"""What a layer hands to an engine for its gates' inputs, and the precision of its states."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of gates' sums and cell states where inputs and weights have ``dtype``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """``tensor``, or None, in ``dtype``."""
    return None if tensor is None else tensor.to(dtype)


def wants_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd follows what is computed from these; None among them is ignored."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def side_input(lower_c: Tensor | None, mixture: Tensor | None) -> Tensor | None:
    """What a compiled kernel reads through its one pointer ``side``: the cells of the layer below
    ``(…, H)``, or the weights of a mixture ``(…, S)``; no cell with a kernel reads both.
    """
    return mixture if lower_c is None else lower_c


@dataclass(frozen=True)
class InputProduct:
    """W x + b for all steps, still to be computed: some engines do it along with their loop.

    Attributes:
        x: ``(T, B, I)``.
        weight: ``(ih_blocks*H, I)``.
        bias: ``(ih_blocks*H,)``.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor

    def compute(self) -> Tensor:
        """``(T, B, ih_blocks*H)``."""
        return F.linear(self.x, self.weight, self.bias)


@dataclass(frozen=True)
class HardRouting:
    """Hard routing: the one cell of a mixture that computes each step, in place of weights.

    Attributes:
        cells: ``(T, B)`` or ``(B,)``, 0 to S-1.
        count: S.
    """

    cells: Tensor
    count: int

    def weights(self, dtype: torch.dtype) -> Tensor:
        """1 for the chosen cell and 0 for the others, ``(…, S)``."""
        return F.one_hot(self.cells, self.count).to(dtype)

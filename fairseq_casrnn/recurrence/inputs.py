"""What a layer hands to an engine for its gates' inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


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

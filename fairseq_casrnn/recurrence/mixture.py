"""The weights of a mixture of cells: soft from scores and a temperature, or hard."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .inputs import accumulation_dtype


@dataclass(frozen=True)
class HardRouting:
    """Hard routing, in place of weights: the one cell of a mixture that each input goes to.

    Attributes:
        cells: ``(T, B)`` or ``(B,)``, 0 to S-1.
        count: S.
    """

    cells: Tensor
    count: int

    def weights(self, dtype: torch.dtype) -> Tensor:
        """One-hot weights ``(…, S)``: 1 for the chosen cell."""
        return F.one_hot(self.cells, self.count).to(dtype)


def mix(scores: Tensor, temperature: Tensor | None) -> Tensor:
    """Mixture weights ``(*, S)`` of scores ``(*, S)``.

    They are a softmax at ``temperature``, a scalar, or one-hot if that is None.
    """
    if temperature is None:
        return HardRouting(scores.argmax(-1), scores.size(-1)).weights(scores.dtype)
    # In half precision, a score divided by a low temperature overflows.
    wide = accumulation_dtype(scores.dtype)
    return torch.softmax(scores.to(wide) / temperature.to(wide), dim=-1).to(scores.dtype)


def unmix(d_alpha: Tensor, alpha: Tensor, temperature: Tensor | None) -> Tensor:
    """Backward of :func:`mix`: the scores' gradient ``(*, S)`` from the weights'.

    It is zero for hard routing.
    """
    if temperature is None:
        return torch.zeros_like(alpha)
    total = (d_alpha * alpha).sum(-1, keepdim=True)
    return alpha * (d_alpha - total) / temperature.to(alpha.dtype)

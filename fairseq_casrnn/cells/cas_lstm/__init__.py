"""Cell-aware stacked LSTM (CAS-LSTM paper, eq. 7-13): a second forget gate, on the cell below."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...errors import UserError
from ..base import FUNCTIONAL, Cell, CellGrads, IfUsed, dsigmoid_, grad_through_output
from ..stacked_lstm import LSTMCell, activate_, input_grads_


@dataclass
class CASOptions:
    """Options of the CAS-LSTM."""

    lam: str = field(
        default="0.5",
        metadata={
            "help": (
                "weight of the lower layer's cell state relative to the previous cell state: "
                "a number in [0, 1], 'trainable' (a vector per layer, initially 0.5) or "
                "'none' (unweighted sum)"
            ),
            **FUNCTIONAL,
        },
    )


def parse_lam(lam: float | str | None) -> float | str | None:
    """``lam`` as a float in [0, 1], ``"trainable"`` or None. Raises UserError for anything else."""
    if lam is None or (isinstance(lam, str) and lam.lower() in ("trainable", "none")):
        return None if lam is None or lam.lower() == "none" else "trainable"
    try:
        value = float(lam)
    except (TypeError, ValueError):
        value = float("nan")
    if not 0.0 <= value <= 1.0:
        raise UserError(f"lam is {lam!r}; it must be a number in [0, 1], 'trainable' or 'none'")
    return value


class CASCell(Cell):
    """v = σ(W_v h' + U_v h₋ + b_v); c = i⊙g + (1-λ)⊙f⊙c₋ + λ⊙v⊙c'. Blocks: i f g o v.

    h', c' are those of the layer below at the same time; ``lam`` (λ) is a number, ``"trainable"``
    (λ = σ(lam_logit)) or None (c = i⊙g + f⊙c₋ + v⊙c').
    """

    ih_blocks = 5
    hh_blocks = 5
    lower_cell = True
    bias_one_gates = (1, 4)

    def __init__(self, lam: float | str | None = 0.5):
        self.lam = parse_lam(lam)
        self.trainable = self.lam == "trainable"
        if self.trainable:
            self.params = (("lam_logit", None),)
            self.zero_params = ("lam_logit",)  # λ = 0.5

    @property
    def kernel(self) -> str:  # type: ignore[override] # not for a class as a whole
        """There are two kernels, since a trainable λ needs gradients."""
        return "cas_lstm_trained" if self.trainable else "cas_lstm"

    def weights(self, params: Sequence[Tensor]) -> tuple[Tensor | float, Tensor | float]:
        """The factors of f⊙c₋ and v⊙c': 1-λ and λ, as numbers or as ``(H,)``."""
        if self.lam is None:
            return 1.0, 1.0
        if isinstance(self.lam, str):
            lam = torch.sigmoid(params[0])
            return 1 - lam, lam
        return 1 - self.lam, self.lam

    def step(
        self,
        gx: Tensor,
        gh: Tensor,
        h: Tensor,
        c: Tensor,
        *,
        lower_c: Tensor,
        params: tuple[Tensor, ...],
        **unused: IfUsed,
    ) -> tuple[Tensor, Tensor]:
        i, f, g, o, v = (gx + gh).chunk(5, dim=-1)
        past_weight, lower_weight = self.weights(params)
        c = (
            torch.sigmoid(i) * torch.tanh(g)
            + past_weight * torch.sigmoid(f) * c
            + lower_weight * torch.sigmoid(v) * lower_c
        )
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward_(
        self,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: Tensor,
        h: Tensor,
        c: Tensor,
        *,
        lower_c: Tensor,
        params: tuple[Tensor, ...],
        **unused: IfUsed,
    ) -> None:
        i, f, g, o, v = activate_(gates, c.size(-1))
        past_weight, lower_weight = self.weights(params)
        torch.mul(f, c_prev, out=c).mul_(past_weight)
        if isinstance(lower_weight, Tensor):
            c.addcmul_(v * lower_weight, lower_c)
        else:
            c.addcmul_(v, lower_c, value=lower_weight)
        c.addcmul_(i, g)
        torch.tanh(c, out=h).mul_(o)

    def backward_(
        self,
        dh: Tensor,
        dc: Tensor,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: Tensor,
        c: Tensor,
        *,
        lower_c: Tensor,
        params: tuple[Tensor, ...],
        d_params: tuple[Tensor, ...],
        **unused: IfUsed,
    ) -> CellGrads:
        i, f, g, o, v = gates.chunk(5, dim=-1)
        grad_through_output(dh, dc, o, c)
        past_weight, lower_weight = self.weights(params)
        dc_past, dc_lower = dc * past_weight, dc * lower_weight
        dc_prev, d_lower_c = dc_past * f, dc_lower * v
        if isinstance(past_weight, Tensor):
            d_lam = (dc * (v * lower_c - f * c_prev)).sum(0)
            d_params[0].addcmul_(d_lam, past_weight * lower_weight)
        input_grads_(dc, i, g)
        dsigmoid_(f, dc_past.mul_(c_prev))
        dsigmoid_(v, dc_lower.mul_(lower_c))
        return None, dc_prev, d_lower_c, None

    def kernel_rows(self, params: Sequence[Tensor], like: Tensor, size: int) -> Tensor:
        past_weight, lower_weight = self.weights(params)
        if isinstance(past_weight, Tensor) and isinstance(lower_weight, Tensor):
            return torch.stack([past_weight, lower_weight])
        # A tensor created under torch.export is fake and must not be cached.
        create = constant_rows.__wrapped__ if torch.compiler.is_compiling() else constant_rows
        rows: Tensor = create(past_weight, lower_weight, size, like.dtype, like.device)
        return rows

    def kernel_param_grads(
        self, d_rows: Tensor, rows: Tensor, params: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        if not self.trainable:
            return ()
        past_weight, lower_weight = rows  # 1-λ and λ = σ(lam_logit)
        return (((d_rows[1] - d_rows[0]) * past_weight * lower_weight).view_as(params[0]),)


@functools.lru_cache(maxsize=64)
@torch.inference_mode(False)
def constant_rows(
    past_weight: float, lower_weight: float, size: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """:meth:`CASCell.weights` of a constant λ, as the kernels read them: ``(2, size)``."""
    return torch.tensor([[past_weight], [lower_weight]], dtype=dtype, device=device).repeat(1, size)


def make_cell(layer: int, options: CASOptions) -> Cell:
    """The bottom layer is a plain LSTM; the layers above read c of the layer below."""
    cell = CASCell(options.lam)  # checks lam, even for a single layer, which does not use it
    return LSTMCell() if layer == 0 else cell

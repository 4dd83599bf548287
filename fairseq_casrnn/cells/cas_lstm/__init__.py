"""Cell-aware stacked LSTM (CAS-LSTM paper, eq. 7-13): a second forget gate, on the cell below."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import torch

from ...errors import UserError
from ..base import FUNCTIONAL, Cell, dsigmoid_, grad_through_output
from ..stacked_lstm import LSTMCell, activate_, input_grads_


@dataclass
class CASOptions:
    """Options of the CAS-LSTM."""

    lam: str = field(
        default="0.5",
        metadata={
            "help": "weight of the lower layer's cell against the past cell: a number in [0, 1], "
            "'trainable' (a vector per layer, starting at 0.5) or 'none' (unweighted sum)",
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

    @property
    def kernel(self) -> str:
        """Two kernels: a trainable λ has gradients."""
        return "cas_lstm_trained" if self.trainable else "cas_lstm"

    def weights(self, params):
        """The factors of f⊙c₋ and v⊙c': 1-λ and λ, as numbers or as ``(H,)``."""
        if self.lam is None:
            return 1.0, 1.0
        lam = torch.sigmoid(params[0]) if self.trainable else self.lam
        return 1 - lam, lam

    def step(self, gx, gh, h, c, *, lower_c, params, **unused):
        i, f, g, o, v = (gx + gh).chunk(5, dim=-1)
        past, below = self.weights(params)
        c = (
            torch.sigmoid(i) * torch.tanh(g)
            + past * torch.sigmoid(f) * c
            + below * torch.sigmoid(v) * lower_c
        )
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward_(self, gates, h_prev, c_prev, h, c, *, lower_c, params, **unused):
        i, f, g, o, v = activate_(gates, c.size(-1))
        past, below = self.weights(params)
        torch.mul(f, c_prev, out=c).mul_(past)
        if self.trainable:
            c.addcmul_(v * below, lower_c)
        else:
            c.addcmul_(v, lower_c, value=below)
        c.addcmul_(i, g)
        torch.tanh(c, out=h).mul_(o)

    def backward_(self, dh, dc, gates, h_prev, c_prev, c, *, lower_c, params, d_params, **unused):
        i, f, g, o, v = gates.chunk(5, dim=-1)
        grad_through_output(dh, dc, o, c)
        past, below = self.weights(params)
        dc_past, dc_below = dc * past, dc * below
        dc_prev, d_lower_c = dc_past * f, dc_below * v
        if self.trainable:
            d_lam = (dc * (v * lower_c - f * c_prev)).sum(0)
            d_params[0].addcmul_(d_lam, past * below)
        input_grads_(dc, i, g)
        dsigmoid_(f, dc_past.mul_(c_prev))
        dsigmoid_(v, dc_below.mul_(lower_c))
        return None, dc_prev, d_lower_c, None

    def kernel_rows(self, params, like, size):
        if self.trainable:
            return torch.stack(self.weights(params))
        # What is made while torch.export looks on stands for a computation: not to be kept.
        make = constant_rows.__wrapped__ if torch.compiler.is_compiling() else constant_rows
        return make(*self.weights(params), size, like.dtype, like.device)

    def kernel_param_grads(self, d_rows, rows, params):
        if not self.trainable:
            return ()
        past, below = rows  # 1-λ and λ = σ(lam_logit)
        return (((d_rows[1] - d_rows[0]) * past * below).view_as(params[0]),)


@functools.lru_cache(maxsize=64)
@torch.inference_mode(False)
def constant_rows(past: float, below: float, size: int, dtype, device):
    """``(2, size)``: a λ that is a number as the kernels read it, one row for each factor."""
    return torch.tensor([[past], [below]], dtype=dtype, device=device).repeat(1, size)


def make_cell(layer: int, options) -> Cell:
    """The bottom layer is a plain LSTM; the layers above see the cell below."""
    cell = CASCell(options.lam)  # checks lam, even where a single layer makes no use of it
    return LSTMCell() if layer == 0 else cell

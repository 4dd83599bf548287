"""Long short-term memory, the baseline of all (Hochreiter & Schmidhuber 1997; CAS-LSTM eq. 1-6)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import Cell, CellGrads, IfUsed, NoOptions, dsigmoid_, dtanh_, grad_through_output


class LSTMCell(Cell):
    """i, f, o = σ(·), g = tanh(·); c = i⊙g + f⊙c₋; h = o⊙tanh(c). Blocks: i f g o."""

    kernel = "stacked_lstm"

    def step(
        self, gx: Tensor, gh: Tensor, h: Tensor, c: Tensor, **unused: IfUsed
    ) -> tuple[Tensor, Tensor]:
        i, f, g, o = (gx + gh).chunk(4, dim=-1)
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward_(
        self,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: Tensor,
        h: Tensor,
        c: Tensor,
        **unused: IfUsed,
    ) -> None:
        i, f, g, o = activate_(gates, c.size(-1))
        torch.mul(f, c_prev, out=c).addcmul_(i, g)
        torch.tanh(c, out=h).mul_(o)

    def backward_(
        self,
        dh: Tensor,
        dc: Tensor,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: Tensor,
        c: Tensor,
        **unused: IfUsed,
    ) -> CellGrads:
        i, f, g, o = gates.chunk(4, dim=-1)
        grad_through_output(dh, dc, o, c)
        dc_prev = dc * f
        input_grads_(dc, i, g)
        dsigmoid_(f, dc * c_prev)
        return None, dc_prev, None, None


def activate_(gates: Tensor, size: int) -> tuple[Tensor, ...]:
    """Activate the blocks i f g o in place, and a fifth one if any (sigmoid); return them all."""
    gates[:, : 2 * size].sigmoid_()
    gates[:, 2 * size : 3 * size].tanh_()
    gates[:, 3 * size :].sigmoid_()
    blocks: tuple[Tensor, ...] = gates.split(size, dim=-1)
    return blocks


def input_grads_(dc: Tensor, i: Tensor, g: Tensor) -> None:
    """Backward of i⊙g: i and g become the gradients of their pre-activations."""
    d_i, d_g = dc * g, dc * i
    dsigmoid_(i, d_i)
    dtanh_(g, d_g)


def make_cell(layer: int, options: NoOptions) -> LSTMCell:
    """The cell of layer ``layer`` of a stack."""
    return LSTMCell()

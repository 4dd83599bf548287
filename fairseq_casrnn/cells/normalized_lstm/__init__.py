"""LSTM whose input and forget gate sum to one (sentence-state LSTM paper, eq. 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import Cell, CellGrads, IfUsed, NoOptions, dsigmoid_, dtanh_, grad_through_output
from ..stacked_lstm import activate_


class NormalizedLSTMCell(Cell):
    """As LSTM, with (i, f) = softmax(σ(·), σ(·)) in each dimension. Blocks: i f g o."""

    kernel = "normalized_lstm"

    def step(
        self, gx: Tensor, gh: Tensor, h: Tensor, c: Tensor, **unused: IfUsed
    ) -> tuple[Tensor, Tensor]:
        i, f, g, o = (gx + gh).chunk(4, dim=-1)
        i, f = torch.softmax(torch.stack([torch.sigmoid(i), torch.sigmoid(f)]), dim=0)
        c = i * torch.tanh(g) + f * c
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
        # A softmax over two values is the sigmoid of their difference; f is 1 - share.
        share = torch.sigmoid(i - f)
        torch.lerp(c_prev, g, share, out=c)
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
        share = torch.sigmoid(i - f)
        d_g = dc * share
        d_difference = torch.ops.aten.sigmoid_backward(dc * (g - c_prev), share)
        dtanh_(g, d_g)
        dsigmoid_(i, d_difference)
        dsigmoid_(f, -d_difference)
        return None, dc - d_g, None, None


def make_cell(layer: int, options: NoOptions) -> NormalizedLSTMCell:
    """The cell of layer ``layer`` of a stack."""
    return NormalizedLSTMCell()

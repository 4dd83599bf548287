"""Second-order attention LSTM (its paper's eq. a-e): S cells, mixed by attention on the input."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..base import Cell, CellGrads, IfUsed, at_least_one, dsigmoid_, dtanh_


@dataclass
class SecondOrderOptions:
    """Options of the second-order LSTM."""

    num_cells: int = field(default=2, metadata={"help": "number of cells mixed by attention (S)"})
    temperature: float = field(
        default=1.0, metadata={"help": "temperature of the softmax over cells in the first epoch"}
    )
    temperature_decay: float = field(
        default=0.9, metadata={"help": "factor applied to the temperature after each epoch"}
    )
    temperature_floor: float = field(
        default=1e-4, metadata={"help": "lower bound of the temperature"}
    )


class SecondOrderCell(Cell):
    """All S cells read the same (h₋, c₋); h = Σ αₛ hₛ, c = Σ αₛ cₛ.

    Blocks: S times i f g o, cell-major. The mixture weights α = softmax(V x / τ), ``(B, S)``, come
    as ``mixture``; V and τ are the layer's.
    """

    kernel = "second_order_lstm"

    def __init__(self, num_cells: int = 2):
        self.num_cells = at_least_one("num_cells", num_cells)
        self.ih_blocks = self.hh_blocks = 4 * self.num_cells
        self.bias_one_gates = tuple(range(1, self.ih_blocks, 4))

    def blocks(self, gates: Tensor) -> tuple[Tensor, ...]:
        """Views i, f, g, o of ``(B, S*4*H)``, each ``(B, S, H)``."""
        size = gates.size(-1) // self.ih_blocks
        views: tuple[Tensor, ...] = gates.unflatten(-1, (self.num_cells, 4, size)).unbind(2)
        return views

    def step(
        self,
        gx: Tensor,
        gh: Tensor,
        h: Tensor,
        c: Tensor,
        *,
        mixture: Tensor,
        **unused: IfUsed,
    ) -> tuple[Tensor, Tensor]:
        h_sum, c_sum = torch.zeros_like(h), torch.zeros_like(c)
        gates = (gx + gh).chunk(self.num_cells, dim=-1)
        for gates_s, alpha in zip(gates, mixture.split(1, dim=-1), strict=True):
            i, f, g, o = gates_s.chunk(4, dim=-1)
            c_s = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
            h_sum = h_sum + alpha * torch.sigmoid(o) * torch.tanh(c_s)
            c_sum = c_sum + alpha * c_s
        return h_sum, c_sum

    def forward_(
        self,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: Tensor,
        h: Tensor,
        c: Tensor,
        *,
        mixture: Tensor,
        **unused: IfUsed,
    ) -> None:
        i, f, g, o = self.blocks(gates)
        gates.view(gates.size(0), self.num_cells, 4, -1)[:, :, :2].sigmoid_()
        g.tanh_()
        o.sigmoid_()
        c_s = torch.addcmul(i * g, f, c_prev.unsqueeze(1))
        h_s = torch.tanh(c_s).mul_(o)
        alpha = mixture.unsqueeze(1)  # (B, 1, S) x (B, S, H)
        c.copy_(torch.bmm(alpha, c_s).squeeze(1))
        h.copy_(torch.bmm(alpha, h_s).squeeze(1))

    def backward_(
        self,
        dh: Tensor,
        dc: Tensor,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: Tensor,
        c: Tensor,
        *,
        mixture: Tensor,
        **unused: IfUsed,
    ) -> CellGrads:
        i, f, g, o = self.blocks(gates)
        prev, alpha = c_prev.unsqueeze(1), mixture.unsqueeze(-1)
        c_s = torch.addcmul(i * g, f, prev)
        tanh_c = torch.tanh(c_s)
        d_mixture = torch.bmm(tanh_c * o, dh.unsqueeze(-1)).add_(torch.bmm(c_s, dc.unsqueeze(-1)))
        dh_s = alpha * dh.unsqueeze(1)
        dc_s = alpha * dc.unsqueeze(1)
        dc_s.add_(torch.ops.aten.tanh_backward(dh_s * o, tanh_c))
        dsigmoid_(o, dh_s.mul_(tanh_c))
        dc_prev = (dc_s * f).sum(1)
        d_i, d_g = dc_s * g, dc_s * i
        dsigmoid_(i, d_i)
        dtanh_(g, d_g)
        dsigmoid_(f, dc_s.mul_(prev))
        return None, dc_prev, None, d_mixture.squeeze(-1)


def make_cell(layer: int, options: SecondOrderOptions) -> SecondOrderCell:
    """The cell of layer ``layer`` of a stack."""
    return SecondOrderCell(options.num_cells)

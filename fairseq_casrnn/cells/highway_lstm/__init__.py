"""Highway LSTM (Zhang et al. 2016), as in the CAS-LSTM paper's ablation iii, eq. 17-18."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import Cell, CellGrads, IfUsed, NoOptions, dsigmoid_, grad_through_output
from ..stacked_lstm import LSTMCell, activate_, input_grads_


class HighwayCell(Cell):
    """d = σ(W_d h' + p₀⊙c₋ + p₁⊙c' + b_d); c = i⊙g + f⊙c₋ + d⊙c'.

    Blocks: i f g o d; U has i f g o. ``depth_peephole`` is ``(2, H)``: rows for c₋ and c'.
    """

    kernel = "highway_lstm"
    ih_blocks = 5
    lower_cell = True
    params = (("depth_peephole", 2),)

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
        (p,) = params
        i, f, g, o, d = gx.chunk(5, dim=-1)
        gh_i, gh_f, gh_g, gh_o = gh.chunk(4, dim=-1)
        d = torch.sigmoid(d + p[0] * c + p[1] * lower_c)
        c = (
            torch.sigmoid(i + gh_i) * torch.tanh(g + gh_g)
            + torch.sigmoid(f + gh_f) * c
            + d * lower_c
        )
        return torch.sigmoid(o + gh_o) * torch.tanh(c), c

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
        (p,) = params
        gates[:, 4 * c.size(-1) :].addcmul_(p[0], c_prev).addcmul_(p[1], lower_c)
        i, f, g, o, d = activate_(gates, c.size(-1))
        torch.mul(f, c_prev, out=c).addcmul_(i, g).addcmul_(d, lower_c)
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
        **unused: IfUsed,
    ) -> CellGrads:
        (p,) = params
        i, f, g, o, d = gates.chunk(5, dim=-1)
        grad_through_output(dh, dc, o, c)
        dc_prev, d_lower_c = dc * f, dc * d
        input_grads_(dc, i, g)
        dsigmoid_(f, dc * c_prev)
        dsigmoid_(d, dc * lower_c)
        return None, dc_prev.addcmul_(d, p[0]), d_lower_c.addcmul_(d, p[1]), None

    def param_grads(
        self, d_gates: Tensor, cs: Tensor, *, lower_c: Tensor, d_params: tuple[Tensor, ...]
    ) -> None:
        d_d = d_gates.chunk(5, dim=-1)[4]
        d_params[0][0].add_((d_d * cs[:-1]).sum((0, 1)))
        d_params[0][1].add_((d_d * lower_c).sum((0, 1)))


def make_cell(layer: int, options: NoOptions) -> Cell:
    """The bottom layer is a plain LSTM; the layers above read c of the layer below."""
    return LSTMCell() if layer == 0 else HighwayCell()

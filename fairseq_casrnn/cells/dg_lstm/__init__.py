"""Depth-gated LSTM (its paper's eq. 12-18), with diagonal peepholes as in Graves (2013)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import Cell, CellGrads, IfUsed, NoOptions, dsigmoid_, dtanh_


class PeepholeCell(Cell):
    """LSTM whose i and f read c₋ and whose o reads the new c (eq. 3-7). Blocks: i f g o.

    ``peephole`` is ``(3, H)``: rows for i, f, o. It is the bottom layer of a depth-gated stack.
    """

    kernel = "dg_lstm_bottom"
    params: tuple[tuple[str, int], ...] = (("peephole", 3),)
    depth = False

    def step(
        self,
        gx: Tensor,
        gh: Tensor,
        h: Tensor,
        c: Tensor,
        *,
        lower_c: IfUsed,
        params: tuple[Tensor, ...],
        **unused: IfUsed,
    ) -> tuple[Tensor, Tensor]:
        p = params[0]
        blocks = gx.chunk(self.ih_blocks, dim=-1)
        gh_i, gh_f, gh_g, gh_o = gh.chunk(4, dim=-1)
        i = torch.sigmoid(blocks[0] + gh_i + p[0] * c)
        f = torch.sigmoid(blocks[1] + gh_f + p[1] * c)
        new_c = i * torch.tanh(blocks[2] + gh_g) + f * c
        if self.depth:
            q = params[1]
            new_c = new_c + torch.sigmoid(blocks[4] + q[0] * c + q[1] * lower_c) * lower_c
        o = torch.sigmoid(blocks[3] + gh_o + p[2] * new_c)
        return o * torch.tanh(new_c), new_c

    def forward_(
        self,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: Tensor,
        h: Tensor,
        c: Tensor,
        *,
        lower_c: IfUsed,
        params: tuple[Tensor, ...],
        **unused: IfUsed,
    ) -> None:
        p = params[0]
        i, f, g, o, *depth = gates.split(c.size(-1), dim=-1)
        i.addcmul_(p[0], c_prev).sigmoid_()
        f.addcmul_(p[1], c_prev).sigmoid_()
        torch.mul(f, c_prev, out=c).addcmul_(i, g.tanh_())
        if self.depth:
            q = params[1]
            d = depth[0].addcmul_(q[0], c_prev).addcmul_(q[1], lower_c).sigmoid_()
            c.addcmul_(d, lower_c)
        o.addcmul_(p[2], c).sigmoid_()
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
        lower_c: IfUsed,
        params: tuple[Tensor, ...],
        **unused: IfUsed,
    ) -> CellGrads:
        p = params[0]
        i, f, g, o, *depth = gates.chunk(self.ih_blocks, dim=-1)
        tanh_c = torch.tanh(c)
        dc.add_(torch.ops.aten.tanh_backward(dh * o, tanh_c))
        dc.addcmul_(dsigmoid_(o, dh * tanh_c), p[2])
        dc_prev = dc * f
        d_i, d_g = dc * g, dc * i
        dtanh_(g, d_g)
        dc_prev.addcmul_(dsigmoid_(i, d_i), p[0])
        dc_prev.addcmul_(dsigmoid_(f, dc * c_prev), p[1])
        if not self.depth:
            return None, dc_prev, None, None
        (d,), q = depth, params[1]
        d_lower_c = dc * d
        dsigmoid_(d, dc * lower_c)
        return None, dc_prev.addcmul_(d, q[0]), d_lower_c.addcmul_(d, q[1]), None

    def param_grads(
        self, d_gates: Tensor, cs: Tensor, *, lower_c: IfUsed, d_params: tuple[Tensor, ...]
    ) -> None:
        d_i, d_f, _, d_o, *depth = d_gates.chunk(self.ih_blocks, dim=-1)
        prev_c, new_c = cs[:-1], cs[1:]
        for row, (grad, read_c) in enumerate(((d_i, prev_c), (d_f, prev_c), (d_o, new_c))):
            d_params[0][row].add_((grad * read_c).sum((0, 1)))
        if self.depth:
            for row, read_c in enumerate((prev_c, lower_c)):
                d_params[1][row].add_((depth[0] * read_c).sum((0, 1)))


class DGCell(PeepholeCell):
    """d = σ(W_d h' + p₀⊙c₋ + p₁⊙c' + b_d); c = d⊙c' + f⊙c₋ + i⊙g.

    Blocks: i f g o d; U has i f g o. ``peephole`` is as in :class:`PeepholeCell`;
    ``depth_peephole`` is ``(2, H)``: rows for c₋ and c'.
    """

    kernel = "dg_lstm"
    ih_blocks = 5
    lower_cell = True
    depth = True
    params = (("peephole", 3), ("depth_peephole", 2))


def make_cell(layer: int, options: NoOptions) -> Cell:
    """The bottom layer is a peephole LSTM; the layers above read c of the layer below."""
    return PeepholeCell() if layer == 0 else DGCell()

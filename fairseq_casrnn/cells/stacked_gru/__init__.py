"""Gated recurrent unit (Cho et al. 2014) in cuDNN's form: the reset gate multiplies U h, not h."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import Cell, CellGrads, IfUsed, NoOptions, dsigmoid_, dtanh_


class GRUCell(Cell):
    """r, z = σ(·); n = tanh(W x + b + r⊙(U h₋ + b_n)); h = (1-z)⊙n + z⊙h₋. Blocks: r z n."""

    kernel = "stacked_gru"
    ih_blocks = 3
    hh_blocks = 3
    num_separate_gates = 1
    has_cell = False
    params = (("bias_n", None),)
    bias_one_gates: tuple[int, ...] = ()

    def step(
        self,
        gx: Tensor,
        gh: Tensor,
        h: Tensor,
        c: IfUsed,
        *,
        params: tuple[Tensor, ...],
        **unused: IfUsed,
    ) -> tuple[Tensor, None]:
        (bias_n,) = params
        gx_r, gx_z, gx_n = gx.chunk(3, dim=-1)
        gh_r, gh_z, gh_n = gh.chunk(3, dim=-1)
        r, z = torch.sigmoid(gx_r + gh_r), torch.sigmoid(gx_z + gh_z)
        n = torch.tanh(gx_n + r * (gh_n + bias_n))
        return (1 - z) * n + z * h, None

    def forward_(
        self,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: IfUsed,
        h: Tensor,
        c: IfUsed,
        *,
        candidate: Tensor,
        params: tuple[Tensor, ...],
        **unused: IfUsed,
    ) -> None:
        size = h.size(-1)
        candidate.add_(params[0])  # bias included, as the backward reads it
        gates[:, : 2 * size].sigmoid_()
        r, z, n = gates.split(size, dim=-1)
        n.addcmul_(r, candidate).tanh_()
        torch.lerp(n, h_prev, z, out=h)

    def backward_(
        self,
        dh: Tensor,
        dc: IfUsed,
        gates: Tensor,
        h_prev: Tensor,
        c_prev: IfUsed,
        c: IfUsed,
        *,
        candidate: Tensor,
        d_params: tuple[Tensor, ...],
        **unused: IfUsed,
    ) -> CellGrads:
        r, z, n = gates.chunk(3, dim=-1)
        dh_prev = dh * z
        d_z = dh * (h_prev - n)
        dtanh_(n, dh - dh_prev)  # n becomes the gradient of its pre-activation
        dsigmoid_(z, d_z)
        d_candidate = n * r
        dsigmoid_(r, n * candidate)
        candidate.copy_(d_candidate)
        d_params[0].add_(d_candidate.sum(0))
        return dh_prev, None, None, None


def make_cell(layer: int, options: NoOptions) -> GRUCell:
    """The cell of layer ``layer`` of a stack."""
    return GRUCell()

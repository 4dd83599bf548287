"""A custom cell: an LSTM whose input gate is 1 - f (CIFG; Greff et al. 2017, section 3)."""

import torch

import fairseq_casrnn
from fairseq_casrnn.cells import Cell


class CoupledCell(Cell):
    """c = f⊙c₋ + (1-f)⊙g; h = o⊙tanh(c). Blocks: f g o."""

    ih_blocks = hh_blocks = 3
    bias_one_gates = (0,)  # the bias of f starts at 1

    def step(self, gx, gh, h, c, **unused):
        """As the base class describes it."""
        f, g, o = (gx + gh).chunk(3, dim=-1)
        f = torch.sigmoid(f)
        c = f * c + (1 - f) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


fairseq_casrnn.register_cell("coupled_lstm", CoupledCell)

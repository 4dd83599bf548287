"""Pooling: the states of a sentence's words as one vector, ignoring padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..recurrence.ragged import padding_mask
from ..recurrence.reference import gather_last

KINDS = ("max", "mean", "last", "attention", "node")


class Pooling(nn.Module):
    """Pools states ``(T, B, C)`` over time.

    - ``max``: the largest value of each feature
    - ``mean``: the mean over the words
    - ``last``: the final states, forward at the last word and backward at the first
    - ``attention``: Σ αₜ hₜ, α = softmax(uᵀ tanh(W hₜ + b)) (S-LSTM paper, "external attention")
    - ``node``: the states of a sentence-state LSTM's sentence nodes

    Args:
        kind: one of the above.
        size: C.
        directions: 2 if the second half of the features comes from the backward direction.
        node_size: features of the sentence nodes; 0 without nodes.

    Parameters, for ``attention``: ``weight`` (C, C), ``bias`` (C,), ``query`` (C,).

    Raises:
        UserError: an unknown kind, or ``node`` without nodes.
    """

    def __init__(self, kind: str, size: int, directions: int = 1, node_size: int = 0):
        super().__init__()
        if kind not in KINDS:
            raise UserError(f"pooling is {kind!r}; use one of {', '.join(KINDS)}")
        if kind == "node" and not node_size:
            raise UserError(
                "pooling 'node' takes the sentence nodes of a sentence-state LSTM, which this "
                "encoder does not have; use max, mean, last or attention"
            )
        self.kind, self.directions = kind, directions
        self.output_size = node_size if kind == "node" else size
        if kind == "attention":
            self.weight = nn.Parameter(torch.empty(size, size))
            self.bias = nn.Parameter(torch.zeros(size))
            self.query = nn.Parameter(torch.empty(size))
            nn.init.xavier_uniform_(self.weight)
            nn.init.uniform_(self.query, -(size**-0.5), size**-0.5)

    def forward(self, states: Tensor, lengths: Tensor, node: Tensor | None = None) -> Tensor:
        """The sentence vectors ``(B, output_size)``.

        Args:
            states: ``(T, B, C)``; values at padding are ignored.
            lengths: ``(B,)``, at least 1 each.
            node: ``(B, node_size)``, for the kind ``node``.
        """
        if self.kind == "node":
            assert node is not None
            return node
        if self.kind == "last":
            return self._last(states, lengths)
        padding = padding_mask(lengths, states.size(0)).unsqueeze(-1)  # (T, B, 1)
        if self.kind == "max":
            return states.masked_fill(padding, -torch.inf).amax(0)
        states = states.masked_fill(padding, 0.0)
        if self.kind == "mean":
            return states.sum(0) / lengths.to(states.dtype).unsqueeze(-1)
        return (self.attention(states, padding) * states).sum(0)

    def attention(self, states: Tensor, padding: Tensor) -> Tensor:
        """The weights α ``(T, B, 1)``, zero where ``padding`` (T, B, 1) is True."""
        energy = torch.tanh(nn.functional.linear(states, self.weight, self.bias)) @ self.query
        return energy.unsqueeze(-1).masked_fill(padding, -torch.inf).softmax(0)

    def _last(self, states: Tensor, lengths: Tensor) -> Tensor:
        last = gather_last(states, lengths - 1)
        if self.directions == 1:
            return last
        half = states.size(-1) // 2
        return torch.cat([last[:, :half], states[0, :, half:]], dim=-1)

"""The sentence-state LSTM as engines run it: parameters, and the elementwise part of a step.

The elementwise part exists in PyTorch and in C++ operations. PyTorch makes a dozen passes over the
gates of all words, including padding, in the forward and again in the backward; the compiled
extension makes one pass each, over real words only. Shapes and names are those of
:class:`fairseq_casrnn.layers.SentenceStateLSTM`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from . import eager
from .cpp import OPS, dense
from .ragged import Layout, PackedLayout, PaddedLayout, padding_mask

ALIGNMENT = 8
"""The stride of ξ's rows on a GPU is a multiple of this: 16 bytes in half precision."""


class SLSTMParameters(NamedTuple):
    """The layer's parameters; the last four are None without sentence nodes."""

    weight_ih: Tensor
    bias: Tensor
    weight_hh: Tensor
    h0: Tensor
    weight_gh: Tensor | None
    weight_sg: Tensor | None
    weight_sh: Tensor | None
    bias_s: Tensor | None


@dataclass(frozen=True)
class SLSTMOptions:
    """Sizes and settings of a layer.

    Attributes:
        size, window, nodes, num_steps: H, w, K and the number of steps.
        recompute: recompute the words' gates in the backward.
    """

    size: int
    window: int
    nodes: int
    num_steps: int
    recompute: bool

    @property
    def gates(self) -> int:
        """G: gates of a word."""
        return 2 * self.window + self.nodes + 4

    @property
    def node_blocks(self) -> int:
        """M: blocks that are computed once per sentence."""
        return self.gates + 2 * self.nodes + self.nodes**2

    @property
    def columns(self) -> int:
        """Number of values in ξ."""
        return (2 * self.window + 1) * self.size

    @property
    def width(self) -> int:
        """The stride of ξ's rows on a GPU."""
        return -(-self.columns // ALIGNMENT) * ALIGNMENT


def lengths_of(x: Tensor) -> Tensor:
    """``(B,)``: every sentence of x ``(T, B, ·)`` has T words."""
    return torch.full((x.size(1),), x.size(0), device=x.device)


class WordOps(Protocol):
    """The interface of both classes. ``*`` stands for the words' dimensions: ``(T, B)``, or N.

    Attributes:
        lengths: ``(B, 1)``, in the order of the sentences' states.
    """

    lengths: Tensor

    def rows(self, states: Tensor) -> Tensor:
        """Convert ``(T, B, ·)`` to ``(*, ·)``."""

    def to_padded(self, states: Tensor) -> Tensor:
        """Convert ``(*, ·)`` to ``(T, B, ·)``, zero at padding."""

    def nodes(self, states: Tensor) -> Tensor:
        """States ``(B, ·)`` of sentences, in the caller's order."""

    def expand_to_words(self, state: Tensor) -> Tensor:
        """``state`` (H) for every word, ``(*, H)``."""

    def window_concat(self, h: Tensor, window: int) -> tuple[Tensor, Tensor]:
        """ξ ``(*, (2w+1)*H)``, zero beyond the sentence, and the sum of h over words ``(B, H)``."""

    def mix(
        self, gates: Tensor, gx: Tensor, gg: Tensor, c: Tensor, nodes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """New h and c of the words.

        Args:
            gates: ``(*, G*H)``, W_hh ξ; may be overwritten.
            gx, gg: ``(*, G*H)``, W_ih x + b, and ``(B, G*H)``, W_gh g.
            c, nodes: ``(*, H)`` and ``(B, K, H)``, the cells of words and sentence nodes.
        """

    def gather(self, gates: Tensor, gg: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Σᵢ eᵢ⊙cᵢ and Σᵢ eᵢ over the words, ``(B, K, H)`` each, with e = exp(σ(gates + gg) − 1).

        Args:
            gates: ``(*, K*H)``, U_f h; may be overwritten.
            gg: ``(B, K*H)``, W_f g + b_f.
            c: ``(*, H)``.
        """


class TorchWordOps:
    """:class:`WordOps` in PyTorch operations, on states ``(T, B, ·)``, zero at padding."""

    def __init__(self, x: Tensor, lengths: Tensor | None):
        self.steps, self.batch, _ = x.shape
        if lengths is None:
            lengths = lengths_of(x)
            self.padding = None
        else:
            self.padding = padding_mask(lengths, self.steps).unsqueeze(-1)
        self.lengths = lengths.unsqueeze(1)

    def without_padding(self, states: Tensor) -> Tensor:
        """``(T, B, ·)`` with padding set to zero, even if it was NaN."""
        return states if self.padding is None else states.masked_fill(self.padding, 0.0)

    def rows(self, states: Tensor) -> Tensor:
        """The states, zero at padding."""
        return self.without_padding(states)

    def to_padded(self, states: Tensor) -> Tensor:
        """The states as they are."""
        return states

    def nodes(self, states: Tensor) -> Tensor:
        """The states as they are."""
        return states

    def expand_to_words(self, state: Tensor) -> Tensor:
        """``state`` (H) for every word, ``(T, B, H)``."""
        return self.without_padding(state.expand(self.steps, self.batch, -1))

    def window_concat(self, h: Tensor, window: int) -> tuple[Tensor, Tensor]:
        """ξ ``(T, B, (2w+1)*H)`` and the sum of h over words ``(B, H)``."""
        return torch.cat(self._around(h, window), -1), h.sum(0)

    def mix(
        self, gates: Tensor, gx: Tensor, gg: Tensor, c: Tensor, nodes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """New h and c of the words."""
        size, cells = c.size(-1), nodes.size(1)
        shares = gates.size(-1) // size - 2
        window = (shares - 2 - cells) // 2
        mixing, o, u = (gx + gates + gg).split([shares * size, size, size], dim=-1)
        # The softmax is over values of σ in (0, 1), so exp cannot overflow.
        weights = mixing.sigmoid().exp().unflatten(-1, (shares, size))
        mixed = [u.tanh(), *self._around(c, window)]
        terms = [weights[..., k, :] * cell for k, cell in enumerate(mixed)]
        total = sum(terms[1:], terms[0]) + (weights[..., len(mixed) :, :] * nodes).sum(-2)
        new_c = self.without_padding(total / weights.sum(-2))
        return self.without_padding(o.sigmoid() * new_c.tanh()), new_c

    def gather(self, gates: Tensor, gg: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Σᵢ eᵢ⊙cᵢ and Σᵢ eᵢ over the words, ``(B, K, H)`` each."""
        shares = self.without_padding(((gates + gg).sigmoid() - 1).exp())
        shares = shares.unflatten(-1, (-1, c.size(-1)))
        return (shares * c.unsqueeze(2)).sum(0), shares.sum(0)

    @staticmethod
    def _around(states: Tensor, window: int) -> list[Tensor]:
        """``states`` of the words i−w, …, i+w, zero beyond the sentence."""
        padded = F.pad(states, (0, 0, 0, 0, window, window))
        return [padded[k : k + states.size(0)] for k in range(2 * window + 1)]


class PackedWordOps:
    """:class:`WordOps` in C++ operations, on states ``(N, ·)`` of the real words, without padding.

    Rows are the first words of all sentences, the longest sentence first, then the second words,
    and so on. The sentences' states have the same order, except for the results of :meth:`nodes`.
    """

    def __init__(self, x: Tensor, lengths: Tensor | None):
        steps, batch, _ = x.shape
        if lengths is None:
            self.layout: Layout = PaddedLayout(steps, batch)
            lengths = lengths_of(x)
        else:
            self.layout = PackedLayout(steps, batch, lengths - 1)
        self.counts = self.layout.counts or [batch] * steps
        self.lengths = self.layout.sort(lengths).unsqueeze(1)

    def rows(self, states: Tensor) -> Tensor:
        """Convert ``(T, B, ·)`` to ``(N, ·)``."""
        return self.layout.pack(states)

    def to_padded(self, states: Tensor) -> Tensor:
        """Convert ``(N, ·)`` to ``(T, B, ·)``, zero at padding."""
        return self.layout.unpack(states)

    def nodes(self, states: Tensor) -> Tensor:
        """States ``(B, ·)`` of sentences, in the caller's order."""
        return self.layout.unsort(states)

    def expand_to_words(self, state: Tensor) -> Tensor:
        """``state`` (H) for every word, ``(N, H)``."""
        return state.expand(sum(self.counts), -1)

    def window_concat(self, h: Tensor, window: int) -> tuple[Tensor, Tensor]:
        """ξ ``(N, (2w+1)*H)`` and the sum of h over words ``(B, H)``."""
        around, total = _WindowConcat.apply(dense(h), window, self.counts)
        return around, total

    def mix(
        self, gates: Tensor, gx: Tensor, gg: Tensor, c: Tensor, nodes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """New h and c of the words."""
        new_h, new_c = _Mix.apply(*map(dense, (gates, gx, gg, c, nodes)), self.counts)
        return new_h, new_c

    def gather(self, gates: Tensor, gg: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Σᵢ eᵢ⊙cᵢ and Σᵢ eᵢ over the words, ``(B, K, H)`` each."""
        cells, shares = _Gather.apply(*map(dense, (gates, gg, c)), self.counts)
        return cells, shares


class _WindowConcat(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, window: int, counts: list[int]) -> tuple[Tensor, Tensor]:
        ctx.window, ctx.counts = window, counts
        around, total = OPS.window_concat(h, window, counts)
        return around, total

    @staticmethod
    def backward(ctx: Any, grad_around: Tensor, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        eager.check_backward("cpp", grad_around, grad_total)
        grad = OPS.window_concat_backward(
            dense(grad_around), dense(grad_total), ctx.window, ctx.counts
        )
        return grad, None, None


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        gx: Tensor,
        gg: Tensor,
        c: Tensor,
        nodes: Tensor,
        counts: list[int],
    ) -> tuple[Tensor, Tensor]:
        ctx.counts = counts
        # In place: gates are the output of a matrix product, which autograd does not save.
        h, new_c = OPS.mix_words_(gates.detach(), gx, gg, c, nodes, counts)
        ctx.save_for_backward(gates, c, nodes, new_c)
        return h, new_c

    @staticmethod
    def backward(ctx: Any, grad_h: Tensor, grad_c: Tensor) -> tuple[Tensor | None, ...]:
        eager.check_backward("cpp", grad_h, grad_c)
        d_gates, d_gg, d_c, d_nodes = OPS.mix_words_backward(
            *ctx.saved_tensors, dense(grad_h), dense(grad_c), ctx.counts
        )
        return d_gates, d_gates, d_gg, d_c, d_nodes, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, gg: Tensor, c: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor]:
        ctx.counts = counts
        ctx.save_for_backward(gates, c)
        cells, shares = OPS.gather_words_(gates.detach(), gg, c, counts)
        return cells, shares

    @staticmethod
    def backward(ctx: Any, grad_cells: Tensor, grad_shares: Tensor) -> tuple[Tensor | None, ...]:
        eager.check_backward("cpp", grad_cells, grad_shares)
        grads = OPS.gather_words_backward(
            *ctx.saved_tensors, dense(grad_cells), dense(grad_shares), ctx.counts
        )
        return *grads, None

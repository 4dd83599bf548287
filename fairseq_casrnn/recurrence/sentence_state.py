"""The elementwise work of a sentence-state LSTM's step, in two classes with the same methods.

PyTorch's operations make a dozen passes over the gates of all words in either direction, padding
included; the compiled extension makes one, over real words only. Shapes and names are those of
:class:`fairseq_casrnn.layers.SentenceStateLSTM`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import eager
from .cpp import OPS, dense
from .ragged import PackedLayout, PaddedLayout, padding_mask


def lengths_of(x: Tensor) -> Tensor:
    """``(B,)``: every sentence of x ``(T, B, ·)`` has T words."""
    return torch.full((x.size(1),), x.size(0), device=x.device)


class TorchWordOps:
    """PyTorch operations on states ``(T, B, ·)`` of all words, zero at padding.

    Attributes:
        lengths: ``(B, 1)``.
    """

    def __init__(self, x: Tensor, lengths: Tensor | None):
        self.steps, self.batch, _ = x.shape
        if lengths is None:
            lengths = lengths_of(x)
            self.padding = None
        else:
            self.padding = padding_mask(lengths, self.steps).unsqueeze(-1)
        self.lengths = lengths.unsqueeze(1)

    def without_padding(self, states: Tensor) -> Tensor:
        """``(T, B, ·)`` with zeros at padding, whatever stood there, NaN included."""
        return states if self.padding is None else states.masked_fill(self.padding, 0.0)

    rows = without_padding
    """``(T, B, ·)`` in the layout of the words' states."""

    def to_padded(self, states: Tensor) -> Tensor:
        """States of words as ``(T, B, ·)``, zero at padding."""
        return states

    def nodes(self, states: Tensor) -> Tensor:
        """``(B, ·)`` of the sentences, in the caller's order."""
        return states

    def expand_to_words(self, state: Tensor) -> Tensor:
        """``state`` (H) for every word."""
        return self.without_padding(state.expand(self.steps, self.batch, -1))

    def window_concat(self, h: Tensor, window: int) -> tuple[Tensor, Tensor]:
        """ξ ``(T, B, (2w+1)*H)``, zero beyond the sentence, and the sum of the words ``(B, H)``."""
        return torch.cat(self._around(h, window), -1), h.sum(0)

    def mix(self, gates, gx, gg, c, nodes) -> tuple[Tensor, Tensor]:
        """New h and c of the words.

        Args:
            gates: ``(T, B, G*H)``, W_hh ξ; may be overwritten.
            gx, gg: ``(T, B, G*H)``, W_ih x + b, and ``(B, G*H)``, W_gh g.
            c, nodes: ``(T, B, H)`` and ``(B, K, H)``, the cells of words and sentence nodes.
        """
        size, cells = c.size(-1), nodes.size(1)
        shares = gates.size(-1) // size - 2
        window = (shares - 2 - cells) // 2
        mixing, o, u = (gx + gates + gg).split([shares * size, size, size], dim=-1)
        # σ first and softmax after: the exponents lie in (0, 1), so nothing can overflow.
        weights = mixing.sigmoid().exp().unflatten(-1, (shares, size))
        mixed = [u.tanh(), *self._around(c, window)]
        total = sum(weights[..., k, :] * cell for k, cell in enumerate(mixed))
        total = total + (weights[..., len(mixed) :, :] * nodes).sum(-2)
        new_c = self.without_padding(total / weights.sum(-2))
        return self.without_padding(o.sigmoid() * new_c.tanh()), new_c

    def gather(self, gates, gg, c) -> tuple[Tensor, Tensor]:
        """Σᵢ eᵢ⊙cᵢ and Σᵢ eᵢ over the words, ``(B, K, H)`` each, with e = exp(σ(gates + gg) − 1).

        Args:
            gates: ``(T, B, K*H)``, U_f h; may be overwritten.
            gg: ``(B, K*H)``, W_f g + b_f.
            c: ``(T, B, H)``.
        """
        shares = self.without_padding(((gates + gg).sigmoid() - 1).exp())
        shares = shares.unflatten(-1, (-1, c.size(-1)))
        return (shares * c.unsqueeze(2)).sum(0), shares.sum(0)

    @staticmethod
    def _around(states: Tensor, window: int) -> list[Tensor]:
        """``states`` of the words i−w, …, i+w, zero beyond the sentence."""
        padded = F.pad(states, (0, 0, 0, 0, window, window))
        return [padded[k : k + states.size(0)] for k in range(2 * window + 1)]


class PackedWordOps:
    """C++ operations on states ``(N, ·)`` of the N real words, without padding.

    Rows hold the first words of all sentences, the longest sentence first, then the second words,
    and so on. Methods are those of :class:`TorchWordOps`, with N in place of ``(T, B)`` and
    sentences sorted by length.
    """

    def __init__(self, x: Tensor, lengths: Tensor | None):
        steps, batch, _ = x.shape
        if lengths is None:
            self.layout, lengths = PaddedLayout(steps, batch), lengths_of(x)
        else:
            self.layout = PackedLayout(steps, batch, lengths - 1)
        self.counts = self.layout.counts or [batch] * steps
        self.lengths = self.layout.sort(lengths).unsqueeze(1)
        self.rows, self.to_padded = self.layout.pack, self.layout.unpack
        self.nodes = self.layout.unsort

    def expand_to_words(self, state):
        """``state`` (H) for every word."""
        return state.expand(sum(self.counts), -1)

    def window_concat(self, h, window):
        """ξ ``(N, (2w+1)*H)``, zero beyond the sentence, and the sum of the words ``(B, H)``."""
        return _WindowConcat.apply(dense(h), window, self.counts)

    def mix(self, gates, gx, gg, c, nodes):
        """New h and c of the words."""
        tensors = map(dense, (gates, gx, gg, c, nodes))
        return _Mix.apply(*tensors, self.counts)

    def gather(self, gates, gg, c):
        """Σᵢ eᵢ⊙cᵢ and Σᵢ eᵢ over the words, ``(B, K, H)`` each."""
        tensors = map(dense, (gates, gg, c))
        return _Gather.apply(*tensors, self.counts)


class _WindowConcat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, window, counts):
        ctx.window, ctx.counts = window, counts
        return OPS.look_around(h, window, counts)

    @staticmethod
    def backward(ctx, grad_around, grad_total):
        eager.check_backward("cpp", grad_around, grad_total)
        grad = OPS.look_around_backward(
            dense(grad_around), dense(grad_total), ctx.window, ctx.counts
        )
        return grad, None, None


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates, gx, gg, c, nodes, counts):
        ctx.counts = counts
        # In place: gates are the output of a matrix product, which autograd does not save.
        h, new_c = OPS.mix_words_(gates.detach(), gx, gg, c, nodes, counts)
        ctx.save_for_backward(gates, c, nodes, new_c)
        return h, new_c

    @staticmethod
    def backward(ctx, grad_h, grad_c):
        eager.check_backward("cpp", grad_h, grad_c)
        d_gates, d_gg, d_c, d_nodes = OPS.mix_words_backward(
            *ctx.saved_tensors, dense(grad_h), dense(grad_c), ctx.counts
        )
        return d_gates, d_gates, d_gg, d_c, d_nodes, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates, gg, c, counts):
        ctx.counts = counts
        ctx.save_for_backward(gates, c)
        return OPS.gather_words_(gates.detach(), gg, c, counts)

    @staticmethod
    def backward(ctx, grad_cells, grad_shares):
        eager.check_backward("cpp", grad_cells, grad_shares)
        grads = OPS.gather_words_backward(
            *ctx.saved_tensors, dense(grad_cells), dense(grad_shares), ctx.counts
        )
        return *grads, None

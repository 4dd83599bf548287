"""Backbones of sentence encoders and taggers: the layers between embedding and pooling or output.

A backbone turns embedded words x ``(T, B, E)``, padded at the end, with ``lengths`` (B,) and
``tokens`` (T, B) into states ``(T, B, output_size)`` and sentence nodes ``(B, node_size)`` or None.
The result for a sentence does not depend on the padding or on the other sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor, nn

from ..errors import UserError
from ..layers import RecurrentStack, SentenceStateLSTM, ShortcutStackedLSTM
from ..layers.sequences import trusted
from ..recurrence.products import linear
from ..recurrence.ragged import padding_mask
from .dropout import Dropout


def count_tokens(tokens: Tensor, pad: int) -> Tensor:
    """The length ``(B,)`` of each sentence of ``tokens`` (B, T), padded at the end.

    It is counted up to the last word: the text itself may contain the padding symbol.
    """
    position = torch.arange(1, tokens.size(1) + 1, device=tokens.device)
    return (tokens.ne(pad) * position).amax(1)


class RecurrentBackbone(nn.Module):
    """A :class:`.RecurrentStack`."""

    node_size = 0

    def __init__(self, rnn: RecurrentStack):
        super().__init__()
        self.rnn = rnn
        self.output_size, self.directions = rnn.output_size, rnn.num_directions

    def forward(self, x: Tensor, lengths: Tensor, tokens: Tensor) -> tuple[Tensor, None]:
        """The top layer's states."""
        return self.rnn(x, lengths=trusted(lengths), tokens=tokens)[0], None


class ShortcutBackbone(nn.Module):
    """A :class:`.ShortcutStackedLSTM`."""

    node_size, directions = 0, 2

    def __init__(self, rnn: ShortcutStackedLSTM):
        super().__init__()
        self.rnn, self.output_size = rnn, rnn.output_size

    def forward(self, x: Tensor, lengths: Tensor, tokens: Tensor) -> tuple[Tensor, None]:
        """The last layer's states."""
        return self.rnn(x, lengths=trusted(lengths))[0], None


class SentenceStateBackbone(nn.Module):
    """A :class:`.SentenceStateLSTM`."""

    directions = 1

    def __init__(self, rnn: SentenceStateLSTM):
        super().__init__()
        self.rnn, self.output_size, self.node_size = rnn, rnn.output_size, rnn.node_size

    def forward(self, x: Tensor, lengths: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The final states of the words and of the sentence nodes."""
        return self.rnn(x, trusted(lengths))


class ConvolutionBackbone(nn.Module):
    """Parallel convolutions of several widths and ReLU (Kim 2014), in one or more layers.

    Each position has an output, of the window around it with zeros outside of the sentence, so
    sentences may be shorter than the filters.

    Args:
        input_size: E.
        widths: widths of the filters, in words.
        filters: number of filters of each width.
        layers: number of layers.
        dropout: on the inputs of all layers but the first.
    """

    node_size, directions = 0, 1

    def __init__(
        self,
        input_size: int,
        widths: Sequence[int],
        filters: int,
        layers: int = 1,
        dropout: float = 0,
    ):
        super().__init__()
        self.output_size = len(widths) * filters
        self.dropout = Dropout(dropout)
        self.layers: Any = nn.ModuleList(  # one ModuleList of nn.Conv1d per layer
            nn.ModuleList(
                nn.Conv1d(self.output_size if k else input_size, filters, width) for width in widths
            )
            for k in range(layers)
        )

    def forward(self, x: Tensor, lengths: Tensor, tokens: Tensor) -> tuple[Tensor, None]:
        """The top layer's outputs at each position."""
        padding = padding_mask(lengths, x.size(0)).t().unsqueeze(1)  # (B, 1, T)
        x = x.permute(1, 2, 0)  # (B, E, T)
        for k, filters in enumerate(self.layers):
            x = (self.dropout(x) if k else x).masked_fill(padding, 0.0)
            x = torch.cat([conv(pad_same(x, conv)) for conv in filters], dim=1).relu()
        return x.permute(2, 0, 1), None


def pad_same(x: Tensor, conv: nn.Conv1d) -> Tensor:
    """Pad ``x`` (B, C, T) with zeros on both sides so that ``conv`` has T outputs."""
    width = conv.kernel_size[0]
    return nn.functional.pad(x, ((width - 1) // 2, width // 2))


class Linear(nn.Linear):
    """``nn.Linear``, computed by the compiled extension where that is faster."""

    def forward(self, x: Tensor) -> Tensor:
        """x ``(*, I)`` to ``(*, O)``."""
        return linear(x, self.weight, self.bias)


class TransformerLayer(nn.TransformerEncoderLayer):
    """``nn.TransformerEncoderLayer`` with this package's :class:`Linear` and dropout."""

    def __init__(self, size: int, heads: int, ffn_size: int, dropout: float):
        super().__init__(size, heads, ffn_size, dropout, norm_first=True)
        self.linear1, self.linear2 = Linear(size, ffn_size), Linear(ffn_size, size)
        for name in ("dropout", "dropout1", "dropout2"):
            setattr(self, name, Dropout(dropout))


class TransformerBackbone(nn.Module):
    """``nn.TransformerEncoder`` with pre-norm layers and sinusoidal positions.

    Args:
        size: E, of the embeddings and of all layers.
        heads, ffn_size, layers: attention heads, size of the feed-forward networks, number of
            layers.
        dropout: of all dropouts.
    """

    node_size, directions = 0, 1

    def __init__(self, size: int, heads: int, ffn_size: int, layers: int, dropout: float):
        super().__init__()
        if size == 2 or size == 3:
            raise UserError(
                f"--encoder-embed-dim is {size}; the transformer's positions need at least 4"
            )
        if size % heads:
            raise UserError(
                f"--encoder-embed-dim is {size}; it must be a multiple of "
                f"--encoder-attention-heads, {heads}"
            )
        self.output_size, self.scale = size, size**0.5
        self.positions = SinusoidalPositionalEmbedding(size, padding_idx=0, init_size=512)
        made = [TransformerLayer(size, heads, ffn_size, dropout) for _ in range(layers)]
        self.layers = nn.TransformerEncoder(
            made[0], layers, nn.LayerNorm(size), enable_nested_tensor=False
        )
        # nn.TransformerEncoder copies its layer: all would start with the same weights.
        self.layers.layers = nn.ModuleList(made)

    def forward(self, x: Tensor, lengths: Tensor, tokens: Tensor) -> tuple[Tensor, None]:
        """The last layer's outputs."""
        padding = padding_mask(lengths, x.size(0)).t()  # (B, T)
        positions = self.positions((~padding).long())  # padding_idx 0: numbered from 1
        x = self.scale * x + positions.transpose(0, 1).to(x.dtype)
        return self.layers(x, src_key_padding_mask=padding), None


Backbone: TypeAlias = (
    RecurrentBackbone
    | ShortcutBackbone
    | SentenceStateBackbone
    | ConvolutionBackbone
    | TransformerBackbone
)

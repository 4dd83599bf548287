"""Backbones of sentence encoders and taggers: the layers between embedding and pooling or output.

A backbone is built from the options of an architecture and the size E. It turns embedded words x
``(T, B, E)``, padded at the end, with ``lengths`` (B,) and ``tokens`` (T, B) into states
``(T, B, output_size)`` and sentence nodes ``(B, node_size)`` or None. The result for a sentence
does not depend on the padding or on the other sentences.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor, nn

from ..data.values import natural
from ..errors import UserError
from ..layers import SentenceStateLSTM, ShortcutStackedLSTM
from ..layers.sequences import trusted
from ..recurrence.products import linear
from ..recurrence.ragged import padding_mask
from .config import (
    build_stack,
    dropout_option,
    named_as_options,
    reads_lower_cell,
    warn_of_single_layers,
)
from .dropout import Dropout
from .sentence_config import (
    ConvolutionConfig,
    RecurrentEncoderConfig,
    SentenceStateEncoderConfig,
    ShortcutEncoderConfig,
    TransformerConfig,
)


def count_tokens(tokens: Tensor, pad: int) -> Tensor:
    """The length ``(B,)`` of each sentence of ``tokens`` (B, T), padded at the end.

    It is counted up to the last word: the text itself may contain the padding symbol.
    """
    position = torch.arange(1, tokens.size(1) + 1, device=tokens.device)
    return (tokens.ne(pad) * position).amax(1)


def parse_numbers(text: str, option: str) -> list[int]:
    """A comma-separated list of positive numbers. Raises UserError that names ``option``."""
    pieces = str(text).strip("[]()").split(",")
    found = [number for piece in pieces if (number := natural(piece.strip()))]
    if len(found) < len(pieces):
        raise UserError(f"{option} is '{text}'; give positive numbers, separated by commas")
    return found


class RecurrentBackbone(nn.Module):
    """A :class:`.RecurrentStack` of ``cell``, for inputs of the given size.

    Raises:
        UserError: options that contradict each other.
    """

    node_size = 0

    def __init__(self, cell: str, cfg: RecurrentEncoderConfig, size: int):
        super().__init__()
        if cfg.encoder_interleaved and reads_lower_cell(cell):
            raise UserError(
                f"{cell} reads the cell of the layer below, and --encoder-interleaved joins that "
                "with the other direction's; give --encoder-bidirectional instead"
            )
        warn_of_single_layers(cell, cfg)
        self.rnn = build_stack(
            cell,
            cfg,
            size,
            cfg.encoder_hidden_size,
            cfg.encoder_layers,
            bidirectional="interleaved" if cfg.encoder_interleaved else cfg.encoder_bidirectional,
            dropout=dropout_option(cfg, "encoder_dropout_out"),
        )
        self.output_size, self.directions = self.rnn.output_size, self.rnn.num_directions

    def forward(self, x: Tensor, lengths: Tensor, tokens: Tensor) -> tuple[Tensor, None]:
        """The top layer's states."""
        return self.rnn(x, lengths=trusted(lengths), tokens=tokens)[0], None


class ShortcutBackbone(nn.Module):
    """A :class:`.ShortcutStackedLSTM`, for inputs of the given size."""

    node_size, directions = 0, 2

    def __init__(self, cfg: ShortcutEncoderConfig, size: int):
        super().__init__()
        between_layers = dropout_option(cfg, "encoder_dropout_out")
        with named_as_options(["hidden_sizes", "connection"]):
            sizes = parse_numbers(cfg.hidden_sizes, "hidden_sizes")
            self.rnn = ShortcutStackedLSTM(size, sizes, cfg.connection, between_layers, cfg.engine)
        self.output_size = self.rnn.output_size

    def forward(self, x: Tensor, lengths: Tensor, tokens: Tensor) -> tuple[Tensor, None]:
        """The last layer's states."""
        return self.rnn(x, lengths=trusted(lengths))[0], None


class SentenceStateBackbone(nn.Module):
    """A :class:`.SentenceStateLSTM`, for inputs of the given size."""

    directions = 1

    def __init__(self, cfg: SentenceStateEncoderConfig, size: int):
        super().__init__()
        with named_as_options(["num_sentence_nodes"]):
            self.rnn = SentenceStateLSTM(
                size,
                cfg.encoder_hidden_size,
                cfg.num_steps,
                cfg.window,
                cfg.num_sentence_nodes,
                cfg.recompute,
                cfg.engine,
            )
        self.output_size, self.node_size = self.rnn.output_size, self.rnn.node_size

    def forward(self, x: Tensor, lengths: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The final states of the words and of the sentence nodes."""
        return self.rnn(x, trusted(lengths))


class ConvolutionBackbone(nn.Module):
    """Parallel convolutions of several widths and ReLU (Kim 2014), in one or more layers.

    Each position has an output, of the window around it with zeros outside of the sentence, so
    sentences may be shorter than the filters. Dropout is on the inputs of all layers but the first.
    """

    node_size, directions = 0, 1

    def __init__(self, cfg: ConvolutionConfig, size: int):
        super().__init__()
        widths = parse_numbers(cfg.filter_widths, "--filter-widths")
        self.output_size = len(widths) * cfg.num_filters
        self.dropout = Dropout(dropout_option(cfg, "encoder_dropout_out"))
        self.layers: Any = nn.ModuleList(  # one ModuleList of nn.Conv1d per layer
            nn.ModuleList(
                nn.Conv1d(self.output_size if k else size, cfg.num_filters, width)
                for width in widths
            )
            for k in range(cfg.encoder_layers)
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
    """``nn.TransformerEncoder`` with pre-norm layers of the given size and sinusoidal positions.

    Raises:
        UserError: the size does not fit the positions or the attention heads.
    """

    node_size, directions = 0, 1

    def __init__(self, cfg: TransformerConfig, size: int):
        super().__init__()
        heads, layers = cfg.encoder_attention_heads, cfg.encoder_layers
        dropout = dropout_option(cfg, "encoder_dropout_out")
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
        sizes = size, heads, cfg.encoder_ffn_embed_dim
        made = [TransformerLayer(*sizes, dropout) for _ in range(layers)]
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

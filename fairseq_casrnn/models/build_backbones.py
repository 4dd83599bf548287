"""Builds the backbones of sentence encoders and taggers from the options of an architecture."""

from __future__ import annotations

from ..data.values import natural
from ..errors import UserError
from ..layers import SentenceStateLSTM, ShortcutStackedLSTM
from .config import (
    build_stack,
    dropout_option,
    named_as_options,
    reads_lower_cell,
    warn_of_single_layers,
)
from .sentence_backbones import (
    ConvolutionBackbone,
    RecurrentBackbone,
    SentenceStateBackbone,
    ShortcutBackbone,
    TransformerBackbone,
)
from .sentence_config import (
    ConvolutionConfig,
    RecurrentEncoderConfig,
    SentenceStateEncoderConfig,
    ShortcutEncoderConfig,
    TransformerConfig,
)


def parse_numbers(text: str, option: str) -> list[int]:
    """A comma-separated list of positive numbers. Raises UserError that names ``option``."""
    pieces = str(text).strip("[]()").split(",")
    found = [number for piece in pieces if (number := natural(piece.strip()))]
    if len(found) < len(pieces):
        raise UserError(f"{option} is '{text}'; give positive numbers, separated by commas")
    return found


def recurrent_backbone(cell: str, cfg: RecurrentEncoderConfig, size: int) -> RecurrentBackbone:
    """A stack of the cell. Raises UserError for options that contradict each other."""
    if cfg.encoder_interleaved and reads_lower_cell(cell):
        raise UserError(
            f"{cell} reads the cell of the layer below, and --encoder-interleaved joins that with "
            "the other direction's; give --encoder-bidirectional instead"
        )
    warn_of_single_layers(cell, cfg)
    rnn = build_stack(
        cell,
        cfg,
        size,
        cfg.encoder_hidden_size,
        cfg.encoder_layers,
        bidirectional="interleaved" if cfg.encoder_interleaved else cfg.encoder_bidirectional,
        dropout=dropout_option(cfg, "encoder_dropout_out"),
    )
    return RecurrentBackbone(rnn)


def sentence_state_backbone(cfg: SentenceStateEncoderConfig, size: int) -> SentenceStateBackbone:
    """The sentence-state LSTM."""
    with named_as_options(["num_sentence_nodes"]):
        layer = SentenceStateLSTM(
            size,
            cfg.encoder_hidden_size,
            cfg.num_steps,
            cfg.window,
            cfg.num_sentence_nodes,
            cfg.recompute,
            cfg.engine,
        )
    return SentenceStateBackbone(layer)


def shortcut_backbone(cfg: ShortcutEncoderConfig, size: int) -> ShortcutBackbone:
    """The shortcut-stacked LSTM."""
    with named_as_options(["hidden_sizes", "connection"]):
        sizes = parse_numbers(cfg.hidden_sizes, "hidden_sizes")
        between_layers = dropout_option(cfg, "encoder_dropout_out")
        return ShortcutBackbone(
            ShortcutStackedLSTM(size, sizes, cfg.connection, between_layers, cfg.engine)
        )


def convolution_backbone(cfg: ConvolutionConfig, size: int) -> ConvolutionBackbone:
    """Convolutions over words."""
    return ConvolutionBackbone(
        size,
        parse_numbers(cfg.filter_widths, "--filter-widths"),
        cfg.num_filters,
        cfg.encoder_layers,
        dropout_option(cfg, "encoder_dropout_out"),
    )


def transformer_backbone(cfg: TransformerConfig, size: int) -> TransformerBackbone:
    """A transformer encoder."""
    return TransformerBackbone(
        size,
        cfg.encoder_attention_heads,
        cfg.encoder_ffn_embed_dim,
        cfg.encoder_layers,
        dropout_option(cfg, "encoder_dropout_out"),
    )

"""The bodies of sentence encoders and taggers, made from the options of an architecture."""

from __future__ import annotations

from collections.abc import Callable

from ..data.values import natural
from ..errors import UserError
from ..layers import SentenceStateLSTM, ShortcutStackedLSTM
from .config import build_stack, reads_lower_cell, spelled_as_options, warn_of_single_layers
from .sentence_bodies import (
    ConvolutionBody,
    RecurrentBody,
    SentenceStateBody,
    ShortcutBody,
    TransformerBody,
)

TINY = {
    "encoder_embed_dim": 8,
    "encoder_hidden_size": 8,
    "encoder_layers": 2,
    "mlp_size": 8,
    "num_steps": 3,
    "hidden_sizes": "4,8",
    "num_filters": 4,
    "encoder_attention_heads": 2,
    "encoder_ffn_embed_dim": 16,
}


def tiny_sizes(config: type) -> Callable:
    """What makes the options of ``config`` a ``…_tiny`` architecture, for tests."""

    def tiny(args):
        for key, value in TINY.items():
            if key in config.__dataclass_fields__:
                setattr(args, key, getattr(args, key, value))

    return tiny


def dropout(cfg, name: str) -> float:
    """The option ``name``, or ``--dropout`` where it is not given."""
    value = getattr(cfg, name)
    return cfg.dropout if value is None else value


def directions(cfg) -> bool | str:
    """``bidirectional`` of the recurrent stack."""
    return "interleaved" if cfg.encoder_interleaved else cfg.encoder_bidirectional


def numbers(text: str, option: str) -> list[int]:
    """A comma-separated list of positive numbers. Raises UserError, naming ``option``."""
    pieces = str(text).strip("[]()").split(",")
    found = [number for piece in pieces if (number := natural(piece.strip()))]
    if len(found) < len(pieces):
        raise UserError(f"{option} is '{text}'; give positive numbers, separated by commas")
    return found


def recurrent_body(cell: str, cfg, size: int) -> RecurrentBody:
    """A stack of the cell, for inputs of ``size``. Raises UserError for options at odds."""
    if cfg.encoder_interleaved and reads_lower_cell(cell):
        raise UserError(
            f"{cell} reads the cell of the layer below, which --encoder-interleaved joins with "
            "the other direction's; give --encoder-bidirectional instead"
        )
    warn_of_single_layers(cell, cfg)
    rnn = build_stack(
        cell,
        cfg,
        size,
        cfg.encoder_hidden_size,
        cfg.encoder_layers,
        bidirectional=directions(cfg),
        dropout=dropout(cfg, "encoder_dropout_out"),
    )
    return RecurrentBody(rnn)


def sentence_state_body(cfg, size: int) -> SentenceStateBody:
    """The sentence-state LSTM."""
    with spelled_as_options(["num_sentence_nodes"]):
        layer = SentenceStateLSTM(
            size,
            cfg.encoder_hidden_size,
            cfg.num_steps,
            cfg.window,
            cfg.num_sentence_nodes,
            cfg.recompute,
            getattr(cfg, "engine", None),  # checkpoints of version 0.1.0 may not have it
        )
    return SentenceStateBody(layer)


def shortcut_body(cfg, size: int) -> ShortcutBody:
    """The shortcut-stacked LSTM."""
    with spelled_as_options(["hidden_sizes", "connection"]):
        sizes = numbers(cfg.hidden_sizes, "hidden_sizes")
        between = dropout(cfg, "encoder_dropout_out")
        return ShortcutBody(ShortcutStackedLSTM(size, sizes, cfg.connection, between, cfg.engine))


def convolution_body(cfg, size: int) -> ConvolutionBody:
    """Convolutions over words."""
    return ConvolutionBody(
        size,
        numbers(cfg.filter_widths, "--filter-widths"),
        cfg.num_filters,
        cfg.encoder_layers,
        dropout(cfg, "encoder_dropout_out"),
    )


def transformer_body(cfg, size: int) -> TransformerBody:
    """A transformer encoder."""
    return TransformerBody(
        size,
        cfg.encoder_attention_heads,
        cfg.encoder_ffn_embed_dim,
        cfg.encoder_layers,
        dropout(cfg, "encoder_dropout_out"),
    )

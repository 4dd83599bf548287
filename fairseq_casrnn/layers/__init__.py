"""Recurrent layers with the interface of ``torch.nn.LSTM``; usable without fairseq."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..cells import FAMILIES, family
from . import recurrent
from .dropout import dropout_probability
from .pooling import Pooling
from .recurrent import CASLSTM, DGLSTM, GRU, LSTM, HighwayLSTM, NormalizedLSTM, SecondOrderLSTM
from .sentence_state import SentenceStateLSTM
from .shortcut import ShortcutStackedLSTM
from .stack import RecurrentStack

LAYERS: dict[str, type[RecurrentStack]] = {
    name: getattr(recurrent, row.layer) for name, row in FAMILIES.items() if row.layer
}


def build(
    name: str,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool | str = False,
    dropout: float = 0.0,
    options: object = None,
    engine: str | None = None,
    **others: Any,
) -> RecurrentStack:
    """A stack of the family ``name``.

    Args:
        name, input_size, hidden_size, num_layers, bidirectional, dropout, engine: as for
            :class:`RecurrentStack`. A single layer gets no dropout, without a warning.
        options: any object; its attributes that are options of the family are used.
        others: further arguments of the layer's constructor, such as ``batch_first``.

    Raises:
        UserError: an unknown family, or invalid sizes or options.
    """
    fields = [f.name for f in dataclasses.fields(family(name).options)]
    chosen = {key: getattr(options, key) for key in fields if hasattr(options, key)}
    sizes = (input_size, hidden_size, num_layers)
    if num_layers == 1 and dropout_probability(dropout):
        dropout = 0.0
    if name in LAYERS:
        make: Any = LAYERS[name]  # constructors differ in their own options
        layer: RecurrentStack = make(
            *sizes,
            bidirectional=bidirectional,
            dropout=dropout,
            engine=engine,
            **chosen,
            **others,
        )
        return layer
    family_options = family(name).options(**chosen)
    return RecurrentStack(name, *sizes, bidirectional, dropout, family_options, engine, **others)


__all__ = [
    "CASLSTM",
    "DGLSTM",
    "FAMILIES",
    "GRU",
    "LAYERS",
    "LSTM",
    "HighwayLSTM",
    "NormalizedLSTM",
    "Pooling",
    "RecurrentStack",
    "SecondOrderLSTM",
    "SentenceStateLSTM",
    "ShortcutStackedLSTM",
    "build",
]

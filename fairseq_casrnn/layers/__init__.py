"""Recurrent layers in the manner of ``torch.nn.LSTM``; usable without fairseq."""

from __future__ import annotations

import dataclasses

from ..cells import FAMILIES, family
from . import recurrent
from .dropout import dropout_probability
from .pooling import Pooling
from .recurrent import CASLSTM, DGLSTM, GRU, LSTM, HighwayLSTM, NormalizedLSTM, SecondOrderLSTM
from .sentence_state import SentenceStateLSTM
from .shortcut import ShortcutStackedLSTM
from .stack import RecurrentStack

LAYERS = {name: getattr(recurrent, row.layer) for name, row in FAMILIES.items() if row.layer}


def build(
    name: str,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool | str = False,
    dropout: float = 0.0,
    options=None,
    engine: str | None = None,
    **others,
) -> RecurrentStack:
    """A stack of the family ``name``; ``options`` is any object with its options as attributes.

    ``others`` are further arguments of the layer's constructor, such as ``batch_first``.

    A single layer gets no dropout, without the warning that its constructor would give.

    Raises:
        UserError: unknown family, or sizes and options it cannot be built with.
    """
    fields = [f.name for f in dataclasses.fields(family(name).options)]
    chosen = {key: getattr(options, key) for key in fields if hasattr(options, key)}
    sizes = (input_size, hidden_size, num_layers)
    if num_layers == 1 and dropout_probability(dropout):
        dropout = 0.0
    if name in LAYERS:
        return LAYERS[name](
            *sizes,
            bidirectional=bidirectional,
            dropout=dropout,
            engine=engine,
            **chosen,
            **others,
        )
    options = family(name).options(**chosen)
    return RecurrentStack(name, *sizes, bidirectional, dropout, options, engine, **others)


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

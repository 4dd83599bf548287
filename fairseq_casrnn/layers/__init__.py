"""Recurrent layers in the manner of ``torch.nn.LSTM``; usable without fairseq."""

from __future__ import annotations

import dataclasses

from ..cells import FAMILIES, family
from .pooling import Pooling
from .recurrent import CASLSTM, DGLSTM, GRU, LSTM, HighwayLSTM, NormalizedLSTM, SecondOrderLSTM
from .sentence_state import SentenceStateLSTM
from .shortcut import ShortcutStackedLSTM
from .stack import RecurrentStack

LAYERS = {
    "stacked_lstm": LSTM,
    "stacked_gru": GRU,
    "normalized_lstm": NormalizedLSTM,
    "cas_lstm": CASLSTM,
    "highway_lstm": HighwayLSTM,
    "dg_lstm": DGLSTM,
    "second_order_lstm": SecondOrderLSTM,
}


def build(
    name: str,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool | str = False,
    dropout: float = 0.0,
    options=None,
    engine: str | None = None,
) -> RecurrentStack:
    """A stack of the family ``name``; ``options`` is any object with its options as attributes.

    Raises:
        UserError: unknown family, or sizes and options it cannot be built with.
    """
    fields = [f.name for f in dataclasses.fields(family(name).options)]
    chosen = {key: getattr(options, key) for key in fields if hasattr(options, key)}
    sizes = (input_size, hidden_size, num_layers)
    if name in LAYERS:
        return LAYERS[name](
            *sizes, bidirectional=bidirectional, dropout=dropout, engine=engine, **chosen
        )
    return RecurrentStack(
        name, *sizes, bidirectional, dropout, family(name).options(**chosen), engine
    )


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

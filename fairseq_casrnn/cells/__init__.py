"""The cells, one file each: the paper's equations in plain PyTorch, gates and one step.

To add a cell: write its file and add one line to :data:`FAMILIES`. It then exists as a layer, in
every role, on every engine and in the tests that run over all cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import UserError
from . import cas_lstm, dg_lstm, gru, highway_lstm, lstm, normalized_lstm, second_order_lstm
from .base import Cell, NoOptions


@dataclass(frozen=True)
class Family:
    """A kind of stack.

    Attributes:
        at_layer: ``at_layer(k, options)`` gives the :class:`Cell` of layer k (k = 0 is the bottom).
        options: dataclass of the family's own options; defaults and help texts are its fields'.
    """

    at_layer: Callable[[int, object], Cell]
    options: type = NoOptions


FAMILIES: dict[str, Family] = {
    "stacked_lstm": Family(lstm.at_layer),
    "stacked_gru": Family(gru.at_layer),
    "normalized_lstm": Family(normalized_lstm.at_layer),
    "cas_lstm": Family(cas_lstm.at_layer, cas_lstm.CASOptions),
    "highway_lstm": Family(highway_lstm.at_layer),
    "dg_lstm": Family(dg_lstm.at_layer),
    "second_order_lstm": Family(second_order_lstm.at_layer, second_order_lstm.SecondOrderOptions),
}


def family(name: str) -> Family:
    """The family called ``name``. Raises UserError with the known names when there is none."""
    try:
        return FAMILIES[name]
    except KeyError:
        known = ", ".join(sorted(FAMILIES))
        raise UserError(f"unknown cell {name!r}; known cells: {known}") from None


__all__ = ["FAMILIES", "Cell", "Family", "NoOptions", "family"]

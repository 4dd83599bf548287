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
        make_cell: ``make_cell(k, options)`` gives the :class:`Cell` of layer k, 0 at the bottom.
        options: dataclass of the family's own options; defaults and help texts are its fields'.
    """

    make_cell: Callable[[int, object], Cell]
    options: type = NoOptions


FAMILIES: dict[str, Family] = {
    "stacked_lstm": Family(lstm.make_cell),
    "stacked_gru": Family(gru.make_cell),
    "normalized_lstm": Family(normalized_lstm.make_cell),
    "cas_lstm": Family(cas_lstm.make_cell, cas_lstm.CASOptions),
    "highway_lstm": Family(highway_lstm.make_cell),
    "dg_lstm": Family(dg_lstm.make_cell),
    "second_order_lstm": Family(second_order_lstm.make_cell, second_order_lstm.SecondOrderOptions),
}


def family(name: str) -> Family:
    """The family called ``name``. Raises UserError with the known names when there is none."""
    try:
        return FAMILIES[name]
    except KeyError:
        known = ", ".join(sorted(FAMILIES))
        raise UserError(f"unknown cell {name!r}; known cells: {known}") from None


__all__ = ["FAMILIES", "Cell", "Family", "NoOptions", "family"]

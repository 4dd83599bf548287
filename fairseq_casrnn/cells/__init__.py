"""The cells, one folder each, named after the cell's family.

``__init__.py`` has the cell's options, one step of the paper's equations in plain PyTorch, and the
same step in place with its backward; ``kernel.h`` and ``triton.py`` have the step and its backward
for the engines ``cpp`` and ``triton``.

To add a cell, write its folder and add one row to :data:`FAMILIES`. It is then available as a
layer, in every kind of model, on every engine and in the tests that run over all cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from . import (
    cas_lstm,
    dg_lstm,
    highway_lstm,
    normalized_lstm,
    second_order_lstm,
    stacked_gru,
    stacked_lstm,
)
from .base import FUNCTIONAL, Cell, NoOptions


@dataclass(frozen=True)
class Family:
    """A kind of stack.

    Attributes:
        make_cell: ``make_cell(k, options)`` returns the :class:`Cell` of layer k, 0 at the bottom.
        options: dataclass of the family's own options, with their defaults and help texts.
        layer: name of its class in :mod:`fairseq_casrnn.layers`; None for a plain
            ``RecurrentStack``.
        kernels: names of its cells' kernels (:attr:`Cell.kernel`) in its folder's ``kernel.h`` and
            ``triton.py``; for a new one, add its type to ``csrc/cells.h``.
        summary: what distinguishes it, for tables in the documentation.
        source: the paper, for the same tables.
    """

    make_cell: Callable[[int, Any], Cell]
    options: type = NoOptions
    layer: str | None = None
    kernels: tuple[str, ...] = ()
    summary: str = ""
    source: str = ""


FAMILIES: dict[str, Family] = {
    "cas_lstm": Family(
        cas_lstm.make_cell,
        cas_lstm.CASOptions,
        layer="CASLSTM",
        kernels=("cas_lstm", "cas_lstm_trained"),
        summary="a second forget gate, on the cell of the layer below",
        source="Choi et al., *Cell-aware Stacked LSTMs for Modeling Sentences*",
    ),
    "dg_lstm": Family(
        dg_lstm.make_cell,
        layer="DGLSTM",
        kernels=("dg_lstm_bottom", "dg_lstm"),
        summary="a depth gate, with peepholes to both cells",
        source="Yao et al., *Depth-Gated LSTM*",
    ),
    "highway_lstm": Family(
        highway_lstm.make_cell,
        layer="HighwayLSTM",
        kernels=("highway_lstm",),
        summary="a carry gate without recurrence",
        source="Zhang et al., *Highway LSTM*",
    ),
    "second_order_lstm": Family(
        second_order_lstm.make_cell,
        second_order_lstm.SecondOrderOptions,
        layer="SecondOrderLSTM",
        kernels=("second_order_lstm",),
        summary="S cells, mixed by attention on the input",
        source="*Second-order attention LSTM*",
    ),
    "normalized_lstm": Family(
        normalized_lstm.make_cell,
        layer="NormalizedLSTM",
        kernels=("normalized_lstm",),
        summary="input and forget gate sum to one",
        source="baseline of *Sentence-State LSTM*",
    ),
    "stacked_lstm": Family(
        stacked_lstm.make_cell,
        layer="LSTM",
        kernels=("stacked_lstm",),
        summary="the baseline: LSTM",
        source="Hochreiter and Schmidhuber, *Long Short-Term Memory*",
    ),
    "stacked_gru": Family(
        stacked_gru.make_cell,
        layer="GRU",
        kernels=("stacked_gru",),
        summary="the baseline: GRU",
        source="Cho et al., *Learning Phrase Representations*",
    ),
}


def family(name: str) -> Family:
    """The family called ``name``. Raises UserError with the known names when there is none."""
    try:
        return FAMILIES[name]
    except KeyError:
        known = ", ".join(sorted(FAMILIES))
        raise UserError(f"unknown cell {name!r}; known cells: {known}") from None


def make_cells(name: str, options: Any, num_layers: int, *, interleaved: bool) -> list[Cell]:
    """The cells of a stack of the family ``name``, from the bottom.

    Raises:
        UserError: cells that cannot be combined, or cannot be the bottom layer or ``interleaved``;
            a name in ``params`` that another parameter has; ``zero_params`` that are not in
            ``params``; a block of ``bias_one_gates`` that does not exist.
    """
    make_cell = family(name).make_cell
    cells = [make_cell(k, options) for k in range(num_layers)]
    for cell in cells:
        params = [param for param, _ in cell.params]
        names = ["weight_ih", "weight_hh", "bias", *params]
        repeated = [param for param in params if names.count(param) > 1]
        if repeated:
            raise UserError(
                f"{type(cell).__name__}.params makes two parameters {repeated[0]!r}; give each its "
                "own name, which is none of weight_ih, weight_hh and bias"
            )
        unknown = set(cell.zero_params) - set(params)
        if unknown:
            raise UserError(
                f"{type(cell).__name__}.zero_params is {cell.zero_params!r}, but params has no "
                f"{min(unknown)!r}; give a tuple of names of params, such as ('scale',)"
            )
        if max(cell.bias_one_gates, default=0) >= cell.ih_blocks:
            raise UserError(
                f"{type(cell).__name__}.bias_one_gates is {cell.bias_one_gates!r}, but there are "
                f"ih_blocks = {cell.ih_blocks} blocks, from 0 on; use () if no bias starts at 1"
            )
    if len({cell.has_cell for cell in cells}) > 1:
        raise UserError(
            f"some layers of {name} have a cell state and others have none; give its make_cell "
            "cells with the same has_cell"
        )
    if cells[0].lower_cell:
        raise UserError(
            f"layer 0 of {name} is a {type(cells[0]).__name__}, which reads the cell of "
            "the layer below; give its make_cell another cell for the bottom"
        )
    if interleaved and any(cell.lower_cell for cell in cells):
        raise UserError(
            f"{name} reads the cell of the layer below and cannot be interleaved; "
            "use bidirectional=True"
        )
    return cells


__all__ = ["FAMILIES", "FUNCTIONAL", "Cell", "Family", "NoOptions", "family", "make_cells"]

"""Routing of tokens to the cells of a second-order LSTM by a fixed table."""

from __future__ import annotations

import logging

import torch
from fairseq.data import Dictionary
from torch import Tensor

from ..data.text import read_lines
from ..data.values import natural
from ..errors import UserError, quoted
from .loading_checkpoint import is_loading_checkpoint

logger = logging.getLogger(__name__)


def read_assignment(path: str, dictionary: Dictionary, num_cells: int) -> Tensor:
    """Read a file with a token and its cell, 0 to S-1, on each line.

    Tokens of the dictionary that are not in the file go to cell 0; tokens that are not in the
    dictionary are ignored.

    Args:
        path: the file.
        dictionary: ``fairseq.data.Dictionary`` with V entries.
        num_cells: S.

    Returns:
        ``(V,)``, the cell of each entry.

    Raises:
        UserError: no such file, a malformed line, a token twice, no token of the dictionary.
    """
    if is_loading_checkpoint():  # it overwrites the table
        return torch.zeros(len(dictionary), dtype=torch.long)
    table = torch.zeros(len(dictionary), dtype=torch.long)
    cells = read_cells(path, num_cells)
    for token, cell in cells.items():
        if token in dictionary.indices:
            table[dictionary.indices[token]] = cell
    words = dictionary.symbols[dictionary.nspecial :]  # any file may have </s>
    found = len(cells.keys() & set(words))
    if not found:
        raise UserError(f"{path} assigns no token of the dictionary; make it for this data")
    few = 2 * found < len(words)
    logger.log(
        logging.WARNING if few else logging.INFO,
        "%s: cells for %d of %d types; the others go to cell 0%s",
        path,
        found,
        len(words),
        "; is it for this data?" if few else "",
    )
    return table


def read_cells(path: str, num_cells: int) -> dict[str, int]:
    """The cell of each token in a file. Raises UserError for a malformed line or a token twice."""
    cells: dict[str, int] = {}
    for number, line in enumerate(read_lines(path, may_be_blank=True), 1):
        token, _, digits = line.rpartition(" ")
        cell = natural(digits)
        if not token or cell is None:
            raise UserError(
                f"{path}, line {number} is not a token, a space and the number of its cell, 0 to "
                f"{num_cells - 1}; correct the line"
            )
        if cell >= num_cells:
            raise UserError(
                f"{path}, line {number} names cell {cell}, but --num-cells is {num_cells}, so the "
                f"cells are 0 to {num_cells - 1}; change one of them"
            )
        if token in cells:
            raise UserError(f"{path}, line {number} assigns {quoted(token)} again; drop one line")
        cells[token] = cell
    return cells

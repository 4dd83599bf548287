"""The predictions in a run's folder, ``SUBSET.predictions.tsv``.

It is a table whose first line names its columns: CLASSES or TRANSLATIONS and more, a line per
sentence, or WORDS, a line per word and an empty one before each sentence.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import cell_text, table_cell
from fairseq_casrnn.kinds import CLASSIFIER, TAGGER, TRANSLATION, Kind
from fairseq_casrnn.runs.layout import PREDICTIONS

CONLLEVAL = "predictions.txt"  # of taggers that an earlier version evaluated
CLASSES = ("gold", "predicted", "probability")
WORDS = ("word", *CLASSES)
TRANSLATIONS = ("source", "reference", "translation")


class Table(NamedTuple):
    """A file of predictions.

    Args:
        header: names of the columns.
        rows: (line number, cells) of the lines that are not empty.
    """

    header: list[str]
    rows: list[tuple[int, list[str]]]

    @property
    def kind(self) -> Kind:
        """The kind of the model."""
        if self.header[:3] == list(WORDS[:3]):
            return TAGGER
        return TRANSLATION if self.header[:3] == list(TRANSLATIONS) else CLASSIFIER

    def sentences(self) -> list[list[tuple[int, list[str]]]]:
        """The rows of each sentence, which are on consecutive lines."""
        numbered = enumerate(self.rows)
        groups = itertools.groupby(numbered, key=lambda item: item[1][0] - item[0])
        return [[row for _, row in group] for _, group in groups]

    def pairs(self) -> list:
        """(true, predicted) of each sentence: classes, lists of tags, or texts."""
        if self.kind is TAGGER:
            sentences = [[cells for _, cells in rows] for rows in self.sentences()]
            return [([row[1] for row in rows], [row[2] for row in rows]) for rows in sentences]
        first = 1 if self.kind is TRANSLATION else 0
        return [(cells[first], cells[first + 1]) for _, cells in self.rows]


def as_lines(rows: Iterable[Sequence[object]]) -> str:
    """A table as tab-separated text."""
    return "".join("\t".join(table_cell(str(cell)) for cell in row) + "\n" for row in rows)


def read_table(path: Path) -> Table:
    """Read ``SUBSET.predictions.tsv``; the first line of older ones is the first sentence.

    Raises:
        UserError: it cannot be read or is empty, or a line has too few or too many columns.
    """
    lines = read_lines(path, may_be_blank=True)
    if not any(lines):
        raise UserError(f"{path} is empty; run the evaluation again")
    header = lines[0].split("\t")
    if any(header[: len(names)] == list(names) for names in (CLASSES, WORDS, TRANSLATIONS)):
        lines[0] = ""
    else:
        header = list(CLASSES)
    rows = [
        (number, list(map(cell_text, line.split("\t"))))
        for number, line in enumerate(lines, start=1)
        if line
    ]
    return _checked(path, Table(header, rows))


def predictions_of(run: Path, subset: str) -> Table | None:
    """The predictions of a run, or None if its folder has none.

    Earlier versions wrote those of a recipe's tagger in conlleval's format: "word true predicted".

    Raises:
        UserError: see :func:`read_table`.
    """
    path, old = (run / f"{subset}.{name}" for name in (PREDICTIONS, CONLLEVAL))
    if path.is_file():
        return read_table(path)
    if not old.is_file():
        return None
    lines = enumerate(read_lines(old), start=1)
    rows = [(number, line.split(" ")) for number, line in lines if line]
    return _checked(old, Table(list(WORDS[:3]), rows))


def _checked(path: Path, table: Table) -> Table:
    """The table. Raises UserError if a line has too few or too many columns."""
    columns = len(table.header)
    for number, cells in table.rows:
        if len(cells) != columns:
            raise UserError(
                f"{path} is damaged: line {number} has {len(cells)} columns, not {columns}; "
                "evaluate the run again"
            )
    return table

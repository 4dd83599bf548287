"""Reading tab-separated corpora of sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fairseq_casrnn.data.corpora import Example
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError, counted, quoted


def read_pairs(
    path: Path,
    columns: tuple[int, int, int],
    labels: Mapping[str, str],
    header: bool = True,
    width: int | None = None,
) -> list[Example]:
    """The pairs in a file.

    Args:
        path: tab-separated text, in which quotation marks have no special meaning.
        columns: positions of label, first sentence and second sentence.
        labels: the class of each label in the file.
        header: whether the first line has the names of the columns.
        width: required number of columns; None for any sufficient number.

    Raises:
        UserError: a line has another number of columns, or an unknown label.
    """
    lines = read_lines(path)
    examples = []
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if header and number == 1:
            if len(cells) > max(columns) and cells[columns[0]] in labels:
                raise UserError(
                    f"{path}, line 1 is a pair, not the names of the columns; give the official "
                    "file, or one in its layout"
                )
            continue
        if not line.strip():
            continue
        if len(cells) <= max(columns) or (width is not None and len(cells) != width):
            raise UserError(
                f"{path}, line {number} has {counted(len(cells), 'column')} instead of "
                f"{width or max(columns) + 1}; give the official file, or one in its layout"
            )
        label, first, second = (cells[i] for i in columns)
        if label not in labels:
            raise UserError(
                f"{path}, line {number}: the label {quoted(label)} is not one of "
                f"{', '.join(labels)}; correct it"
            )
        examples.append(Example(labels[label], (first, second)))
    return examples

"""Tab-separated corpora of sentence pairs: columns by name, lines by number in errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fairseq_casrnn.data.corpora import Example
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError, quoted


def read_pairs(
    path: Path,
    columns: tuple[int, int, int],
    labels: Mapping[str, str],
    header: bool = True,
    width: int | None = None,
) -> list[Example]:
    """The pairs of a file.

    Args:
        path: tab-separated text; quotation marks mean nothing.
        columns: positions of label, first and second sentence.
        labels: a class for each label as it is written there.
        header: whether the first line names the columns.
        width: how many columns a line has, or None for any number that suffices.

    Raises:
        UserError: a line of another shape, or an unknown label.
    """
    lines = read_lines(path)
    examples = []
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if header and number == 1:
            if len(cells) > max(columns) and cells[columns[0]] in labels:
                raise UserError(
                    f"{path}, line 1 is a pair, not the columns' names; give the official file, or "
                    "one in its layout"
                )
            continue
        if not line.strip():
            continue
        if len(cells) <= max(columns) or (width is not None and len(cells) != width):
            raise UserError(
                f"{path}, line {number} has {len(cells)} columns instead of "
                f"{width or max(columns) + 1}; give the official file, or one in its layout"
            )
        label, first, second = (cells[i] for i in columns)
        if label not in labels:
            raise UserError(
                f"{path}, line {number}: {quoted(label)} is no label (these are "
                f"{', '.join(labels)}); correct it"
            )
        examples.append(Example(labels[label], (first, second)))
    return examples

"""Files with a word and its tags in each line, and a blank line after each sentence."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.data.words import ASCII_SPACE
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.prepare.files import read_utf8

DOCUMENT = "-DOCSTART-"
LONGEST = 2000  # words of a sentence; a file with longer ones has no blank lines
CONLLU_ID = re.compile(r"[0-9]+(?:[-.][0-9]+)?")


Rows = list[tuple[int, list[str]]]  # number and cells of each line of a sentence


@dataclass
class ColumnFile:
    """The sentences of a file.

    Args:
        path: the file.
        sentences: the lines of each.
        width: how many columns there are.
        tabs: whether tabs separate them, or any white space.
        left_out: lines that belong to no sentence, by kind.
    """

    path: Path
    sentences: list[Rows]
    width: int
    tabs: bool
    left_out: Counter

    def is_conllu(self) -> bool:
        """Whether it is CoNLL-U: ten columns, of which the first one counts words."""
        return (
            self.tabs
            and self.width == 10
            and all(CONLLU_ID.fullmatch(row[0]) for rows in self.sentences for _, row in rows)
        )


def read_column_file(path: Path) -> ColumnFile:
    """The sentences of a file.

    A ``#`` begins a comment where the line has not as many columns as others. Lines of CoNLL-U for
    several words written as one (1-2) and for words not written (1.1) are left out.

    Raises:
        UserError: the file cannot be read, or a line has another number of columns.
    """
    lines = read_utf8(path)
    width, tabs = shape_of(path, lines)
    found = ColumnFile(path, [], width, tabs, Counter())
    rows: Rows = []
    for number, line in enumerate([*lines, ""], start=1):
        cells = split(line, tabs)
        marks = kind_of(line, cells, width)
        if marks == "comment":
            found.left_out["comments"] += 1
            continue
        if marks:
            found.left_out["document lines"] += marks == "document"
            if rows:
                check_length(path, rows)
                found.sentences.append(rows)
            rows = []
            continue
        if len(cells) != width:
            between = "tabs" if tabs else "white space"
            raise UserError(
                f"{path}, line {number}: number of columns {len(cells)}, where most lines have "
                f"{width}; correct it (columns are separated by {between})"
            )
        rows.append((number, cells))
    if not found.sentences:
        raise UserError(f"{path} has no line with a word and its tag; give another file")
    if found.is_conllu():
        leave_out_unwritten(found)
    return found


def shape_of(path: Path, lines: list[str]) -> tuple[int, bool]:
    """How many columns most lines have, and whether tabs separate them."""
    real = [line for line in lines if line.strip() and not line.startswith(("#", DOCUMENT))]
    if not real:
        raise UserError(f"{path} has no line with a word and its tag; give another file")
    tabs = sum("\t" in line for line in real) > len(real) / 2
    ((width, _),) = Counter(len(split(line, tabs)) for line in real).most_common(1)
    if width < 2:
        raise UserError(
            f"{path} has a single column; write a word and its tag in each line, separated by a "
            "tab or space"
        )
    return width, tabs


def split(line: str, tabs: bool) -> list[str]:
    """The cells of a line. A no-break space is part of a word."""
    if tabs:
        return [cell.strip() for cell in line.split("\t")] if line.strip() else []
    return [cell for cell in ASCII_SPACE.split(line) if cell.strip()]


def kind_of(line: str, cells: list[str], width: int) -> str:
    """``blank``, ``document``, ``comment``, or "" for a word."""
    if not any(cells):
        return "blank"
    if DOCUMENT in cells:
        return "document"
    return "comment" if line.startswith("#") and len(cells) != width else ""


def check_length(path: Path, rows: Rows) -> None:
    """Raise UserError for a sentence so long that the file must lack blank lines."""
    if len(rows) > LONGEST:
        raise UserError(
            f"{path}, line {rows[0][0]} begins a sentence of {len(rows)} words; separate sentences "
            "by blank lines"
        )


def leave_out_unwritten(found: ColumnFile) -> None:
    """Keep the syntactic words of CoNLL-U alone."""
    kept = []
    for rows in found.sentences:
        words = [(number, row) for number, row in rows if row[0].isdigit()]
        found.left_out["ranges and empty nodes of CoNLL-U"] += len(rows) - len(words)
        if words:
            kept.append(words)
    found.sentences = kept

"""Reading files with a word and its tags per line, and a blank line after each sentence."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.data.words import ASCII_SPACE
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.prepare.table_files import read_utf8

DOCUMENT = "-DOCSTART-"
LONGEST = 2000  # words in a sentence; a file with longer ones lacks blank lines
CONLLU_ID = re.compile(r"[0-9]+(?:[-.][0-9]+)?")


Rows = list[tuple[int, list[str]]]  # number and cells of each line of a sentence


@dataclass
class ColumnFile:
    """The sentences of a file.

    Args:
        path: the file.
        sentences: the lines of each.
        width: number of columns.
        tabs: whether columns are separated by tabs, not any white space.
        left_out: number of lines that belong to no sentence, by kind.
    """

    path: Path
    sentences: list[Rows]
    width: int
    tabs: bool
    left_out: Counter

    def is_conllu(self) -> bool:
        """Whether it is CoNLL-U: ten columns, the first of which numbers the words."""
        return (
            self.tabs
            and self.width == 10
            and all(CONLLU_ID.fullmatch(row[0]) for rows in self.sentences for _, row in rows)
        )


def read_column_file(path: Path) -> ColumnFile:
    """Read the sentences of a file.

    A line that starts with ``#`` is a comment if it has another number of columns than most lines.
    Multiword ranges (1-2) and empty nodes (1.1) of CoNLL-U are left out.

    Raises:
        UserError: the file cannot be read, or a line has another number of columns.
    """
    lines = read_utf8(path)
    width, tabs = detect_columns(path, lines)
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
                f"{path}, line {number} has {len(cells)} column(s), but most lines have {width}; "
                f"correct it (columns are separated by {between})"
            )
        rows.append((number, cells))
    if not found.sentences:
        raise UserError(f"{path} has no line with a word and its tag; give another file")
    if found.is_conllu():
        drop_non_words(found)
    return found


def detect_columns(path: Path, lines: list[str]) -> tuple[int, bool]:
    """The number of columns of most lines, and whether they are separated by tabs."""
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
    """The kind of a line: ``blank``, ``document``, ``comment``, or "" for a word."""
    if not any(cells):
        return "blank"
    if DOCUMENT in cells:
        return "document"
    return "comment" if line.startswith("#") and len(cells) != width else ""


def check_length(path: Path, rows: Rows) -> None:
    """Raise UserError if a sentence is so long that blank lines must be missing."""
    if len(rows) > LONGEST:
        raise UserError(
            f"{path}, line {rows[0][0]} starts a sentence of {len(rows)} words; separate sentences "
            "by blank lines"
        )


def drop_non_words(found: ColumnFile) -> None:
    """Keep only the syntactic words of CoNLL-U."""
    kept = []
    for rows in found.sentences:
        words = [(number, row) for number, row in rows if row[0].isdigit()]
        found.left_out["ranges and empty nodes of CoNLL-U"] += len(rows) - len(words)
        if words:
            kept.append(words)
    found.sentences = kept

"""Reading files with a word and its tags per line, and a blank line after each sentence."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.data.text import COMMENT, DOCUMENT
from fairseq_casrnn.data.words import ASCII_SPACE
from fairseq_casrnn.errors import UserError, counted
from fairseq_casrnn.prepare.table_files import read_utf8, refuse_json

LONGEST = 2000  # words in a sentence; a file with longer ones lacks blank lines
LONGEST_ALONE = 200  # the same, if it is the only sentence
CONLLU_ID = re.compile(r"[0-9]+(?:[-.][0-9]+)?")
WORD_NAMES = {"word", "words", "token", "tokens", "form", "text"}
TAG_NAMES = {
    *("tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "pos_tags"),
    *("upos", "chunk", "entity", "iob"),
}


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
        return self.tabs and self.width == 10 and self.is_numbered()

    def is_numbered(self) -> bool:
        """Whether the first column numbers the words as in CoNLL-U."""
        return all(CONLLU_ID.fullmatch(row[0]) for rows in self.sentences for _, row in rows)


def read_column_file(path: Path) -> ColumnFile:
    """Read the sentences of a file.

    A line that starts with ``#`` is a comment if it has another number of columns than most lines,
    or looks like one. A first line with names of columns, multiword ranges (1-2) and empty nodes
    (1.1) of CoNLL-U are left out.

    Raises:
        UserError: the file cannot be read, a line has another number of columns, or blank lines are
            missing.
    """
    lines = read_utf8(path)
    width, tabs = detect_columns(path, lines)
    found = ColumnFile(path, [], width, tabs, Counter())
    read_sentences(found, lines)
    if found.sentences and is_header(found.sentences[0][0][1]):
        drop_first_rows(found, found.sentences[:1], "a header")
    drop_first_rows(found, commented(found.sentences), "comments")
    if found.is_numbered():
        drop_non_words(found)
    if not found.sentences:
        raise UserError(f"{path} has no line with a word and its tag; give another file")
    if len(found.sentences) == 1:
        check_length(path, found.sentences[0], LONGEST_ALONE)
    return found


def read_sentences(found: ColumnFile, lines: list[str]) -> None:
    """Add the sentences of the lines to a file's.

    Raises:
        UserError: a line has another number of columns, or a sentence is too long.
    """
    path, width = found.path, found.width
    rows: Rows = []
    for number, line in enumerate([*lines, ""], start=1):
        cells = split(line, found.tabs)
        kind = kind_of_line(line, cells, width)
        if kind == "comment":
            found.left_out["comments"] += 1
        elif kind:
            found.left_out["document lines"] += kind == "document"
            if rows:
                check_length(path, rows)
                found.sentences.append(rows)
            rows = []
        else:
            while len(cells) > width and not cells[-1]:
                cells.pop()
            if len(cells) != width:
                between = "tabs" if found.tabs else "white space"
                raise UserError(
                    f"{path}, line {number} has {counted(len(cells), 'column')}, but most "
                    f"lines have {width}; correct it (columns are separated by {between})"
                )
            rows.append((number, cells))


def detect_columns(path: Path, lines: list[str]) -> tuple[int, bool]:
    """The number of columns of most lines, and whether they are separated by tabs.

    Raises:
        UserError: the file has JSON, no words, or a single column.
    """
    refuse_json(
        path, lines, "write a word and its tag in each line, and a blank line after each sentence"
    )
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
    """The cells of a line. Spaces beyond ASCII may be part of a word, or be one."""
    if not line.strip():
        return []
    if tabs:
        return [cell.strip() or ASCII_SPACE.sub("", cell) for cell in line.split("\t")]
    return [cell for cell in ASCII_SPACE.split(line) if cell]


def kind_of_line(line: str, cells: list[str], width: int) -> str:
    """The kind of a line: ``blank``, ``document``, ``comment``, or "" for a word."""
    if not any(cells):
        return "blank"
    if DOCUMENT in cells:
        return "document"
    if line.startswith("#") and (len(cells) != width or COMMENT.match(line)):
        return "comment"
    return ""


def is_header(cells: list[str]) -> bool:
    """Whether cells are names of columns: one of words, one of tags."""
    names = {cell.lower() for cell in cells}
    return bool(names & WORD_NAMES and names & TAG_NAMES)


def commented(sentences: list[Rows]) -> list[Rows]:
    """Sentences that begin with a comment: ``#``, and in the last column what no word has there.

    In the Penn Treebank, ``#`` is also the tag of that word.
    """
    tags = {row[-1] for rows in sentences for _, row in rows if not row[0].startswith("#")} | {"#"}
    return [rows for rows in sentences if rows[0][1][0] == "#" and rows[0][1][-1] not in tags]


def drop_first_rows(found: ColumnFile, sentences: list[Rows], what: str) -> None:
    """Leave out the first lines of these sentences of the file."""
    for rows in sentences:
        del rows[0]
        found.left_out[what] += 1
    found.sentences[:] = filter(None, found.sentences)


def check_length(path: Path, rows: Rows, most: int = LONGEST) -> None:
    """Raise UserError if a sentence is so long that blank lines must be missing."""
    if len(rows) > most:
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

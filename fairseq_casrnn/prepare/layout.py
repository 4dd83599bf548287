"""Finding the columns with texts and labels: by option, by common names, or by content."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from fairseq_casrnn.data.values import natural
from fairseq_casrnn.errors import UserError, as_option, counted, quoted
from fairseq_casrnn.prepare.table_files import Table

LABELS = (
    *("label", "gold_label", "labels", "class", "category", "sentiment", "target", "polarity"),
    *("is_duplicate", "quality", "stars", "rating", "entailment_judgment", "intent", "stance"),
)
TEXTS = ("text", "sentence", "review", "content", "comment", "tweet", "message", "body", "question")
IDS = {"id", "index", "idx"}
PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("text1", "text2"), ("text_a", "text_b"), ("#1 string", "#2 string")),
    *(("sentence_a", "sentence_b"), ("question", "sentence")),
    # The words of SNLI's parses, if the file has no plain text.
    ("sentence1_binary_parse", "sentence2_binary_parse"),
)


@dataclass(frozen=True)
class Layout:
    """Positions of the columns.

    Args:
        texts: the column of texts, or two for pairs.
        label: the column of labels.
        header: whether the first row has the names of the columns.
        names: names of the columns, for the report.
        guessed: whether only the labels say that the first row is a header.
    """

    texts: tuple[int, ...]
    label: int
    header: bool
    names: tuple[str, ...]
    guessed: bool = False


def find_layout(
    table: Table, args: argparse.Namespace, classes: Collection[str | None] = ()
) -> Layout:
    """Find the columns of a table.

    Args:
        table: the file's content.
        args: ``text_column``, ``pair_column``, ``label_column``: names, numbers from 1, or None.
        classes: labels of training, if it is another split: a row with one of them is not a header.

    Raises:
        UserError: the columns are ambiguous, or a given column does not exist or is given twice.
    """
    first = [(name or "").strip() for name in (table.names or table.rows[0][1])]
    options = {name: getattr(args, name) for name in ("text_column", "pair_column", "label_column")}
    by_name = any(value and natural(value) is None for value in options.values())
    known = [name.lower() for name in first]
    in_first = table.names is None
    header = not in_first or by_name or is_header(table, known)
    given = {name: position(table, first, name, value) for name, value in options.items() if value}
    if len(set(given.values())) < len(given):
        flags = " and ".join(as_option(name) for name in given)
        raise UserError(f"{flags} name the same column of {table.path}; give different ones")
    label = given.get("label_column")
    texts = tuple(given[name] for name in ("text_column", "pair_column") if name in given)
    if header:
        if label is None and (label := find_label(table, first)) is not None:
            check_named_once(table, known, label, "label_column")
        if "text_column" not in given:
            found = find_texts(known, "pair_column" in given)
            for column, option in zip(found, options, strict=False):
                check_named_once(table, known, column, option)
            texts = (*found, *texts)
    if label is None or not texts:
        label, texts = guess(table, label, texts, first if header else None)
    guessed = not header and first_label_is_unique(table, label, classes)
    header = header or guessed
    names = first if header else [f"column {number + 1}" for number in range(len(first))]
    chosen = tuple(names[one] for one in (*texts, label))
    return Layout(texts, label, in_first and header, chosen, guessed)


def position(table: Table, names: list[str], option: str, value: str) -> int:
    """The column that an option names.

    Raises:
        UserError: there is none, or there are several.
    """
    flag = as_option(option)
    number = natural(value)
    if table.path.is_dir() and value not in names:
        raise UserError(
            f"{flag} does not apply to {table.path}, a folder with a subfolder for each class; "
            "leave it out"
        )
    if number is not None and value not in names:
        if not 1 <= number <= len(names):
            raise UserError(
                f"{flag} is {value}, but {table.path} has {counted(len(names), 'column')}; give "
                "another number"
            )
        return number - 1
    if value not in names:
        has = ", ".join(map(quoted, names))
        place = "" if table.names else f" in line {table.rows[0][0]}"
        raise UserError(
            f"{flag} is {value}, but {table.path} has {has}{place}; give one of them, or the "
            "column's number"
        )
    column = names.index(value)
    check_named_once(table, names, column, option)
    return column


def check_named_once(table: Table, names: list[str], column: int, option: str) -> None:
    """Raise UserError if other columns have the same name as one that is used for ``option``."""
    numbers = [str(number) for number, name in enumerate(names, start=1) if name == names[column]]
    if len(numbers) > 1:
        raise UserError(
            f"{table.path} has the name {quoted(names[column])} for columns {' and '.join(numbers)}"
            f"; give {as_option(option)} a number instead"
        )


def is_header(table: Table, names: list[str]) -> bool:
    """Whether cells of the first row, in lower case, are common names of columns.

    A class may have such a name, too, but is then found in other rows.
    """
    usual = {*TEXTS, *LABELS, *(name for pair in PAIRS for name in pair)}
    columns = [column for column, name in enumerate(names) if name in usual]
    first = table.rows[0][1]
    others = [row for _, row in table.rows if row != first]  # a header may be repeated
    return any(all(row[column] != first[column] for row in others) for column in columns)


def first_label_is_unique(table: Table, label: int, classes: Collection[str | None]) -> bool:
    """Whether the first row's label occurs in no other row, nor in training, so that it must be a
    header.
    """
    counts = Counter(cells[label] for _, cells in table.rows)
    first = table.rows[0][1][label]
    return len(table.rows) > 2 and len(counts) > 2 and counts[first] == 1 and first not in classes


def find_label(table: Table, names: list[str]) -> int | None:
    """The column of labels by name, or None.

    Raises:
        UserError: two columns have such names, and one does not merely rename the other's classes.
    """
    known = [name.lower() for name in names]
    found = [known.index(name) for name in LABELS if name in known]
    for other in found[1:]:
        pairs = {(cells[found[0]], cells[other]) for _, cells in table.rows}
        if len(pairs) > min(len({pair[side] for pair in pairs}) for side in range(2)):
            raise UserError(
                f"{table.path} has {quoted(names[found[0]])} and {quoted(names[other])}; give "
                "--label-column NAME or NUMBER for the one with the labels"
            )
    return found[0] if found else None


def find_texts(names: list[str], single: bool) -> tuple[int, ...]:
    """The columns of texts by name; both of a pair, unless only a ``single`` one is wanted."""
    if not single:
        for pair in PAIRS:
            if set(pair) <= set(names):
                return tuple(names.index(name) for name in pair)
    return next(((names.index(name),) for name in TEXTS if name in names), ())


def guess(
    table: Table, label: int | None, texts: tuple[int, ...], names: list[str] | None
) -> tuple[int, tuple[int, ...]]:
    """Label and text in a table of two columns; labels have fewer different values.

    Raises:
        UserError: the table has more columns, or both look alike.
    """
    width = len(table.names or table.rows[0][1])
    if width == 2 and len(texts) < 2 and not IDS & {name.lower() for name in names or ()}:
        if label is None and not texts:
            kinds = [len({cells[column] for _, cells in table.rows}) for column in range(2)]
            if kinds[0] != kinds[1]:
                label = int(kinds[0] > kinds[1])
        elif label is None:
            label = 1 - texts[0]
        if label is not None and (not texts or texts[0] != label):
            return label, texts or (1 - label,)
    missing = "--label-column" if texts else "--text-column"
    shown = ", ".join(quoted(cell or "") for cell in names or table.rows[0][1])
    has = f"has {shown}" if names else f"has {width} columns, none with a known name ({shown})"
    raise UserError(
        f"{table.path} {has}; give {missing} NAME or NUMBER for the one with the "
        f"{'labels' if texts else 'text'}"
        + (" (a test set without labels cannot be scored)" if texts else "")
    )

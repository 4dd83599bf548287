"""``casrnn prepare classification``: binarise texts with labels."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.data.columns import Columns
from fairseq_casrnn.data.folder import SPLITS
from fairseq_casrnn.data.labelled import ClassificationCorpus, Example, prepare
from fairseq_casrnn.data.prepared import LONGEST
from fairseq_casrnn.data.readers import add_vocabulary
from fairseq_casrnn.data.symbols import check_class
from fairseq_casrnn.data.words import leaves
from fairseq_casrnn.errors import UserError, counted, quoted
from fairseq_casrnn.prepare.layout import Layout, find_layout
from fairseq_casrnn.prepare.options import add_options, check_options
from fairseq_casrnn.prepare.splitting import hold_out_missing
from fairseq_casrnn.prepare.table_files import Table, read_folders, read_table

NO_LABEL = "-"  # in SNLI: the annotators did not agree
# Reasons to leave out rows, for the report.
NO_TEXT, INCOMPLETE = "without text", "without a text or label"
REPEATED = "that repeat the header"


@dataclass
class LabelledRow:
    """An example in a file.

    Args:
        label: its class.
        texts: one text, or two of a pair, as in the file.
        line: number of its first line.
        where: file and line, for messages.
    """

    label: str
    texts: tuple[str, ...]
    line: int
    where: str

    def original(self) -> dict[str, object]:
        """The original example, for evaluations."""
        names = ("text", "pair")
        return {"line": self.line, **dict(zip(names, self.texts, strict=False))}


class OwnCorpus(ClassificationCorpus):
    """A user's corpus; its notes include the maximum length, which limits the batch size."""

    def columns(self, args: argparse.Namespace) -> Columns:
        """The data to binarise, see :meth:`.Corpus.columns`."""
        found = super().columns(args)
        longest = sum(1 + max(map(len, part["train"])) for part in found.inputs)
        found.notes[LONGEST] = longest
        return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Binarise labelled texts or pairs of texts: TSV, CSV, JSON lines, or a folder "
        "with one subfolder of files per label. Columns with the usual names (text, "
        "sentence, label, sentence1, premise, …) are found automatically. fairseq-train "
        "reads DIR/data-bin."
    )
    add_options(parser, "a folder with one subfolder per label, or a .tsv, .csv or .jsonl file")
    add_vocabulary(parser)
    for name, what in (
        ("text", "the text"),
        ("pair", "the second text of a pair"),
        ("label", "the label"),
    ):
        parser.add_argument(
            f"--{name}-column",
            metavar="NAME",
            help=f"column of {what}: its name, or its number, starting at 1",
        )
    parser.add_argument(
        "--skip-malformed",
        action="store_true",
        help="leave out rows of a table that have more or fewer columns than the first one, and "
        "report how many; a tenth of all at most",
    )


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if a file or option is invalid."""
    check_options(args)
    prepare(lambda: read_corpus(args), args)


def read_corpus(args: argparse.Namespace) -> ClassificationCorpus:
    """Read the splits. Raises UserError if a file is invalid."""
    notes: dict[str, object] = {}
    splits: dict[str, list[LabelledRow]] = {}
    for name in SPLITS:
        if path := getattr(args, name):
            classes = {row.label for row in splits.get("train", [])}
            splits[name] = read_split(name, path, args, notes, classes)
    drop_unlabelled(splits, notes)
    check_classes(splits)
    rows = splits["train"]
    keys, labels = grouping_keys(rows), [row.label for row in rows]
    notes |= hold_out_missing(splits, keys, labels, args.split_seed, " of each class")
    notes |= overlap_notes(splits)
    notes |= case_notes(splits)
    examples = {name: [Example(row.label, row.texts) for row in splits[name]] for name in SPLITS}
    originals = {name: [row.original() for row in splits[name]] for name in SPLITS}
    return OwnCorpus(examples, notes, originals)


def read_split(
    name: str, path: Path, args: argparse.Namespace, notes: dict[str, object], classes: set[str]
) -> list[LabelledRow]:
    """Read the examples of a file or folder; adds to the notes what was found and left out.

    Raises:
        UserError: a row has no label or an invalid one, or no row has a text.
    """
    table = read_folders(path) if path.is_dir() else read_table(path, args.skip_malformed)
    layout = find_layout(table, args, classes)
    if name == "train":
        kinds = ("text", "second text", "label") if len(layout.texts) > 1 else ("text", "label")
        columns = dict(zip(kinds, layout.names, strict=True))
        notes["columns"] = ", ".join(f"{kind}: {where}" for kind, where in columns.items())
        notes |= table.notes
    if layout.guessed:
        notes[f"{name}: the first row, left out as a header"] = ", ".join(layout.names)
    if table.skipped:
        note_skipped(notes, name, table.skipped, "with the wrong number of columns")
    if len(table.rows) == layout.header:
        raise UserError(f"{path} has a header but no rows; give a file with at least one example")
    rows, left_out = read_rows(table, layout, args.skip_malformed)
    if not rows and (left_out[NO_TEXT] or left_out[INCOMPLETE]):
        raise UserError(
            f"{path}: {' and '.join(layout.names[:-1])} has no text{of_json(table)} in any row; "
            "choose another --text-column"
        )
    for what in (NO_TEXT, INCOMPLETE, REPEATED):
        if left_out[what]:
            note_skipped(notes, name, left_out[what], what)
    return rows


def read_rows(table: Table, layout: Layout, skip: bool) -> tuple[list[LabelledRow], Counter]:
    """The examples of a table, and how many rows were left out, by reason.

    Args:
        table: the file's content.
        layout: its columns.
        skip: leave out JSON objects that lack a text or label.

    Raises:
        UserError: a row has no label or an invalid one.
    """
    parses = layout.names[0].lower().endswith("_parse")
    rows: list[LabelledRow] = []
    left_out: Counter = Counter()
    for line, cells in table.rows[layout.header :]:
        if layout.header and cells == table.rows[0][1]:
            left_out[REPEATED] += 1
            continue
        missing = [n for n in (*layout.texts, layout.label) if cells[n] is None]
        if missing and not skip:
            assert table.names is not None  # as of every file of JSON objects
            raise UserError(
                f"{table.where(line)} lacks {quoted(table.names[missing[0]])}; add it, or leave "
                "such rows out by --skip-malformed"
            )
        texts = tuple((cells[column] or "").strip() for column in layout.texts)
        if missing or not all(texts):
            left_out[INCOMPLETE if missing else NO_TEXT] += 1
            continue
        label = label_of(table, line, cells[layout.label])
        texts = tuple(map(leaves, texts)) if parses else texts
        rows.append(LabelledRow(label, texts, line, table.where(line)))
    return rows, left_out


def of_json(table: Table) -> str:
    """What a text or label in JSON can be, for messages; empty for other tables."""
    return " that is a string, number or boolean" if table.names else ""


def label_of(table: Table, line: int, cell: str | None) -> str:
    """The label of a row. Raises UserError if it is missing or cannot be a class."""
    label = " ".join((cell or "").split())
    if not label:
        raise UserError(
            f"{table.where(line)} has no label{of_json(table)}; give it one, or remove the line"
        )
    check_class(label, "label", table.where(line))
    return label


def drop_unlabelled(splits: dict[str, list[LabelledRow]], notes: dict[str, object]) -> None:
    """Drop the rows labelled "-", unless "+" is a label, too, or there are only two labels."""
    labels = {row.label for rows in splits.values() for row in rows}
    if "+" in labels or len(labels) < 3:
        return
    for name, rows in splits.items():
        splits[name] = [row for row in rows if row.label != NO_LABEL]
        if dropped := len(rows) - len(splits[name]):
            note_skipped(notes, name, dropped, 'without a gold label ("-")')


def note_skipped(notes: dict[str, object], name: str, count: int, what: str) -> None:
    """Add to the notes how many rows of a split were skipped, and ``what`` they are."""
    before = f"{notes[name]}, " if name in notes else "skipped "
    notes[name] = f"{before}{counted(count, 'row')} {what}"


def check_classes(splits: dict[str, list[LabelledRow]]) -> None:
    """Raise UserError if labels cannot be classes, or a split shares none with training."""
    train = splits["train"]
    known = Counter(row.label for row in train)
    if len(known) < 2:
        has = f"is {quoted(next(iter(known)))} throughout" if known else "is empty throughout"
        raise UserError(
            f"the label {has} in --train; give texts of at least two classes, or choose another "
            "--label-column"
        )
    if len(known) > max(10, len(train) // 2):
        raise UserError(
            f"the labels of --train have {len(known)} values in {len(train)} rows, such as "
            f"{quoted(train[0].label)}, so they are not classes; choose another --label-column"
        )
    if len(known) > 10 and all(map(is_decimal, known)) and not all(map(str.isdigit, known)):
        raise UserError(
            f"the labels of --train are numbers such as {quoted(train[0].label)}, not classes; "
            "there is no model for regression, so turn them into a few classes"
        )
    for name, rows in splits.items():
        if not rows:
            raise UserError(f"--{name} has no text with a label; give another file")
        if len(rows[0].texts) != len(train[0].texts):
            kinds = ("single texts", "pairs of texts")[:: 1 if len(rows[0].texts) == 1 else -1]
            raise UserError(
                f"--{name} has {kinds[0]}, but --train has {kinds[1]}; choose --text-column "
                "and --pair-column"
            )
        if not any(row.label in known for row in rows):
            raise UserError(
                f"{rows[0].where}: the label {quoted(rows[0].label)} is not in "
                f"--train ({', '.join(sorted(known)[:20])}), nor is any other of the file; correct "
                "them, or choose another --label-column"
            )


def is_decimal(label: str) -> bool:
    """Whether a label is a decimal number."""
    return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", label) is not None


def grouping_keys(rows: list[LabelledRow]) -> list[tuple[str, ...]]:
    """Keys of examples that must be in the same split.

    The key is the text; for pairs the first text, since premises repeat. If the first texts are
    nearly all the same, it is the pair.
    """
    first = [row.texts[:1] for row in rows]
    return first if 10 * len(set(first)) > len(rows) else [row.texts for row in rows]


def overlap_notes(splits: dict[str, list[LabelledRow]]) -> dict[str, int]:
    """Notes on texts that training and another split share."""
    seen = {row.texts for row in splits["train"]}
    shared = {name: sum(row.texts in seen for row in splits[name]) for name in SPLITS[1:]}
    return {f"{name}: texts that are in train, too": n for name, n in shared.items() if n}


def case_notes(splits: dict[str, list[LabelledRow]]) -> dict[str, str]:
    """A note on classes such as ``Pos`` and ``pos``, which may be meant as one."""
    spellings: dict[str, list[str]] = {}
    for label in sorted({row.label for rows in splits.values() for row in rows}):
        spellings.setdefault(label.casefold(), []).append(label)
    alike = "; ".join(", ".join(labels) for labels in spellings.values() if len(labels) > 1)
    return {"classes that differ only in upper and lower case": alike} if alike else {}

"""The columns of a corpus - sentences, labels, characters - and binarising them."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_casrnn import register
from fairseq_casrnn.data.folder import (
    binarise,
    find_singletons,
    make_dictionary,
    make_label_dictionary,
)
from fairseq_casrnn.data.text import write_lines
from fairseq_casrnn.data.vector_files import words_with_vectors
from fairseq_casrnn.errors import UserError, printable

if TYPE_CHECKING:
    from fairseq.data import Dictionary

FEW = 0.3  # share of the running text with a vector below which something is probably wrong
Splits = dict[str, list[list[str]]]  # split -> sentences -> words


@dataclass
class Columns:
    """The data to binarise.

    Args:
        inputs: the sentences, or the first and the second sentences of pairs.
        labels: a label for each sentence or word.
        classes: all labels.
        whole: training sentences in which words that occur once are looked for.
        notes: counts to report.
        spelling: the words as written, or None if characters are not used.
    """

    inputs: list[Splits]
    labels: Splits
    classes: set[str]
    whole: list[list[str]]
    notes: dict[str, object]
    spelling: Splits | None = None


def write_columns(columns: Columns, folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Binarise into ``folder``; return the counts to report."""
    dictionary, singletons, coverage = choose_words(columns, args)
    if args.words_of is not None:
        add_words(dictionary, args.words_of)
    warn_unseen(columns.labels)
    for number, sentences in enumerate(columns.inputs):
        binarise(sentences, dictionary, folder / f"input{number}")
    write_lines(folder / "input0" / "singletons.txt", sorted(singletons))
    binarise(columns.labels, make_label_dictionary(columns.classes), folder / "label")
    notes = {**columns.notes, **coverage, "dictionary": len(dictionary)}
    if columns.spelling is None:
        return notes
    written = columns.spelling
    counted = list(written) if args.vocabulary == "all" else ["train"]
    letters = Counter(
        letter for name in counted for word in flatten(written[name]) for letter in word
    )
    spelt = {name: [separate_characters(row) for row in rows] for name, rows in written.items()}
    binarise(spelt, make_dictionary(letters), folder / "spelling")
    return {**notes, "characters": len(letters)}


def choose_words(
    columns: Columns, args: argparse.Namespace
) -> tuple[Dictionary, set[str], dict[str, str]]:
    """The words that get an embedding, those that may stand for <unk> in training, and notes.

    With ``--vectors``, <unk> is what has no vector and is not in training, so only words without a
    vector stand for it.

    Raises:
        UserError: the word vectors cannot be read, no word has one, or none is frequent enough.
    """

    def counts(names: Iterable[str]) -> Counter:
        return Counter(
            word for part in columns.inputs for name in names for word in flatten(part[name])
        )

    if args.vocabulary == "all":
        return make_dictionary(counts(columns.labels), args.min_count), set(), {}
    train = counts(["train"])
    if args.vectors is None:
        return make_dictionary(train, args.min_count), find_singletons(columns.whole), {}
    everything = counts(columns.labels)
    covered = words_with_vectors(Path(args.vectors), everything)
    notes = coverage_note(covered, everything, args)
    kept = covered | {word for word, count in train.items() if count >= args.min_count}
    dictionary = make_dictionary(Counter({word: everything[word] for word in kept}))
    return dictionary, find_singletons(columns.whole) - covered, notes


def coverage_note(covered: set[str], counts: Counter, args: argparse.Namespace) -> dict[str, str]:
    """How many of the words have a vector, as a note; warns on standard error if few have one.

    Args:
        covered: the words with a vector.
        counts: how often each word occurs.
        args: the command's options.

    Raises:
        UserError: no word has a vector.
    """
    case = (
        "the text is lower-cased, --no-lowercase keeps its capitals"
        if args.lowercase
        else "the text keeps its capitals, --lowercase removes them"
    )
    remedy = f"check the file's language and its letter case ({case})"
    if not covered:
        raise UserError(
            f"{args.vectors} has a vector for none of the {len(counts)} words; {remedy}"
        )
    coverage = f"{len(covered)} of {len(counts)} words"
    share = sum(counts[word] for word in covered) / counts.total()
    if share < FEW:
        print(
            f"warning: {args.vectors} has a vector for only {coverage}, {share:.0%} of the running "
            f"text; {remedy}",
            file=sys.stderr,
        )
    return {"word vectors": f"{coverage} have one, {share:.0%} of the running text"}


def warn_unseen(labels: Splits) -> None:
    """Warn on standard error of the classes of each split that do not occur in training."""
    seen = set(flatten(labels["train"]))
    for name, rows in labels.items():
        if missing := sorted(set(flatten(rows)) - seen):
            names = printable(", ".join(missing[:20])) + (", …" if missing[20:] else "")
            print(
                f"warning: {name} has {names}, which training does not have, so no model can "
                "predict it; each counts as an error",
                file=sys.stderr,
            )


def flatten(rows: Iterable[Iterable]) -> Iterable:
    """The items of all rows."""
    return chain.from_iterable(rows)


def separate_characters(words: Sequence[str]) -> list[str]:
    """The characters of the words, with </s> between words."""
    return [symbol for word in words for symbol in ("</s>", *word)][1:]


def add_words(dictionary, folder: Path) -> None:
    """Add the words of another prepared folder, so that they get embeddings.

    Raises:
        UserError: its dictionary is missing or damaged.
    """
    from fairseq.data import Dictionary

    from fairseq_casrnn.data.dictionaries import without_fillers
    from fairseq_casrnn.diagnostics.explain import explained

    path = folder / "input0" / "dict.txt"
    if not path.is_file():
        raise UserError(f"{path} does not exist; give --words-of the data-bin of a prepared corpus")
    register()  # fairseq reads dictionaries as this package does
    with explained():
        other = Dictionary.load(str(path))
    for word in without_fillers(other):
        dictionary.add_symbol(word, 0)


def without_spaces(word: str) -> str:
    """A word for a file of columns, with white space (such as a no-break space) replaced by _."""
    return "_".join(word.split()) or "_"

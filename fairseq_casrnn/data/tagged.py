"""From tagged sentences to a finished, binarised data folder, or to nothing at all.

A prepared folder ``OUT`` holds ``OUT/data-bin`` with ``input0/`` and ``label/`` as
``fairseq-preprocess --only-source`` writes them, of as many words, ``spelling/`` (the characters of
the words, </s> after each word), ``input0/singletons.txt``, ``text.json`` (how raw text is read)
and ``prepare.json`` (counts).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fairseq_casrnn.data import symbols
from fairseq_casrnn.data.folder import (
    binarise,
    build,
    make_dictionary,
    make_label_dictionary,
    write_json,
    write_singletons,
)
from fairseq_casrnn.data.labelled import GIVEN, add_arguments, read_mixed
from fairseq_casrnn.data.words import normalised
from fairseq_casrnn.errors import UserError


class Tagged(NamedTuple):
    """The words of a sentence and their tags."""

    words: list[str]
    tags: list[str]


@dataclass
class TaggedCorpus:
    """Splits of a corpus.

    Args:
        splits: sentences of ``train``, ``valid``, ``test``.
        notes: numbers worth keeping, printed and put in prepare.json.
    """

    splits: dict[str, list[Tagged]]
    notes: dict[str, object] = field(default_factory=dict)


def add_tagging_arguments(parser: argparse.ArgumentParser) -> None:
    """Options shared by all tagged corpora."""
    add_arguments(parser, tokenizer=GIVEN)
    parser.add_argument(
        "--zero-digits",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read every digit of a word as 0, but not in its spelling (default: %(default)s)",
    )


def prepare(make_corpus: Callable[[], TaggedCorpus], args: argparse.Namespace) -> None:
    """Read the corpus, binarise it and move it into place under ``args.out``.

    Raises:
        UserError: anything wrong with the data; nothing new is left under ``args.out`` then.
    """

    def fill(folder: Path) -> dict[str, object]:
        corpus = make_corpus()
        for name, sentences in corpus.splits.items():
            if not sentences:
                raise UserError(f"no sentence is left for {name}; check the input files")
        notes = {**corpus.notes, **write(corpus.splits, folder, args)}
        text = {"lowercase": args.lowercase, "zero_digits": args.zero_digits}
        write_json(folder / "text.json", {"tokenizer": args.raw_tokenizer, **text})
        return notes

    build(args, fill)


def write(
    splits: dict[str, list[Tagged]], folder: Path, args: argparse.Namespace
) -> dict[str, object]:
    """Binarise into ``folder``; returns what to report."""
    columns = (column for sentences in splits.values() for one in sentences for column in one)
    notes: dict[str, object] = symbols.escaped_note(columns)
    forms = {
        name: [
            symbols.escape(normalised(words, args.lowercase, args.zero_digits))
            for words, _ in sentences
        ]
        for name, sentences in splits.items()
    }
    every = args.vocabulary == "all"
    counted = [name for name in splits if every or name == "train"]
    vocabulary = Counter(word for name in counted for words in forms[name] for word in words)
    letters = Counter(
        letter for name in counted for words, _ in splits[name] for word in words for letter in word
    )
    tags = {
        name: [symbols.escape(tags) for _, tags in sentences] for name, sentences in splits.items()
    }
    seen, known = ({tag for row in rows for tag in row} for rows in (tags["train"], chain(tags)))
    if len(known) < 2:
        raise UserError(
            f"every word has the tag {known.pop()}; there is nothing to learn: check the files"
        )
    dictionary = make_dictionary(vocabulary, args.min_count)
    binarise(forms, dictionary, folder / "input0")
    write_singletons(forms["train"], folder / "input0")
    binarise(tags, make_label_dictionary(known), folder / "label")
    spelt = {name: [spelled(words) for words, _ in rows] for name, rows in splits.items()}
    binarise(spelt, make_dictionary(letters), folder / "spelling")
    for name, sentences in splits.items():
        words = sum(len(words) for words, _ in sentences)
        notes[name] = f"{len(sentences)} sentences, {words} words"
    notes["tags"] = f"{len(known)}: {', '.join(sorted(known))}"
    if known - seen:
        notes["tags not in training"] = ", ".join(sorted(known - seen))
    return notes | {"dictionary": len(dictionary), "characters": len(letters)}


def chain(tags: dict[str, list]) -> Iterator[Sequence[str]]:
    """The rows of all splits."""
    for rows in tags.values():
        yield from rows


def spelled(words: Sequence[str]) -> list[str]:
    """The characters of the words, </s> between two of them."""
    return [symbol for word in words for symbol in ("</s>", *word)][1:]


def read_blocks(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[list[str]]]]:
    """Sentences of a file of columns, separated by blank lines: number of the first line, rows.

    Args:
        path: the file; its columns are separated by spaces or tabs.
        columns: what they are.

    Raises:
        UserError: a line with another number of columns, or a file that cannot be read.
    """
    rows: list[list[str]] = []
    for number, line in enumerate([*read_mixed(path), ""], start=1):
        cells = line.split()
        if cells and len(cells) != len(columns):
            raise UserError(
                f"{path}, line {number} has {len(cells)} columns instead of {len(columns)} "
                f"({', '.join(columns)}); give the official file, or one in its layout"
            )
        if cells:
            rows.append(cells)
        elif rows:
            yield number - len(rows), rows
            rows = []

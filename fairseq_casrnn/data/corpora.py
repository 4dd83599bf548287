"""Corpora of labelled or tagged sentences, and their binarised folders.

A prepared folder ``OUT`` holds ``OUT/data-bin`` with ``input0/``, ``label/`` and, for pairs,
``input1/`` as ``fairseq-preprocess --only-source`` writes them, ``input0/singletons.txt`` (words
that occur once in training), ``text.json`` (how raw text is split) and ``prepare.json`` (counts).
Where words have tags, ``label/`` has as many words as ``input0/``, and ``spelling/`` has their
characters, </s> after each word. ``original/`` has the examples as their file has them, where
``casrnn prepare`` made the folder. It is built in a temporary folder and renamed at the end.
"""

from __future__ import annotations

import argparse
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fairseq_casrnn import register
from fairseq_casrnn.data import symbols
from fairseq_casrnn.data.folder import (
    binarise,
    build,
    make_dictionary,
    make_label_dictionary,
    write_json,
    write_singletons,
)
from fairseq_casrnn.data.originals import write_originals
from fairseq_casrnn.data.words import normalised, words
from fairseq_casrnn.errors import UserError, printable

Splits = dict[str, list[list[str]]]  # sentences of each split


class Example(NamedTuple):
    """A label and one or two sentences: text, or lists of words that are split already."""

    label: str
    sentences: tuple[str | list[str], ...]


class TaggedSentence(NamedTuple):
    """The words of a sentence and their tags."""

    words: list[str]
    tags: list[str]


@dataclass
class Columns:
    """What is binarised.

    Args:
        inputs: the sentences, or the first and the second ones of pairs.
        labels: a label for each sentence or word.
        classes: all labels.
        whole: sentences of training in which words are counted to find those that occur once.
        notes: what to report.
        spelling: the words as they are written, or None where their characters are not read.
    """

    inputs: list[Splits]
    labels: Splits
    classes: set[str]
    whole: list[list[str]]
    notes: dict[str, object]
    spelling: Splits | None = None


@dataclass
class Corpus(ABC):
    """Splits of a corpus.

    Args:
        splits: examples of ``train``, ``valid``, ``test``, and further ones (``valid1``, …).
        notes: numbers worth keeping (examples dropped, …), printed and put in prepare.json.
        originals: what each example was in its file, as JSON objects, kept for an evaluation that
            shows it; only of corpora of one's own.
    """

    splits: dict[str, list]
    notes: dict[str, object] = field(default_factory=dict)
    originals: dict[str, list[dict]] = field(default_factory=dict)

    def check(self) -> None:
        """Raise UserError for an empty split, or labels that cannot be learnt."""
        for name, examples in self.splits.items():
            if not examples:
                raise UserError(f"no sentence is left for {name}; check the input files")

    @abstractmethod
    def columns(self, args: argparse.Namespace) -> Columns:
        """What is binarised, words that fairseq uses itself escaped."""

    @abstractmethod
    def raw_text(self, args: argparse.Namespace) -> dict[str, object]:
        """How raw text is to be read by a model of this corpus."""


@dataclass
class ClassificationCorpus(Corpus):
    """Splits of :class:`Example`.

    Args:
        whole: the sentences of training where the examples overlap, being phrases of them.
    """

    whole: list[str | list[str]] | None = None

    def check(self) -> None:
        """Raise UserError for an empty split, or an example without its label or sentences."""
        super().check()
        parts = max(1, len(self.splits["train"][0].sentences))
        for name, examples in self.splits.items():
            for number, example in enumerate(examples, start=1):
                texts = (example.label, *example.sentences)
                if not all(isinstance(text, str | list) for text in texts):
                    raise UserError(
                        f"{name}, example {number}: {texts!r} are to be a label and sentences, all "
                        "of them text; correct what the reader makes of this line"
                    )
                if len(example.sentences) != parts or not example.label:
                    raise UserError(
                        f"{name}, example {number}: label {example.label!r} and "
                        f"{len(example.sentences)} sentences; each example needs a label and as "
                        f"many sentences as the first of training, {parts}"
                    )

    def columns(self, args: argparse.Namespace) -> Columns:
        """What is binarised."""
        texts = {
            name: [[as_words(text, args) for text in example.sentences] for example in examples]
            for name, examples in self.splits.items()
        }
        every = (text for rows in texts.values() for row in rows for text in row)
        notes: dict[str, object] = {**symbols.escaped_note(every)}
        parts = len(texts["train"][0])
        inputs = [
            {name: [symbols.escape(row[part]) for row in rows] for name, rows in texts.items()}
            for part in range(parts)
        ]
        labels = {name: [[one.label] for one in rows] for name, rows in self.splits.items()}
        what = "pairs" if parts > 1 else "sentences"
        notes |= {f"{name} {what}": len(rows) for name, rows in labels.items()}
        seen = Counter(label for (label,) in labels["train"])
        known = {label for rows in labels.values() for (label,) in rows}
        notes["classes"] = ", ".join(f"{name} {n}" for name, n in seen.most_common())
        if self.whole is None:
            whole = [text for column in inputs for text in column["train"]]
        else:
            whole = [symbols.escape(as_words(text, args)) for text in self.whole]
        return Columns(inputs, labels, known, whole, notes)

    def raw_text(self, args: argparse.Namespace) -> dict[str, object]:
        """How raw text is to be read by a model of this corpus."""
        # Files that want no more than these have their punctuation split; other text has not.
        split = args.tokenizer in ("space", "clitics")
        tokenizer = args.raw_tokenizer if split else args.tokenizer
        return {"tokenizer": tokenizer, "lowercase": args.lowercase, **language_note(args)}


@dataclass
class TaggedCorpus(Corpus):
    """Splits of :class:`TaggedSentence`."""

    def columns(self, args: argparse.Namespace) -> Columns:
        """What is binarised. Raises UserError where there is one tag only."""
        every = (column for rows in self.splits.values() for row in rows for column in row)
        notes: dict[str, object] = {**symbols.escaped_note(every)}
        forms, tags, spelling = {}, {}, {}
        for name, rows in self.splits.items():
            normal = (normalised(row.words, args.lowercase, args.zero_digits) for row in rows)
            forms[name] = [symbols.escape(row) for row in normal]
            tags[name] = [symbols.escape(row.tags) for row in rows]
            spelling[name] = [row.words for row in rows]
            notes[name] = f"{len(rows)} sentences, {sum(map(len, forms[name]))} words"
        seen, known = (
            set(flat(tags["train"])),
            {tag for rows in tags.values() for tag in flat(rows)},
        )
        if len(known) < 2:
            raise UserError(
                f"every word has the tag {known.pop()}; there is nothing to learn: check the files"
            )
        notes["tags"] = f"{len(known)}: {', '.join(sorted(known))}"
        if known - seen:
            notes["tags not in training"] = ", ".join(sorted(known - seen))
        return Columns([forms], tags, known, forms["train"], notes, spelling)

    def raw_text(self, args: argparse.Namespace) -> dict[str, object]:
        """How raw text is to be read by a model of this corpus."""
        return {
            "tokenizer": args.raw_tokenizer,
            "lowercase": args.lowercase,
            "zero_digits": args.zero_digits,
            **language_note(args),
        }


def prepare(make_corpus: Callable[[], Corpus], args: argparse.Namespace) -> None:
    """Read the corpus, binarise it and move it into place under ``args.out``.

    Raises:
        UserError: anything wrong with the data; nothing new is left under ``args.out`` then.
    """

    def fill(folder: Path) -> dict[str, object]:
        corpus = make_corpus()
        corpus.check()
        notes = {**corpus.notes, **write(corpus.columns(args), folder, args)}
        write_json(folder / "text.json", corpus.raw_text(args))
        write_originals(folder, corpus.originals)
        return notes

    build(args, fill)


def write(columns: Columns, folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Binarise into ``folder``; returns what to report."""
    counted = list(columns.labels) if args.vocabulary == "all" else ["train"]
    vocabulary = Counter(
        word for part in columns.inputs for name in counted for word in flat(part[name])
    )
    dictionary = make_dictionary(vocabulary, args.min_count)
    if args.words_of is not None:
        add_words(dictionary, args.words_of)
    warn_unseen(columns.labels)
    for number, sentences in enumerate(columns.inputs):
        binarise(sentences, dictionary, folder / f"input{number}")
    write_singletons(columns.whole, folder / "input0")
    binarise(columns.labels, make_label_dictionary(columns.classes), folder / "label")
    notes = {**columns.notes, "dictionary": len(dictionary)}
    if columns.spelling is None:
        return notes
    written = columns.spelling
    letters = Counter(letter for name in counted for word in flat(written[name]) for letter in word)
    spelt = {name: [spelled(row) for row in rows] for name, rows in written.items()}
    binarise(spelt, make_dictionary(letters), folder / "spelling")
    return {**notes, "characters": len(letters)}


def warn_unseen(labels: Splits) -> None:
    """Name on standard error the classes of each split that training has not."""
    seen = set(flat(labels["train"]))
    for name, rows in labels.items():
        if missing := sorted(set(flat(rows)) - seen):
            names = printable(", ".join(missing[:20])) + (", …" if missing[20:] else "")
            print(
                f"warning: {name} has {names}, which training does not have, so that no model can "
                "learn it; each counts as a miss",
                file=sys.stderr,
            )


def flat(rows: Iterable[Iterable]) -> Iterable:
    """What is in all rows."""
    return chain.from_iterable(rows)


def spelled(words: Sequence[str]) -> list[str]:
    """The characters of the words, </s> between two of them."""
    return [symbol for word in words for symbol in ("</s>", *word)][1:]


def add_words(dictionary, folder: Path) -> None:
    """Add the words of another prepared folder, so that they get an embedding, too.

    Raises:
        UserError: it holds no dictionary, or a damaged one.
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


def language_note(args: argparse.Namespace) -> dict[str, str]:
    """What ``text.json`` says of the language, where an option chooses it."""
    return {"language": args.language} if hasattr(args, "language") else {}


def as_words(text: str | list[str], args: argparse.Namespace) -> list[str]:
    """The words of a sentence, which may be split already."""
    if isinstance(text, str):
        return words(text, args.tokenizer, args.lowercase, getattr(args, "language", "en"))
    return [word.lower() for word in text] if args.lowercase else text

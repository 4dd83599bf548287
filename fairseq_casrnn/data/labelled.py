"""Corpora of labelled or tagged sentences, and their binarised folders.

A prepared folder ``OUT`` holds ``OUT/data-bin`` with

* ``input0/``, ``label/`` and, for pairs, ``input1/``, as ``fairseq-preprocess --only-source``
  writes them; if words have tags, ``label/`` has as many words as ``input0/``;
* ``spelling/``: the characters of tagged words, with </s> after each word;
* ``input0/singletons.txt`` (words that occur once in training), ``text.json`` (tokenizer and other
  settings of raw text) and ``prepare.json`` (counts);
* ``original/``, written by ``casrnn prepare``: the examples as the input files have them.

It is built in a temporary folder and renamed at the end.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fairseq_casrnn.console.program import show
from fairseq_casrnn.data import symbols
from fairseq_casrnn.data.columns import Columns, write_columns
from fairseq_casrnn.data.folder import build
from fairseq_casrnn.data.originals import write_originals
from fairseq_casrnn.data.words import normalised, words
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.files import write_json


class Example(NamedTuple):
    """A label and one or two sentences, each a text or a list of words."""

    label: str
    sentences: tuple[str | list[str], ...]


class TaggedSentence(NamedTuple):
    """The words of a sentence and their tags."""

    words: list[str]
    tags: list[str]


@dataclass
class Corpus(ABC):
    """The splits of a corpus.

    Args:
        splits: examples of ``train``, ``valid``, ``test`` and further splits (``valid1``, …).
        notes: counts (examples dropped, …), which are printed and written to prepare.json.
        originals: each example as a JSON object, as in the input file, for evaluations that show
            it. Only ``casrnn prepare`` gives these.
    """

    splits: dict[str, list]
    notes: dict[str, object] = field(default_factory=dict)
    originals: dict[str, list[dict]] = field(default_factory=dict)

    def check(self) -> None:
        """Raise UserError if a split is empty."""
        for name, examples in self.splits.items():
            if not examples:
                raise UserError(f"no sentence is left for {name}; check the input files")

    @abstractmethod
    def columns(self, args: argparse.Namespace) -> Columns:
        """The data to binarise, with words that are fairseq's symbols escaped."""

    @abstractmethod
    def raw_text(self, args: argparse.Namespace) -> dict[str, object]:
        """The settings with which a model of this corpus reads raw text, for ``text.json``."""


@dataclass
class ClassificationCorpus(Corpus):
    """A corpus of :class:`Example`.

    Args:
        whole: the training sentences, if the training examples are overlapping phrases of them.
    """

    whole: list[str | list[str]] | None = None

    def check(self) -> None:
        """Raise UserError if a split is empty or an example is incomplete."""
        super().check()
        parts = max(1, len(self.splits["train"][0].sentences))
        for name, examples in self.splits.items():
            for number, example in enumerate(examples, start=1):
                texts = (example.label, *example.sentences)
                if not all(isinstance(text, str | list) for text in texts):
                    raise UserError(
                        f"{name}, example {number}: {texts!r} must be a label and sentences, all "
                        "of them text; correct the reader"
                    )
                if len(example.sentences) != parts or not example.label:
                    raise UserError(
                        f"{name}, example {number}: label {example.label!r} and "
                        f"{len(example.sentences)} sentences; each example needs a label and "
                        f"{parts} sentences, as the first training example has"
                    )

    def columns(self, args: argparse.Namespace) -> Columns:
        """The data to binarise, see :meth:`Corpus.columns`."""
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
        """The settings with which a model of this corpus reads raw text, for ``text.json``."""
        # With these two the files have separate punctuation, which raw text does not have.
        tokenised = args.tokenizer in ("space", "clitics")
        tokenizer = args.raw_tokenizer if tokenised else args.tokenizer
        return {"tokenizer": tokenizer, "lowercase": args.lowercase}


@dataclass
class TaggedCorpus(Corpus):
    """A corpus of :class:`TaggedSentence`."""

    def columns(self, args: argparse.Namespace) -> Columns:
        """The data to binarise. Raises UserError if all words have the same tag."""
        every = (column for rows in self.splits.values() for row in rows for column in row)
        notes: dict[str, object] = {**symbols.escaped_note(every)}
        forms, tags, spelling = {}, {}, {}
        for name, rows in self.splits.items():
            normal = (normalised(row.words, args.lowercase, args.zero_digits) for row in rows)
            forms[name] = [symbols.escape(row) for row in normal]
            tags[name] = [symbols.escape(row.tags) for row in rows]
            spelling[name] = [row.words for row in rows]
            notes[name] = f"{len(rows)} sentences, {sum(map(len, forms[name]))} words"
        seen = set(chain.from_iterable(tags["train"]))
        known = {tag for rows in tags.values() for tag in chain.from_iterable(rows)}
        if len(known) < 2:
            raise UserError(
                f"every word has the tag {known.pop()}; there is nothing to learn: check the files"
            )
        notes["tags"] = f"{len(known)}: {', '.join(sorted(known))}"
        if known - seen:
            notes["tags not in training"] = ", ".join(sorted(known - seen))
        return Columns([forms], tags, known, forms["train"], notes, spelling)

    def raw_text(self, args: argparse.Namespace) -> dict[str, object]:
        """The settings with which a model of this corpus reads raw text, for ``text.json``."""
        return {
            "tokenizer": args.raw_tokenizer,
            "lowercase": args.lowercase,
            "zero_digits": args.zero_digits,
        }


def prepare(make_corpus: Callable[[], Corpus], args: argparse.Namespace) -> None:
    """Read the corpus, binarise it and move it into place under ``args.out``.

    Raises:
        UserError: the data is invalid; ``args.out`` is left unchanged.
    """

    def fill(stage: Path) -> None:
        check_at_least(1, min_count=args.min_count)
        folder = stage / "data-bin"
        corpus = make_corpus()
        corpus.check()
        notes = {**corpus.notes, **write_columns(corpus.columns(args), folder, args)}
        language = {"language": args.language} if hasattr(args, "language") else {}
        write_json(folder / "text.json", corpus.raw_text(args) | language)
        write_originals(folder, corpus.originals)
        show(f"{key}: {value}" for key, value in notes.items())
        write_json(folder / "prepare.json", notes)

    build(args, fill)


def as_words(text: str | list[str], args: argparse.Namespace) -> list[str]:
    """The words of a sentence, which is a text or a list of words."""
    if isinstance(text, str):
        return words(text, args.tokenizer, args.lowercase, getattr(args, "language", "en"))
    return [word.lower() for word in text] if args.lowercase else text

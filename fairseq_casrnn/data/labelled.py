"""From labelled sentences to a finished, binarised data folder, or to nothing at all.

A prepared folder ``OUT`` holds ``OUT/data-bin`` with ``input0/``, ``label/`` and, for pairs,
``input1/`` as ``fairseq-preprocess --only-source`` writes them, ``input0/singletons.txt`` (words
that occur once in training), ``text.json`` (how raw text is split) and ``prepare.json`` (counts).
It is built in a temporary folder and renamed at the end.
"""

from __future__ import annotations

import argparse
import io
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from fairseq_casrnn.data.text import read_bytes, text_lines
from fairseq_casrnn.data.words import TOKENIZERS, words
from fairseq_casrnn.errors import UserError

GIVEN = object()  # the tokenizer of corpora whose words are separate already


class Example(NamedTuple):
    """A label and one or two sentences: text, or lists of words that are split already."""

    label: str
    sentences: tuple[str | list[str], ...]


@dataclass
class Labelled:
    """Splits of a corpus.

    Args:
        splits: examples of ``train``, ``valid``, ``test``, and further ones (``valid1``, …).
        notes: numbers worth keeping (examples dropped, …), printed and put in prepare.json.
        whole: the sentences of training where the examples overlap, being phrases of them.
    """

    splits: dict[str, list[Example]]
    notes: dict[str, object] = field(default_factory=dict)
    whole: list[str | list[str]] | None = None

    def check(self) -> None:
        """Raise UserError for an empty split, or a label that training does not have."""
        known = {example.label for example in self.splits["train"]}
        for name, examples in self.splits.items():
            if not examples:
                raise UserError(f"no sentence is left for {name}; check the input files")
            for number, example in enumerate(examples, start=1):
                if example.label not in known:
                    raise UserError(
                        f"{name}, sentence {number}: label {example.label} is not seen in training "
                        f"({', '.join(sorted(known))}); correct or remove it"
                    )


def add_arguments(
    parser: argparse.ArgumentParser,
    tokenizer: str | object | None = "space",
    lowercase: bool = True,
    raw: str = "penn",
) -> None:
    """Options shared by all corpora; a corpus without ``tokenizer`` chooses it after parsing.

    With :data:`GIVEN` there is no choice. ``raw`` is how text is to be split that is not, as the
    files of ``tokenizer`` space are.
    """
    parser.set_defaults(raw_tokenizer=raw, words_of=None)
    parser.add_argument("--out", required=True, type=Path, help="folder to fill")
    parser.add_argument("--force", action="store_true", help="prepare again, replacing the result")
    if tokenizer is GIVEN:
        parser.set_defaults(tokenizer="space")
    else:
        parser.add_argument(
            "--tokenizer",
            choices=TOKENIZERS,
            default=tokenizer,
            help=f"default: {tokenizer or 'as the corpus is written'}",
        )
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        default=lowercase,
        help="lower-case the text (default: %(default)s)",
    )
    parser.add_argument(
        "--min-count",
        type=int,
        default=1,
        help="rarer words of the training set become <unk> (default: %(default)s)",
    )
    parser.add_argument(
        "--vocabulary",
        choices=("train", "all"),
        default="train",
        help="words that get an embedding: those of the training set, or of all splits, which is "
        "of use with pretrained vectors (default: %(default)s)",
    )


def add_words_of(parser: argparse.ArgumentParser) -> None:
    """``--words-of``, for corpora that others are mixed into."""
    parser.add_argument(
        "--words-of",
        type=Path,
        metavar="DATA-BIN",
        help="give the words of another prepared corpus an embedding, too: of one for --mix",
    )


def prepare(make_corpus: Callable[[], Labelled], args: argparse.Namespace) -> None:
    """Read the corpus, binarise it and move it into place under ``args.out``.

    Raises:
        UserError: anything wrong with the data; nothing new is left under ``args.out`` then.
    """

    def fill(folder: Path) -> dict[str, object]:
        corpus = make_corpus()
        corpus.check()
        notes = {**corpus.notes, **write(corpus, folder, args)}
        # Files that want no more than these have their punctuation split; other text has not.
        split = args.tokenizer in ("space", "clitics")
        tokenizer = args.raw_tokenizer if split else args.tokenizer
        write_json(folder / "text.json", {"tokenizer": tokenizer, "lowercase": args.lowercase})
        return notes

    build(args, fill)


def write(corpus: Labelled, folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Binarise into ``folder``; returns what to report."""
    split = {
        name: [
            (example.label, [as_words(text, args) for text in example.sentences])
            for example in examples
        ]
        for name, examples in corpus.splits.items()
    }
    notes: dict[str, object] = symbols.escaped_note(
        text for examples in split.values() for _, texts in examples for text in texts
    )
    split = {
        name: [(label, [symbols.escape(text) for text in texts]) for label, texts in examples]
        for name, examples in split.items()
    }
    counted = split.values() if args.vocabulary == "all" else [split["train"]]
    vocabulary = Counter(
        word for examples in counted for _, texts in examples for text in texts for word in text
    )
    dictionary = make_dictionary(vocabulary, args.min_count)
    if args.words_of is not None:
        add_words(dictionary, args.words_of)
    labels = make_label_dictionary(label for label, _ in split["train"])
    parts = len(split["train"][0][1])
    for part in range(parts):
        sentences = {name: [texts[part] for _, texts in pairs] for name, pairs in split.items()}
        binarise(sentences, dictionary, folder / f"input{part}")
    if corpus.whole is None:
        whole = [text for _, texts in split["train"] for text in texts]
    else:
        whole = [symbols.escape(as_words(text, args)) for text in corpus.whole]
    write_singletons(whole, folder / "input0")
    binarise({n: [[label] for label, _ in pairs] for n, pairs in split.items()}, labels,
             folder / "label")  # fmt: skip
    what = "pairs" if parts > 1 else "sentences"
    notes |= {f"{name} {what}": len(pairs) for name, pairs in split.items()}
    seen = [label for label, _ in split["train"]]
    notes["classes"] = ", ".join(f"{name} {n}" for name, n in Counter(seen).most_common())
    return notes | {"dictionary": len(dictionary)}


def add_words(dictionary, folder: Path) -> None:
    """Add the words of another prepared folder, so that they get an embedding, too.

    Raises:
        UserError: it holds no dictionary, or a damaged one.
    """
    from fairseq.data import Dictionary

    from fairseq_casrnn.data.dictionaries import without_fillers
    from fairseq_casrnn.explain import explained

    path = folder / "input0" / "dict.txt"
    if not path.is_file():
        raise UserError(f"{path} does not exist; give --words-of the data-bin of a prepared corpus")
    register()  # fairseq reads dictionaries as this package does
    with explained():
        other = Dictionary.load(str(path))
    for word in without_fillers(other):
        dictionary.add_symbol(word, 0)


def as_words(text: str | list[str], args: argparse.Namespace) -> list[str]:
    """The words of a sentence, which may be split already."""
    if isinstance(text, str):
        return words(text, args.tokenizer, args.lowercase)
    return [word.lower() for word in text] if args.lowercase else text


# --- what the readers share --------------------------------------------------------------------


def decode_mixed(line: bytes) -> str:
    """A line of a text of no one encoding: UTF-8, else Windows-1252, else Latin-1."""
    for encoding in ("utf-8", "cp1252"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1")


def read_mixed(path: Path) -> list[str]:
    """Lines of a file, each in an encoding of its own.

    Raises:
        UserError: it is missing, has nothing but blank lines, is UTF-16 or UTF-32, or no text.
    """
    data = read_bytes(path)
    if b"\0" in data:
        number = data[: data.index(b"\0")].count(b"\n") + 1
        raise UserError(
            f"{path}, line {number} has a zero byte: UTF-16, or no text; save it as UTF-8"
        )
    lines = list(text_lines(io.BytesIO(data), path, decode_mixed))
    if not any(line.strip() for line in lines):
        raise UserError(f"{path} is empty; a corpus with at least one sentence is needed")
    return lines


def find(raw: Path, names: Sequence[str], where: str) -> Path:
    """The first of ``names`` that is a file in ``raw``.

    Raises:
        UserError: there is none; ``where`` says where to get it.
    """
    if not raw.is_dir():
        raise UserError(f"{raw} is not a folder; {where} and name its folder with --raw")
    for name in names:
        if (raw / name).is_file():
            return raw / name
    raise UserError(f"{raw} holds no {' nor '.join(names)}; {where}")


def hold_out(examples: list[Example], count: int, seed: int) -> tuple[list, list]:
    """``(rest, held out)``, chosen at random by ``seed``, both in the order they had.

    Raises:
        UserError: less than one or all would be held out.
    """
    if not 0 < count < len(examples):
        raise UserError(
            f"{count} of {len(examples)} sentences cannot be held out for validation; choose "
            "another --valid-size"
        )
    chosen = set(random.Random(seed).sample(range(len(examples)), count))
    rest = [example for i, example in enumerate(examples) if i not in chosen]
    return rest, [examples[i] for i in sorted(chosen)]


def add_hold_out(parser: argparse.ArgumentParser, size: int) -> None:
    """``--valid-size`` and ``--split-seed``."""
    parser.add_argument(
        "--valid-size",
        type=int,
        default=size,
        help="training examples held out for validation (default: %(default)s)",
    )
    parser.add_argument("--split-seed", type=int, default=1, help="seed of the choice (1)")

"""The columns of a corpus - sentences, labels, characters - and binarising them."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_casrnn import register
from fairseq_casrnn.data.dictionaries import without_fillers
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
    binarise(columns.labels, make_dictionary(Counter(columns.classes)), folder / "label")
    notes = {**columns.notes, **coverage, "dictionary": len(dictionary)}
    if columns.spelling is None:
        return notes
    written = columns.spelling
    counted = list(written) if args.vocabulary == "all" else ["train"]
    letters = Counter(
        letter for name in counted for word in chain.from_iterable(written[name]) for letter in word
    )
    separated = {name: [separate_characters(row) for row in rows] for name, rows in written.items()}
    binarise(separated, make_dictionary(letters), folder / "spelling")
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
        rows = (row for part in columns.inputs for name in names for row in part[name])
        return Counter(chain.from_iterable(rows))

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
    seen = set(chain.from_iterable(labels["train"]))
    for name, rows in labels.items():
        if missing := sorted(set(chain.from_iterable(rows)) - seen):
            names = printable(", ".join(missing[:20])) + (", …" if missing[20:] else "")
            print(
                f"warning: {name} has {names}, which training does not have, so no model can "
                "predict it; each counts as an error",
                file=sys.stderr,
            )


def separate_characters(words: Sequence[str]) -> list[str]:
    """The characters of the words, with </s> between words."""
    return [symbol for word in words for symbol in ("</s>", *word)][1:]


def add_words(dictionary, folder: Path) -> None:
    """Add the words of another prepared folder, so that they get embeddings.

    Raises:
        UserError: its dictionary is missing or damaged.
    """
    from fairseq.data import Dictionary

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


def make_dictionary(counts: Counter, min_count: int = 1):
    """A ``fairseq.data.Dictionary`` of words by descending count.

    Raises:
        UserError: no word occurs ``min_count`` times.
    """
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for word in sorted(counts):
        dictionary.add_symbol(word, counts[word])
    dictionary.finalize(threshold=min_count, padding_factor=1)
    if min_count > 1 and len(dictionary) == dictionary.nspecial:
        raise UserError(
            f"--min-count is {min_count}, but no word occurs that often; give a smaller one"
        )
    return dictionary


def binarise(splits: Mapping[str, Sequence[Sequence[str]]], dictionary, folder: Path) -> None:
    """Write ``SPLIT.bin``, ``SPLIT.idx`` and ``dict.txt``; each sentence ends with </s>."""
    import torch
    from fairseq.data import indexed_dataset

    folder.mkdir(parents=True)
    dictionary.save(str(folder / "dict.txt"))
    for name, sentences in splits.items():
        prefix = str(folder / name)
        builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=len(dictionary))
        for sentence in sentences:
            tokens = [dictionary.index(word) for word in sentence]
            builder.add_item(torch.IntTensor([*tokens, dictionary.eos()]))
        builder.finalize(f"{prefix}.idx")


def find_singletons(sentences: Iterable[Sequence[str]]) -> set[str]:
    """The words that occur once, counting equal sentences once."""
    counts = Counter(word for sentence in set(map(tuple, sentences)) for word in sentence)
    return {word for word, count in counts.items() if count == 1}

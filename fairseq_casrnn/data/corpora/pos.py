"""Parts of speech of Universal Dependencies: ``python -m fairseq_casrnn.data.corpora.pos``.

Reads the ``*-ud-train.conllu``, ``*-ud-dev.conllu``, ``*-ud-test.conllu`` of a treebank
(https://universaldependencies.org, format: …/format.html). English-EWT has 12,544 / 2,001 / 2,077
sentences.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from fairseq_casrnn.data.columns import without_spaces
from fairseq_casrnn.data.labelled import TaggedCorpus, TaggedSentence
from fairseq_casrnn.data.readers import GIVEN, add_zero_digits, command, malformed
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError

FILES = {"train": "train", "valid": "dev", "test": "test"}
COLUMNS = {"upos": 3, "xpos": 4}
WHERE = "get a treebank from https://universaldependencies.org"
WORD = re.compile(r"[0-9]+")
OTHER = re.compile(r"[0-9]+[-.][0-9]+")  # ranges of multiword tokens (1-2), empty nodes (1.1)


def read_sentences(path: Path, column: str) -> list[TaggedSentence]:
    """The syntactic words of a CoNLL-U file and their tags.

    Raises:
        UserError: a line does not have ten columns, a number and a tag.
    """
    sentences: list[TaggedSentence] = []
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if words:
                sentences.append(TaggedSentence(words, tags))
                words, tags = [], []
            continue
        cells = line.split("\t")
        if len(cells) != 10 or not (WORD.fullmatch(cells[0]) or OTHER.fullmatch(cells[0])):
            what = "is not a CoNLL-U word with ten columns, the first of them its number"
            raise malformed(path, number, what)
        if OTHER.fullmatch(cells[0]):
            continue
        tag = cells[COLUMNS[column]]
        if tag == "_" or not tag.strip():
            raise UserError(f"{path}, line {number} has no {column.upper()}; choose another --tags")
        # Some treebanks have spaces in numbers ("10 000"); words of a dictionary cannot.
        words.append(without_spaces(cells[1]))
        tags.append("_".join(tag.split()))
    return sentences


def find(raw: Path, split: str) -> Path:
    """The file of a split. Raises UserError unless there is exactly one."""
    if not raw.is_dir():
        raise UserError(f"{raw} is not a folder; {WHERE} and name its folder with --raw")
    found = sorted(raw.glob(f"*{split}.conllu"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(
            f"{raw} must hold one file *-ud-{split}.conllu, but has {names}; {WHERE}, and use one "
            "folder for each treebank"
        )
    return found[0]


def read_corpus(raw: Path, column: str) -> TaggedCorpus:
    """The treebank's split."""
    return TaggedCorpus(
        {split: read_sentences(find(raw, name), column) for split, name in FILES.items()}
    )


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument(
        "--tags",
        choices=COLUMNS,
        default="upos",
        help=(
            "upos: the 17 universal tags; xpos: the language-specific tags (default: %(default)s)"
        ),
    )
    add_zero_digits(parser)


main = command(
    "Binarise a treebank with parts of speech.",
    lambda args: read_corpus(args.raw, args.tags),
    WHERE,
    options,
    tokenizer=GIVEN,
)


if __name__ == "__main__":
    sys.exit(main())

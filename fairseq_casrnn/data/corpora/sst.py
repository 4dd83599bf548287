"""Stanford Sentiment Treebank: ``python -m fairseq_casrnn.data.corpora.sst``.

Reads the bracketed trees ``train.txt``, ``dev.txt``, ``test.txt`` of trainDevTestTrees_PTB.zip
(https://nlp.stanford.edu/sentiment/). Every phrase of a training tree is a training example, as in
the papers. Validation and test only have whole sentences.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.data.labelled import ClassificationCorpus, Example
from fairseq_casrnn.data.readers import GIVEN, command, find, malformed
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.data.words import ASCII_SPACE, unescaped
from fairseq_casrnn.errors import quoted

FILES = {"train": ("train.txt",), "valid": ("dev.txt", "valid.txt"), "test": ("test.txt",)}
WHERE = "get trainDevTestTrees_PTB.zip from https://nlp.stanford.edu/sentiment/"
FIVE = ("very_negative", "negative", "neutral", "positive", "very_positive")
TWO = ("negative", "negative", None, "positive", "positive")
Phrase = tuple[int, list[str]]


@dataclass
class OpenNode:
    """A node whose closing bracket has not been read yet."""

    rating: int
    start: int  # index of its first word
    words: int = 0  # number of children that are words
    nodes: int = 0  # number of children that are nodes


def phrases(line: str) -> list[Phrase]:
    """(rating 0-4, words) of every node of a tree, the whole sentence first.

    Raises:
        ValueError: the line is not a tree.
    """
    nodes: list[OpenNode] = []
    found: list[Phrase] = []
    words: list[str] = []
    pieces = iter(ASCII_SPACE.split(line.replace("(", " ( ").replace(")", " ) ").strip()))
    for piece in pieces:
        if found and not nodes:
            raise ValueError("text after the tree")
        if piece == "(":
            if nodes:
                nodes[-1].nodes += 1
            nodes.append(OpenNode(rating(next(pieces, "")), len(words)))
        elif piece == ")":
            if not nodes or nodes[-1].start == len(words):
                raise ValueError("an extra bracket, or a node without words")
            node = nodes.pop()
            if node.words > 1 or (node.words and node.nodes):
                raise ValueError("a word without its own node")
            found.append((node.rating, words[node.start :]))
        elif not nodes:
            raise ValueError("text before the tree")
        else:
            nodes[-1].words += 1
            words.append(unescaped(piece))
    if nodes or not found:
        raise ValueError("a bracket is missing")
    return found[::-1]


def rating(text: str) -> int:
    """A node's rating. Raises ValueError unless it is 0, 1, 2, 3 or 4."""
    if text not in tuple("01234"):
        raise ValueError(f"{quoted(text)} is not a rating from 0 to 4")
    return int(text)


def read_trees(path: Path) -> Iterator[list[Phrase]]:
    """The nodes of each tree in a file. Raises UserError for a line that is not a tree."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            yield phrases(line)
        except ValueError as error:
            raise malformed(path, number, f"is not a bracketed tree ({error})") from None


def read_corpus(raw: Path, classes: int, sentences_only: bool = False) -> ClassificationCorpus:
    """The splits with five classes, or with two classes, without the neutral examples."""
    names = FIVE if classes == 5 else TWO
    splits: dict[str, list] = {}
    whole: list[str | list[str]] = []
    for split, files in FILES.items():
        every = split == "train" and not sentences_only
        trees = list(read_trees(find(raw, files, WHERE)))
        if every:
            whole = [nodes[0][1] for nodes in trees]
        splits[split] = [
            Example(name, (text,))
            for nodes in trees
            for value, text in (nodes if every else nodes[:1])
            if (name := names[value]) is not None
        ]
    return ClassificationCorpus(splits, whole=whole or None)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument(
        "--classes", type=int, choices=(2, 5), default=2, help="default: %(default)s"
    )
    parser.add_argument(
        "--sentences-only", action="store_true", help="train on whole sentences only"
    )


main = command(
    "Binarise the Stanford Sentiment Treebank, with the phrases of the training trees.",
    lambda args: read_corpus(args.raw, args.classes, args.sentences_only),
    WHERE,
    options,
    tokenizer=GIVEN,
)


if __name__ == "__main__":
    sys.exit(main())

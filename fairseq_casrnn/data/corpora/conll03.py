"""CoNLL-2003 names: ``python -m fairseq_casrnn.data.corpora.conll03``.

Reads ``eng.train``, ``eng.testa``, ``eng.testb`` of https://www.clips.uantwerpen.be/conll2003/ner/
(made from the Reuters corpus), also named ``train.txt``, ``valid.txt``, ``test.txt``. Each line is
"word part-of-speech chunk name", with tags in IOB1 or IOB2 and a blank line after each sentence.
There are 14,041 / 3,250 / 3,453 sentences with 203,621 / 51,362 / 46,435 words.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq_casrnn.data.labelled import TaggedCorpus, TaggedSentence
from fairseq_casrnn.data.readers import GIVEN, add_zero_digits, command, find, read_blocks
from fairseq_casrnn.data.spans import read_bioes
from fairseq_casrnn.data.text import DOCUMENT

FILES = {
    "train": ("eng.train", "train.txt"),
    "valid": ("eng.testa", "valid.txt"),
    "test": ("eng.testb", "test.txt"),
}
LAYOUT = ("word", "part of speech", "chunk", "name")
COLUMNS = {"pos": 1, "chunk": 2, "ner": 3}
WHERE = "get CoNLL-2003 as https://www.clips.uantwerpen.be/conll2003/ner/ describes"


def read_sentences(path: Path, column: str) -> tuple[list[TaggedSentence], int]:
    """Sentences with the tags of a column, spans in BIOES, and the number of document lines.

    Raises:
        UserError: a line does not have four columns, or its tag is not in an IOB scheme.
    """
    sentences, documents = [], 0
    for first, rows in read_blocks(path, LAYOUT):
        while rows and rows[0][0] == DOCUMENT:  # in some copies no blank line follows
            documents, first, rows = documents + 1, first + 1, rows[1:]
        if not rows:
            continue
        tags = [row[COLUMNS[column]] for row in rows]
        if column != "pos":
            tags = read_bioes(tags, path, first)
        sentences.append(TaggedSentence([row[0] for row in rows], tags))
    return sentences, documents


def read_corpus(raw: Path, column: str) -> TaggedCorpus:
    """The official split."""
    splits, documents = {}, 0
    for split, names in FILES.items():
        splits[split], count = read_sentences(find(raw, names, WHERE), column)
        documents += count
    return TaggedCorpus(splits, {"document lines left out": documents})


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument("--column", choices=COLUMNS, default="ner", help="default: %(default)s")
    add_zero_digits(parser)


main = command(
    "Binarise CoNLL-2003.",
    lambda args: read_corpus(args.raw, args.column),
    WHERE,
    options,
    tokenizer=GIVEN,
)


if __name__ == "__main__":
    sys.exit(main())

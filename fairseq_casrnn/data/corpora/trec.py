"""TREC question types: ``python -m fairseq_casrnn.data.corpora.trec``.

Reads ``train_5500.label`` and ``TREC_10.label`` (https://cogcomp.seas.upenn.edu/Data/QA/QC/):
``COARSE:fine question`` lines, 5,452 for training and 500 for test. Six coarse or 50 fine classes.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from fairseq_casrnn.data.labelled import ClassificationCorpus, Example
from fairseq_casrnn.data.readers import add_hold_out, command, find, hold_out, malformed, read_mixed

WHERE = "get the files from https://cogcomp.seas.upenn.edu/Data/QA/QC/"
LINE = re.compile(r"([A-Z]+):(\w+) (.*\S)\s*")


def read_questions(path: Path, fine: bool = False) -> list[Example]:
    """The questions in a file. Raises UserError for a line without a type."""
    examples = []
    for number, line in enumerate(read_mixed(path), start=1):
        found = LINE.fullmatch(line)
        if not found:
            raise malformed(path, number, "is not TYPE:subtype and a question")
        label = f"{found[1]}:{found[2]}" if fine else found[1]
        examples.append(Example(label, (found[3],)))
    return examples


def read_corpus(raw: Path, fine: bool, valid_size: int, seed: int) -> ClassificationCorpus:
    """The splits; validation is held out of the training questions."""
    train = read_questions(find(raw, ("train_5500.label",), WHERE), fine)
    test = read_questions(find(raw, ("TREC_10.label",), WHERE), fine)
    train, valid = hold_out(train, valid_size, seed)
    notes: dict[str, object] = {"split seed": seed}
    if fine:  # all examples of a rare class may have been held out
        known = {example.label for example in train}
        kept = [example for example in valid if example.label in known]
        notes["validation questions of a class not in training, dropped"] = len(valid) - len(kept)
        valid = kept
    return ClassificationCorpus({"train": train, "valid": valid, "test": test}, notes)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument(
        "--fine", action="store_true", help="use the fine classes instead of the six coarse ones"
    )
    add_hold_out(parser, 500)


main = command(
    "Binarise TREC questions.",
    lambda args: read_corpus(args.raw, args.fine, args.valid_size, args.split_seed),
    WHERE,
    options,
)


if __name__ == "__main__":
    sys.exit(main())

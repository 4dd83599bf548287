"""Movie reviews, one sentence each: ``python -m fairseq_casrnn.data.corpora.mr``.

Reads ``rt-polarity.neg`` and ``rt-polarity.pos`` of the sentence polarity dataset v1.0
(https://www.cs.cornell.edu/people/pabo/movie-review-data/): 5,331 sentences each, without a split.
They are shuffled with ``--split-seed`` and divided into ten folds with equal shares of both
classes. Fold K is the test set, the next one is for validation, the other eight are for training.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from fairseq_casrnn.data.labelled import ClassificationCorpus, Example
from fairseq_casrnn.data.readers import add_split_seed, command, find, read_mixed
from fairseq_casrnn.errors import UserError

WHERE = (
    "get the sentence polarity dataset from "
    "https://www.cs.cornell.edu/people/pabo/movie-review-data/"
)
FILES = {"negative": "rt-polarity.neg", "positive": "rt-polarity.pos"}
FOLDS = 10


def read_corpus(raw: Path, fold: int, seed: int) -> ClassificationCorpus:
    """The splits of a fold. Raises UserError for a missing file or an invalid fold."""
    if not 0 <= fold < FOLDS:
        raise UserError(f"--fold is {fold}; it must lie in 0…{FOLDS - 1}")
    folds: list[list[Example]] = [[] for _ in range(FOLDS)]
    dealt = 0  # counts on through both files, so that the sizes of folds differ by at most one
    for label, name in FILES.items():
        lines = [line for line in read_mixed(find(raw, (name,), WHERE)) if line.strip()]
        random.Random(seed).shuffle(lines)
        for line in lines:
            folds[dealt % FOLDS].append(Example(label, (line,)))
            dealt += 1
    test, valid = folds[fold], folds[(fold + 1) % FOLDS]
    train = [one for k in range(FOLDS) if (k - fold) % FOLDS > 1 for one in folds[k]]
    notes: dict[str, object] = {"fold": fold, "split seed": seed}
    return ClassificationCorpus({"train": train, "valid": valid, "test": test}, notes)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument("--fold", type=int, default=0, help="test fold, 0 to 9 (default: 0)")
    add_split_seed(parser, "the folds")


main = command(
    "Split movie reviews 80/10/10 or into folds, and binarise them.",
    lambda args: read_corpus(args.raw, args.fold, args.split_seed),
    WHERE,
    options,
    tokenizer="clitics",
)


if __name__ == "__main__":
    sys.exit(main())

"""RTE as in GLUE: ``python -m fairseq_casrnn.data.corpora.rte``.

Reads ``train.tsv`` and ``dev.tsv`` (https://gluebenchmark.com/tasks): 2,490 and 277 pairs. The
labels of GLUE's test set are not public, so dev is used for testing, and a part of the training set
for validation.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairseq_casrnn.data.labelled import ClassificationCorpus
from fairseq_casrnn.data.readers import add_hold_out, command, find, hold_out, read_pairs

LABELS = {name: name for name in ("entailment", "not_entailment")}
WHERE = "get RTE from https://gluebenchmark.com/tasks"


def read_corpus(raw: Path, valid_size: int, seed: int) -> ClassificationCorpus:
    """The splits. The columns are index, sentence1, sentence2, label."""
    train, test = (
        read_pairs(find(raw, (name,), WHERE), (3, 1, 2), LABELS, width=4)
        for name in ("train.tsv", "dev.tsv")
    )
    train, valid = hold_out(train, valid_size, seed)
    notes = {"split seed": seed, "test set": "the development set of GLUE"}
    return ClassificationCorpus({"train": train, "valid": valid, "test": test}, notes)


main = command(
    "Binarise RTE.",
    lambda args: read_corpus(args.raw, args.valid_size, args.split_seed),
    WHERE,
    lambda parser: add_hold_out(parser, 250),
    tokenizer="moses",
)


if __name__ == "__main__":
    sys.exit(main())

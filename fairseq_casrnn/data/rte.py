"""RTE as in GLUE: ``python -m fairseq_casrnn.data.rte``.

Reads ``train.tsv`` and ``dev.tsv`` (https://gluebenchmark.com/tasks): 2,490 and 277 pairs. The
labels of GLUE's test set are not public, so dev is the test set and validation is held out of
training.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairseq_casrnn.data.command import Parser, run_main
from fairseq_casrnn.data.labelled import (
    Labelled,
    add_arguments,
    add_hold_out,
    find,
    hold_out,
    prepare,
)
from fairseq_casrnn.data.tables import read_pairs

LABELS = {name: name for name in ("entailment", "not_entailment")}
WHERE = "get RTE from https://gluebenchmark.com/tasks"


def read_corpus(raw: Path, valid_size: int, seed: int) -> Labelled:
    """Training, less validation, and dev as test; columns index, sentence1, sentence2, label."""
    train, test = (
        read_pairs(find(raw, (name,), WHERE), (3, 1, 2), LABELS, width=4)
        for name in ("train.tsv", "dev.tsv")
    )
    train, valid = hold_out(train, valid_size, seed)
    notes = {"split seed": seed, "test set": "the development set of GLUE"}
    return Labelled({"train": train, "valid": valid, "test": test}, notes)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(prog="python -m fairseq_casrnn.data.rte", description="RTE, binarised.")
    parser.add_argument("--raw", required=True, type=Path, help=f"folder of the files; {WHERE}")
    add_hold_out(parser, 250)
    add_arguments(parser, tokenizer="moses")
    args = parser.parse_args(argv)
    options = (args.raw, args.valid_size, args.split_seed)
    return run_main(lambda: prepare(lambda: read_corpus(*options), args))


if __name__ == "__main__":
    sys.exit(main())

"""Paraphrases, Quora question pairs or MRPC: ``python -m fairseq_casrnn.data.paraphrase``.

Quora: ``train.tsv``, ``dev.tsv``, ``test.tsv`` of Wang et al.'s split, lines "label, question,
question, id", tokenised (Quora_question_pair_partition.zip, https://github.com/zhiguowang/BiMPM).
MRPC: ``msr_paraphrase_train.txt``, ``msr_paraphrase_test.txt``
(https://www.microsoft.com/en-us/download/details.aspx?id=52398); validation is part of
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

LABELS = {"0": "different", "1": "same"}
WHERE = {
    "quora": "get Quora_question_pair_partition.zip from https://github.com/zhiguowang/BiMPM, "
    "or give --corpus mrpc for MRPC's files",
    "mrpc": "get MRPC from https://www.microsoft.com/en-us/download/details.aspx?id=52398, "
    "or give --corpus quora for Quora's files",
}


def read_quora(raw: Path) -> Labelled:
    """The official split."""
    files = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}
    return Labelled(
        {
            split: read_pairs(find(raw, (name,), WHERE["quora"]), (0, 1, 2), LABELS, header=False)
            for split, name in files.items()
        }
    )


def read_mrpc(raw: Path, valid_size: int, seed: int) -> Labelled:
    """Training, less validation, and test."""
    splits = {}
    for split in ("train", "test"):
        path = find(raw, (f"msr_paraphrase_{split}.txt",), WHERE["mrpc"])
        splits[split] = read_pairs(path, (0, 3, 4), LABELS, width=5)
    train, valid = hold_out(splits["train"], valid_size, seed)
    return Labelled({"train": train, "valid": valid, "test": splits["test"]}, {"split seed": seed})


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.data.paraphrase", description="Quora or MRPC, binarised."
    )
    parser.add_argument("--raw", required=True, type=Path, help="folder of the files")
    parser.add_argument("--corpus", choices=tuple(WHERE), default="quora", help="default: quora")
    add_hold_out(parser, 400)
    add_arguments(parser, tokenizer=None)
    args = parser.parse_args(argv)
    if args.tokenizer is None:  # Quora's files are tokenised
        args.tokenizer = "space" if args.corpus == "quora" else "moses"

    def read():
        if args.corpus == "quora":
            return read_quora(args.raw)
        return read_mrpc(args.raw, args.valid_size, args.split_seed)

    return run_main(lambda: prepare(read, args))


if __name__ == "__main__":
    sys.exit(main())

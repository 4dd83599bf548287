"""Paraphrases, Quora question pairs or MRPC: ``python -m fairseq_casrnn.data.corpora.paraphrase``.

Quora: ``train.tsv``, ``dev.tsv``, ``test.tsv`` of Wang et al.'s split with the columns label,
question, question, id, tokenised (Quora_question_pair_partition.zip,
https://github.com/zhiguowang/BiMPM). MRPC: ``msr_paraphrase_train.txt``,
``msr_paraphrase_test.txt`` (https://www.microsoft.com/en-us/download/details.aspx?id=52398); a part
of the training set is for validation.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq_casrnn.data.labelled import ClassificationCorpus
from fairseq_casrnn.data.readers import add_hold_out, command, find, hold_out, read_pairs

LABELS = {"0": "different", "1": "same"}
WHERE = {
    "quora": "get Quora_question_pair_partition.zip from https://github.com/zhiguowang/BiMPM, "
    "or give --corpus mrpc for MRPC's files",
    "mrpc": "get MRPC from https://www.microsoft.com/en-us/download/details.aspx?id=52398, "
    "or give --corpus quora for Quora's files",
}


def read_quora(raw: Path) -> ClassificationCorpus:
    """The official split."""
    files = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}
    return ClassificationCorpus(
        {
            split: read_pairs(find(raw, (name,), WHERE["quora"]), (0, 1, 2), LABELS, header=False)
            for split, name in files.items()
        }
    )


def read_mrpc(raw: Path, valid_size: int, seed: int) -> ClassificationCorpus:
    """The official split, with a part of the training set held out for validation."""
    splits = {}
    for split in ("train", "test"):
        path = find(raw, (f"msr_paraphrase_{split}.txt",), WHERE["mrpc"])
        splits[split] = read_pairs(path, (0, 3, 4), LABELS, width=5)
    train, valid = hold_out(splits["train"], valid_size, seed)
    return ClassificationCorpus(
        {"train": train, "valid": valid, "test": splits["test"]}, {"split seed": seed}
    )


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument("--corpus", choices=tuple(WHERE), default="quora", help="default: quora")
    add_hold_out(parser, 400)


def read(args: argparse.Namespace) -> ClassificationCorpus:
    """The corpus that the options choose."""
    if args.corpus == "quora":
        return read_quora(args.raw)
    return read_mrpc(args.raw, args.valid_size, args.split_seed)


main = command(
    "Binarise Quora or MRPC.",
    read,
    options=options,
    tokenizer=lambda args: "space" if args.corpus == "quora" else "moses",  # Quora is tokenised
)


if __name__ == "__main__":
    sys.exit(main())

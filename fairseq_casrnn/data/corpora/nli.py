"""Natural language inference, SNLI and MultiNLI: ``python -m fairseq_casrnn.data.corpora.nli``.

Reads the official files (``snli_1.0_train.jsonl`` or ``.txt``, https://nlp.stanford.edu/projects/snli/;
``multinli_1.0_train.jsonl`` or ``.txt``, https://cims.nyu.edu/~sbowman/multinli/) and takes the
words from their binary parses; or reads SNLI as plain lines (``s1.train``, ``s2.train``,
``labels.train``, …). Pairs without a gold label ("-") are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from fairseq_casrnn.data.folder import SPLITS
from fairseq_casrnn.data.labelled import ClassificationCorpus, Example
from fairseq_casrnn.data.readers import (
    GIVEN,
    add_hold_out,
    command,
    find,
    hold_out,
    malformed,
)
from fairseq_casrnn.data.text import check_parallel, read_lines
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.data.words import leaves, words
from fairseq_casrnn.errors import UserError, counted, quoted

LABELS = ("entailment", "neutral", "contradiction")
FILES = {
    "snli": {"train": "snli_1.0_train", "valid": "snli_1.0_dev", "test": "snli_1.0_test"},
    "multinli": {
        "train": "multinli_1.0_train",
        "valid": "multinli_1.0_dev_matched",
        "test": "multinli_1.0_dev_mismatched",
    },
}
PLAIN = {"train": "train", "valid": "dev", "test": "test"}
WHERE = {
    "snli": "get snli_1.0.zip from https://nlp.stanford.edu/projects/snli/, or give --corpus "
    "multinli for MultiNLI's files",
    "multinli": "get multinli_1.0.zip from https://cims.nyu.edu/~sbowman/multinli/, or give "
    "--corpus snli for SNLI's files",
}
COLUMNS = ("gold_label", "sentence1_binary_parse", "sentence2_binary_parse")


def jsonl_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """(label, words, words) of each line of a .jsonl file.

    Raises:
        UserError: a line lacks one of them.
    """
    for number, line in enumerate(read_lines(path), start=1):
        try:
            entry = parse_json(line)
        except ValueError as error:
            raise malformed(path, number, f"is not JSON ({error})") from None
        for name in COLUMNS:
            if not isinstance(entry, dict) or not isinstance(entry.get(name), str):
                raise malformed(path, number, f"has no text {name}")
        label, *parses = (entry[name] for name in COLUMNS)
        yield label, *map(leaves, parses)


def txt_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """(label, words, words) of each line of a tab-separated .txt file with a header."""
    header, *lines = read_lines(path)
    names = header.split("\t")
    for name in COLUMNS:
        if name not in names:
            raise malformed(path, 1, f"names no column {name}")
    chosen = [names.index(name) for name in COLUMNS]
    for number, line in enumerate(lines, start=2):
        cells = line.split("\t")
        if len(cells) <= max(chosen):
            found = counted(len(cells), "column")
            raise malformed(path, number, f"has {found} instead of {len(names)}, as in line 1")
        label, first, second = (cells[i] for i in chosen)
        yield label, leaves(first), leaves(second)


def plain_rows(raw: Path, split: str) -> Iterator[tuple[str, str, str]]:
    """(label, words, words) of ``labels.SPLIT``, ``s1.SPLIT``, ``s2.SPLIT``."""
    paths = [raw / f"{part}.{split}" for part in ("labels", "s1", "s2")]
    columns = [read_lines(path) for path in paths]
    for column, path in zip(columns[1:], paths[1:], strict=True):
        check_parallel(columns[0], column, paths[0], path, "belong to")
    yield from zip(*columns, strict=True)


def read_split(raw: Path, corpus: str, split: str) -> tuple[list[Example], int]:
    """The pairs of a split, and how many were left out because they have no gold label.

    Raises:
        UserError: there is no file in any of the formats, or a line is malformed.
    """
    official = [f"{FILES[corpus][split]}{ending}" for ending in (".jsonl", ".txt")]
    plain = corpus == "snli" and (raw / f"s1.{PLAIN[split]}").is_file()
    if plain and not any((raw / name).is_file() for name in official):
        path = raw / f"labels.{PLAIN[split]}"
        rows = plain_rows(raw, PLAIN[split])
    else:
        path = find(raw, official, WHERE[corpus])
        rows = (jsonl_rows if path.suffix == ".jsonl" else txt_rows)(path)
    examples, dropped = [], 0
    for number, (label, *texts) in enumerate(rows, start=2 if path.suffix == ".txt" else 1):
        if label == "-":
            dropped += 1
            continue
        if label not in LABELS:
            raise UserError(
                f"{path}, line {number}: {quoted(label)} is not one of {', '.join(LABELS)} or -; "
                "correct it"
            )
        examples.append(Example(label, tuple(words(text) for text in texts)))
    return examples, dropped


def read_corpus(
    raw: Path, corpus: str, train_on_dev: bool, valid_size: int, seed: int
) -> ClassificationCorpus:
    """The splits; with ``train_on_dev`` the dev set is divided into training and validation."""
    splits: dict[str, list[Example]] = {}
    notes: dict[str, object] = {}
    for split in ("valid", "test") if train_on_dev else SPLITS:
        splits[split], notes[f"{split} pairs without a gold label, dropped"] = read_split(
            raw, corpus, split
        )
    if train_on_dev:
        splits["train"], splits["valid"] = hold_out(splits["valid"], valid_size, seed)
        notes["reduced data"] = "trained on a part of the development set"
    return ClassificationCorpus({name: splits[name] for name in SPLITS}, notes)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument("--corpus", choices=tuple(FILES), default="snli", help="default: snli")
    parser.add_argument(
        "--train-on-dev",
        action="store_true",
        help="train on the dev set, without the --valid-size pairs held out for validation",
    )
    add_hold_out(parser, 1000)
    parser.add_argument(
        "--words-of",
        type=Path,
        metavar="DATA-BIN",
        help="another prepared corpus whose words also get an embedding, such as one for --mix",
    )


main = command(
    "Binarise SNLI or MultiNLI.",
    lambda args: read_corpus(
        args.raw, args.corpus, args.train_on_dev, args.valid_size, args.split_seed
    ),
    options=options,
    tokenizer=GIVEN,
)


if __name__ == "__main__":
    sys.exit(main())

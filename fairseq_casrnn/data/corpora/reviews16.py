"""The 16 review sets of Liu et al. (2017): ``python -m fairseq_casrnn.data.corpora.reviews16``.

Reads ``SET.task.train`` and ``SET.task.test`` (fdu-mtl, http://nlp.fudan.edu.cn/data/). Each line
is 0 or 1, a tab and a review. 200 reviews of each training set are held out for validation.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator
from pathlib import Path

from fairseq_casrnn.data.labelled import ClassificationCorpus, Example
from fairseq_casrnn.data.readers import add_hold_out, command, find, hold_out, malformed, read_mixed

LABELS = {"0": "negative", "1": "positive"}
WHERE = "get fdu-mtl-dataset from http://nlp.fudan.edu.cn/data/"
SETS = (
    *("books", "electronics", "dvd", "kitchen_housewares", "apparel", "camera_photo"),
    *("health_personal_care", "music", "toys_games", "video", "baby", "magazines", "software"),
    *("sports_outdoors", "imdb", "MR"),
)


def read_reviews(path: Path) -> list[Example]:
    """The reviews in a file. Raises UserError for a line without a label."""
    examples = []
    for number, line in enumerate(read_mixed(path), start=1):
        label, tab, text = line.partition("\t")
        if not tab or label.strip() not in LABELS:
            raise malformed(path, number, "is not 0 or 1, a tab and a review")
        examples.append(Example(LABELS[label.strip()], (text,)))
    return examples


def read_corpus(raw: Path, name: str, valid_size: int, seed: int) -> ClassificationCorpus:
    """The splits of one set."""
    train, test = (
        read_reviews(find(raw, (f"{name}.task.{split}",), WHERE)) for split in ("train", "test")
    )
    train, valid = hold_out(train, valid_size, seed)
    return ClassificationCorpus(
        {"train": train, "valid": valid, "test": test}, {"split seed": seed}
    )


def each_set(args: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The options for each chosen set; each has its own output folder."""
    for name in args.set:
        one = copy.copy(args)
        one.out = args.out / name
        print(f"set {name}", flush=True)
        yield one


def options(parser: argparse.ArgumentParser) -> None:
    """Options of this corpus."""
    parser.add_argument(
        "--set",
        nargs="+",
        choices=SETS,
        default=SETS,
        metavar="SET",
        help=f"some of {', '.join(SETS)} (default: all)",
    )
    add_hold_out(parser, 200)


main = command(
    "Binarise some or all of the 16 review sets.",
    lambda args: read_corpus(args.raw, args.out.name, args.valid_size, args.split_seed),
    WHERE,
    options,
    # Only MR is not tokenised: it has "it's", not "it 's".
    tokenizer=lambda args: "clitics" if args.out.name == "MR" else "space",
    each=each_set,
)


if __name__ == "__main__":
    sys.exit(main())

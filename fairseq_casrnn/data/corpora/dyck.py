"""Dyck languages of bounded depth: ``casrnn data dyck``.

The strings are drawn from :class:`.dyck_source.Source`.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
from collections.abc import Iterator
from pathlib import Path

from fairseq_casrnn.data.corpora.dyck_source import Source
from fairseq_casrnn.data.folder import SPLITS, add_output_arguments, build
from fairseq_casrnn.data.language_model import binarise
from fairseq_casrnn.data.text import write_lines
from fairseq_casrnn.data.values import natural
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.files import write_json

MOST_REDRAWS = 20  # per sample; more mean that the range of lengths has too few strings


def draw(
    source: Source, count: int, seed: str, taken: set[bytes], unique: bool = False
) -> Iterator[list[str]]:
    """Draw ``count`` strings that are not in ``taken``.

    Args:
        source: the distribution of the strings.
        count: number of strings.
        seed: seed of the random numbers.
        taken: digests of excluded strings; the new strings are added at the end.
        unique: draw no string twice.

    Raises:
        UserError: nearly all strings are excluded.
    """
    rng, own, redraws = random.Random(seed), set(), 0
    for _ in range(count):
        while True:
            tokens = source.sample(rng)
            digest = hashlib.blake2b(" ".join(tokens).encode(), digest_size=12).digest()
            if digest not in taken and not (unique and digest in own):
                break
            redraws += 1
            if redraws > MOST_REDRAWS * count:
                raise UserError(
                    f"too few different strings have lengths {source.low}:{source.high}; give "
                    "longer ones, or fewer samples"
                )
        own.add(digest)
        yield tokens
    taken |= own
    if redraws:
        print(f"drawn again because they occurred before: {redraws}")


def length_range(text: str) -> tuple[int, int]:
    """``LOW:HIGH`` as two numbers, for argparse."""
    low, _, high = text.partition(":")
    first, last = natural(low), natural(high)
    if first is None or last is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not LOW:HIGH")
    return first, last


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn data dyck``."""
    parser.add_argument("--k", type=int, default=2, help="number of bracket types (default: 2)")
    parser.add_argument("--m", type=int, default=8, help="maximum depth (default: 8)")
    parser.add_argument(
        "--lengths", type=length_range, default=(50, 180), metavar="LOW:HIGH",
        help="lengths in train, valid and test, including the end (default: 50:180)",
    )  # fmt: skip
    parser.add_argument(
        "--long-lengths", type=length_range, metavar="LOW:HIGH",
        help="lengths in test1, a second test set (default: HIGH+1 to three times HIGH)",
    )  # fmt: skip
    for split, count in (("train", 10000), ("valid", 4000), ("test", 10000)):
        text = f"number of strings in {split} (default: {count})"
        parser.add_argument(f"--{split}", type=int, default=count, help=text)
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random numbers (default: 1)"
    )
    parser.add_argument(
        "--unique", action="store_true", help="draw no string twice, also within a split"
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Write and binarise the splits. Raises UserError."""
    check_at_least(1, **{split: getattr(args, split) for split in SPLITS})

    def fill(stage: Path) -> None:
        low, high = args.lengths
        if args.long_lengths and args.long_lengths[0] <= high:
            raise UserError(
                f"--long-lengths begins at {args.long_lengths[0]}; it must be above {high}, the "
                "greatest of --lengths"
            )
        source = Source(args.k, args.m, low, high)
        longer = Source(args.k, args.m, *(args.long_lengths or (high + 1, 3 * high)))
        sources = {**dict.fromkeys(SPLITS, source), "test1": longer}
        taken: set[bytes] = set()
        notes = {"k": args.k, "m": args.m, "seed": args.seed, "splits": {}}
        for split, own in sources.items():
            count = getattr(args, split.rstrip("1"))
            notes["splits"][split] = write_split(stage, split, own, count, args, taken)
        write_json(stage / "text" / "dyck.json", notes)
        binarise(stage / "text", stage / "data-bin", ("train", "valid", "test,test1"))

    build(args, fill)


def write_split(stage: Path, split: str, source: Source, count: int, args, taken) -> dict:
    """Draw and write one split; return its entry in ``dyck.json``."""
    total = tokens = 0

    drawn: set[str] = set()

    def lines():
        nonlocal total, tokens
        for sample in draw(source, count, f"{args.seed} {split}", taken, args.unique):
            total += source.log_prob(sample)
            tokens += len(sample) + 1
            drawn.update(sample)
            yield " ".join(sample)

    write_lines(stage / "text" / f"{split}.txt", lines())
    if split == "train" and len(drawn) < 2 * args.k:
        raise UserError(
            f"only {len(drawn) // 2} of {args.k} bracket types occur in train, and the others "
            "would be unknown; give a larger --train or a smaller --k"
        )
    own = math.exp(-total / tokens)
    print(
        f"{split}: {count} strings of length {source.low} to {source.high}, {tokens} tokens, "
        f"perplexity of the source {source.floor():.4f}, on these strings {own:.4f}"
    )
    return {
        "lengths": [source.low, source.high],
        "samples": count,
        "tokens": tokens,
        "floor": source.floor(),
        "floor_of_samples": own,
    }

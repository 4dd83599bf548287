"""Dyck languages of bounded depth: ``casrnn data dyck``.

The source (Hewitt et al. 2020) emits, at depth 0, the end with probability 1/2 or one of k opening
brackets with 1/(2k) each; at depth m, the closing bracket; otherwise the closing bracket with 1/2
or one of k opening brackets with 1/(2k) each. A string is kept when its length, the end counted,
lies in a range. Strings are drawn from that conditional distribution directly, without rejection.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fairseq_casrnn.data.command import is_prepared, keep_options
from fairseq_casrnn.data.folder import prepared_folder
from fairseq_casrnn.data.monolingual import (
    SPLITS,
    add_output_arguments,
    binarise,
)
from fairseq_casrnn.data.text import write_lines
from fairseq_casrnn.data.values import natural
from fairseq_casrnn.errors import UserError

MOST_REDRAWS = 20  # for each sample wanted, before the range of lengths is found too small


def brackets(k: int) -> list[tuple[str, str]]:
    """The k pairs of tokens: (a a), (b b), …"""
    names = [chr(ord("a") + i) if k <= 26 else str(i) for i in range(k)]
    return [(f"({name}", f"{name})") for name in names]


class Source:
    """The distribution over strings with lengths from ``low`` to ``high``, the end counted.

    Args:
        k: kinds of brackets.
        m: greatest depth.
        low, high: range of lengths.

    Attributes:
        log_total: natural logarithm of the probability, without regard to the length, that a string
            ends within the range.
        moves: ``(high, m+1, 3)``: probabilities of end, closing and opening at t and d.

    Raises:
        UserError: sizes below 1, or no string has such a length.
    """

    def __init__(self, k: int, m: int, low: int, high: int):
        if k < 1 or m < 1:
            raise UserError(f"--k is {k} and --m is {m}; both must be at least 1")
        if not 1 <= low <= high:
            raise UserError(f"lengths {low}:{high} are no range; give LOW:HIGH, at least 1:1")
        self.k, self.m, self.low, self.high = k, m, low, high
        reach, self.log_total = self._reach()
        if self.log_total == -math.inf:
            raise UserError(
                f"no string has a length from {low} to {high}: with the end, lengths are odd"
            )
        self.moves = self._moves(reach)
        self._lists: list | None = None

    def _free(self) -> np.ndarray:
        """``(m+1, 3)``: probabilities of end, closing and opening at each depth, of any length."""
        free = np.tile([0.0, 0.5, 0.5], (self.m + 1, 1))
        free[0] = [0.5, 0.0, 0.5]
        free[self.m] = [0.0, 1.0, 0.0]
        return free

    def _reach(self) -> tuple[np.ndarray, float]:
        """``(high+1, m+2)``, and ``log_total``.

        The probability, after t tokens at depth d, that the string ends within the range; of t
        before the range up to a factor, so that it does not vanish. Column m+1 is 0.
        """
        # Backwards from the last step, as sums of positive terms: long strings are rare when m is
        # small, and a difference of two probabilities near 1 would leave nothing of theirs.
        free, m = self._free(), self.m
        reach, log_scale = np.zeros((self.high + 1, m + 2)), 0.0
        for t in reversed(range(self.high)):
            reach[t, 0] = free[0, 0] * (t + 1 >= self.low)
            reach[t, 1 : m + 1] += free[1:, 1] * reach[t + 1, :m]
            reach[t, : m + 1] += free[:, 2] * reach[t + 1, 1:]
            if t < self.low and (largest := reach[t].max()) > 0:
                reach[t] /= largest
                log_scale += math.log(largest)
        total = float(reach[0, 0])
        return reach, math.log(total) + log_scale if total else -math.inf

    def _moves(self, reach: np.ndarray) -> np.ndarray:
        free, after = self._free(), reach[1:]
        t = np.arange(self.high)[:, None] + 1
        ends = free[:, 0] * ((t >= self.low) & (t <= self.high))
        closes = free[:, 1] * np.pad(after[:, : self.m], ((0, 0), (1, 0)))
        opens = free[:, 2] * after[:, 1:]
        moves = np.stack([ends, closes, opens], -1)
        total = moves.sum(-1, keepdims=True)
        return np.divide(moves, total, out=np.zeros_like(moves), where=total > 0)

    def entropy(self) -> tuple[float, float]:
        """Entropy of a string in nats, and its expected length; both exact."""
        with np.errstate(divide="ignore", invalid="ignore"):
            of_move = -np.nansum(self.moves * np.log(self.moves), -1)
        of_move += self.moves[..., 2] * math.log(self.k)
        here = np.zeros(self.m + 1)  # probability to be at each depth after t tokens
        here[0] = 1.0
        entropy = length = 0.0
        for moves, own in zip(self.moves, of_move, strict=True):
            entropy += float(here @ own)
            length += float(here.sum())
            there = np.zeros_like(here)
            there[:-1] += here[1:] * moves[1:, 1]
            there[1:] += here[:-1] * moves[:-1, 2]
            here = there
        return entropy, length

    def floor(self) -> float:
        """The perplexity of a token that no model of the source falls below in the long run."""
        entropy, length = self.entropy()
        return math.exp(entropy / length)

    def log_prob(self, tokens: list[str]) -> float:
        """Natural log-probability of a string, given without its end.

        Raises:
            UserError: this source does not emit it.
        """
        kinds = dict(brackets(self.k))
        stack: list[str] = []
        total = -len(tokens) / 2 * math.log(self.k)
        for t, token in enumerate(tokens):
            move, depth = (2 if token in kinds else 1), len(stack)
            right = t < self.high and (token in kinds or (stack and stack.pop() == token))
            if not right or not self.moves[t, depth, move]:
                raise UserError(f"'{' '.join(tokens)}' is no string of this source")
            total += math.log(self.moves[t, depth, move])
            if token in kinds:
                stack.append(kinds[token])
        if stack or len(tokens) >= self.high or not self.moves[len(tokens), 0, 0]:
            raise UserError(f"'{' '.join(tokens)}' is no string of this source")
        return total + math.log(self.moves[len(tokens), 0, 0])

    def sample(self, rng: random.Random) -> list[str]:
        """One string, without its end."""
        if self._lists is None:
            self._lists = self.moves.tolist()  # ten times faster than numpy's elements
        stack: list[str] = []
        tokens: list[str] = []
        pairs = brackets(self.k)
        for moves in self._lists:
            end, close, opening = moves[len(stack)]
            draw = rng.random() * (end + close + opening)
            if draw < end:
                break
            if draw < end + close:
                tokens.append(stack.pop())
            else:
                left, right = pairs[rng.randrange(self.k)]
                tokens.append(left)
                stack.append(right)
        return tokens


def draw(
    source: Source, count: int, seed: str, taken: set[bytes], unique: bool = False
) -> Iterator[list[str]]:
    """``count`` strings of ``source``, none of which is in ``taken``.

    Args:
        source: their distribution.
        count: how many.
        seed: of the random numbers.
        taken: digests of strings that may not occur; gets those of the new ones at the end.
        unique: no string twice.

    Raises:
        UserError: nearly all strings are taken.
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
        print(f"drawn again, because they had occurred: {redraws}")


def length_range(text: str) -> tuple[int, int]:
    """``LOW:HIGH`` as two numbers."""
    low, _, high = text.partition(":")
    first, last = natural(low), natural(high)
    if first is None or last is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not LOW:HIGH")
    return first, last


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn data dyck``."""
    parser.add_argument("--k", type=int, default=2, help="kinds of brackets (default: 2)")
    parser.add_argument("--m", type=int, default=8, help="greatest depth (default: 8)")
    parser.add_argument(
        "--lengths", type=length_range, default=(50, 180), metavar="LOW:HIGH",
        help="of train, valid and test, the end counted (default: 50:180)",
    )  # fmt: skip
    parser.add_argument(
        "--long-lengths", type=length_range, metavar="LOW:HIGH",
        help="of test1, a second test set (default: just longer ones, up to three times HIGH)",
    )  # fmt: skip
    for split, count in (("train", 10000), ("valid", 4000), ("test", 10000)):
        text = f"number of strings in {split} (default: {count})"
        parser.add_argument(f"--{split}", type=int, default=count, help=text)
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: 1)")
    parser.add_argument(
        "--unique", action="store_true", help="no string twice within a split, either"
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Write and binarise the splits. Raises UserError."""
    for split in SPLITS:
        if getattr(args, split) < 1:
            raise UserError(f"--{split} is {getattr(args, split)}; it must be at least 1")
    if is_prepared(args):
        return
    low, high = args.lengths
    if args.long_lengths and args.long_lengths[0] <= high:
        raise UserError(
            f"--long-lengths begins at {args.long_lengths[0]}; it must be above {high}, the "
            "greatest of --lengths"
        )
    source = Source(args.k, args.m, low, high)
    longer = Source(args.k, args.m, *(args.long_lengths or (high + 1, 3 * high)))
    sources = {**dict.fromkeys(SPLITS, source), "test1": longer}
    with prepared_folder(args.out) as stage:
        taken: set[bytes] = set()
        notes = {"k": args.k, "m": args.m, "seed": args.seed, "splits": {}}
        for split, own in sources.items():
            count = getattr(args, split.rstrip("1"))
            notes["splits"][split] = write_split(stage, split, own, count, args, taken)
        with open(stage / "text" / "dyck.json", "w", encoding="utf-8") as file:
            json.dump(notes, file, indent=1)
        binarise(stage / "text", stage / "data-bin", ("train", "valid", "test,test1"))
        keep_options(args, stage / "data-bin")
    print(f"prepared {args.out / 'data-bin'}")


def write_split(stage: Path, split: str, source: Source, count: int, args, taken) -> dict:
    """Draw and write one split; what ``dyck.json`` says of it."""
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
            f"only {len(drawn) // 2} of {args.k} kinds of brackets occur in train, and the others "
            "would be unknown; give a greater --train, or a smaller --k"
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

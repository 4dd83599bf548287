"""A probabilistic source of Dyck strings of bounded depth and length.

The source is that of Hewitt et al. (2020). At depth 0 it emits the end with probability 1/2, or one
of k opening brackets with 1/(2k) each. At depth m it emits the closing bracket. At other depths it
emits the closing bracket with probability 1/2, or one of k opening brackets with 1/(2k) each.
Strings are conditioned on a range of lengths, including the end, and drawn from the conditional
distribution directly, without rejection.
"""

from __future__ import annotations

import math
import random

import numpy as np

from fairseq_casrnn.errors import UserError, check_at_least


def brackets(k: int) -> list[tuple[str, str]]:
    """The k pairs of tokens: (a a), (b b), …"""
    names = [chr(ord("a") + i) if k <= 26 else str(i) for i in range(k)]
    return [(f"({name}", f"{name})") for name in names]


class Source:
    """The distribution over strings with lengths from ``low`` to ``high``, including the end.

    Args:
        k: number of bracket types.
        m: maximum depth.
        low, high: range of lengths.

    Attributes:
        log_total: natural logarithm of the unconditional probability that the length of a string is
            in the range.
        moves: ``(high, m+1, 3)``: probabilities of end, closing and opening after t tokens at
            depth d.

    Raises:
        UserError: a size is below 1, or no string has such a length.
    """

    def __init__(self, k: int, m: int, low: int, high: int):
        check_at_least(1, k=k, m=m)
        if not 1 <= low <= high:
            raise UserError(f"lengths {low}:{high} are not a range; give LOW:HIGH, at least 1:1")
        self.k, self.m, self.low, self.high = k, m, low, high
        reach, self.log_total = self._reach()
        if self.log_total == -math.inf:
            raise UserError(
                f"no string has a length from {low} to {high}: including the end, lengths are odd"
            )
        self.moves = self._moves(reach)
        self._lists: list | None = None

    def _free(self) -> np.ndarray:
        """``(m+1, 3)``: unconditional probabilities of end, closing and opening at each depth."""
        free = np.tile([0.0, 0.5, 0.5], (self.m + 1, 1))
        free[0] = [0.5, 0.0, 0.5]
        free[self.m] = [0.0, 1.0, 0.0]
        return free

    def _reach(self) -> tuple[np.ndarray, float]:
        """Backward probabilities ``(high+1, m+2)``, and ``log_total``.

        Entry (t, d) is the probability that a string at depth d after t tokens ends within the
        range. Rows before the range are rescaled to prevent underflow. Column m+1 is 0.
        """
        # Sums of positive terms only: long strings are rare when m is small, and the difference of
        # two probabilities near 1 would cancel.
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
        """The exact entropy of a string in nats, and its exact expected length."""
        with np.errstate(divide="ignore", invalid="ignore"):
            of_move = -np.nansum(self.moves * np.log(self.moves), -1)
        of_move += self.moves[..., 2] * math.log(self.k)
        here = np.zeros(self.m + 1)  # probability of each depth after t tokens
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
        """The perplexity per token of the source, the minimum that any model can reach."""
        entropy, length = self.entropy()
        return math.exp(entropy / length)

    def log_prob(self, tokens: list[str]) -> float:
        """Natural log-probability of a string, which is given without its end.

        Raises:
            UserError: the source does not emit it.
        """
        kinds = dict(brackets(self.k))
        stack: list[str] = []
        total = -len(tokens) / 2 * math.log(self.k)
        for t, token in enumerate(tokens):
            move, depth = (2 if token in kinds else 1), len(stack)
            right = token in kinds or (stack and stack.pop() == token)
            if not right or not self.moves[t, depth, move]:
                raise UserError(f"the source cannot emit '{' '.join(tokens)}'")
            total += math.log(self.moves[t, depth, move])
            if token in kinds:
                stack.append(kinds[token])
        if stack or not self.moves[len(tokens), 0, 0]:
            raise UserError(f"the source cannot emit '{' '.join(tokens)}'")
        return total + math.log(self.moves[len(tokens), 0, 0])

    def sample(self, rng: random.Random) -> list[str]:
        """Draw a string, without its end."""
        if self._lists is None:
            self._lists = self.moves.tolist()  # indexing lists is ten times faster than arrays
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

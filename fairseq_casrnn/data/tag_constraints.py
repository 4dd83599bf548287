"""Which tags may follow which, in the schemes of spans (IOB2, BIOES, BILOU)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

OPEN, CONTINUING, CLOSING = "BI", "IEL", "EL"
# Added to the score of a forbidden transition. It is finite so that a sentence for which the tags
# at hand allow no sequence, such as one word where all spans have two, still gets the best one.
PENALTY = -1e4


class Constraints(NamedTuple):
    """Penalties, 0 or :data:`PENALTY`, of K tags: ``start`` (K,), ``end`` (K,), ``steps`` (K, K).

    ``steps[a, b]`` is of tag b after tag a, as in pytorch-crf.
    """

    start: Tensor
    end: Tensor
    steps: Tensor


@functools.cache
def constraints(classes: tuple[str, ...]) -> Constraints:
    """The constraints that hold among the tags of spans ``classes``.

    A type's own tags tell its scheme. Where it has B-TYPE, its I-, E- and L-TYPE stand after
    B-TYPE or I-TYPE alone, and without B-TYPE (IOB1) anywhere. Where it has E- or L-TYPE as well,
    one of these must end what B-TYPE began.
    """
    prefixes: dict[str, set[str]] = {}
    for tag in classes:
        prefixes.setdefault(tag[2:], set()).add(tag[0])

    def continues(tag: str) -> bool:
        return tag[0] in CONTINUING and "B" in prefixes[tag[2:]]

    def is_unfinished(tag: str) -> bool:
        return tag[0] in OPEN and not prefixes[tag[2:]].isdisjoint(CLOSING)

    def allowed(a: str, b: str) -> bool:
        if a[0] in OPEN and b[0] in CONTINUING and a[2:] == b[2:]:
            return True
        return not is_unfinished(a) and not continues(b)

    return Constraints(
        penalties([not continues(tag) for tag in classes]),
        penalties([not is_unfinished(tag) for tag in classes]),
        penalties([[allowed(a, b) for b in classes] for a in classes]),
    )


def has_closing(classes: Sequence[str]) -> bool:
    """Whether the tags are in BIOES or its like: those of IOB1 and IOB2 do not tell which it is."""
    return any(tag[0] in "ELSUW" for tag in classes)


def penalties(allowed: list) -> Tensor:
    """0 where ``allowed``, which may be nested, else :data:`PENALTY`."""
    return torch.where(torch.tensor(allowed), 0.0, PENALTY)


def violations(found: Constraints, tags: Tensor) -> int:
    """How many transitions of a sentence's ``tags`` (T,), its ends included, are forbidden."""
    if not len(tags):
        return 0
    ends = int(found.start[tags[0]] < 0) + int(found.end[tags[-1]] < 0)
    return ends + int((found.steps[tags[:-1], tags[1:]] < 0).sum())

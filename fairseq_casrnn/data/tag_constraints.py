"""Allowed transitions between span tags in IOB2, BIOES and BILOU."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

OPEN, CONTINUING, CLOSING = "BI", "IEL", "EL"
# Added to the score of a forbidden transition. It is finite because some sentences have no allowed
# sequence, such as a single word if all training spans have two words.
PENALTY = -1e4


class Constraints(NamedTuple):
    """Penalties of K tags, 0 or :data:`PENALTY`: ``start`` (K,), ``end`` (K,), ``steps`` (K, K).

    ``steps[a, b]`` is the penalty of tag b after tag a, as in pytorch-crf.
    """

    start: Tensor
    end: Tensor
    steps: Tensor


@functools.cache
def constraints(classes: tuple[str, ...]) -> Constraints:
    """The constraints for the span tags ``classes``.

    The scheme of each type is inferred from its tags. If B-TYPE exists, then I-, E- and L-TYPE may
    only follow B-TYPE or I-TYPE; otherwise (IOB1) they may follow any tag. If E- or L-TYPE exists,
    a span that starts with B-TYPE must end with one of them.
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
    """Whether the tags are in BIOES or a similar scheme; IOB1 and IOB2 have the same tags."""
    return any(tag[0] in "ELSUW" for tag in classes)


def penalties(allowed: list) -> Tensor:
    """0 where ``allowed`` (a nested list of bool) is true, else :data:`PENALTY`."""
    return torch.where(torch.tensor(allowed), 0.0, PENALTY)


def violations(found: Constraints, tags: Tensor) -> int:
    """The number of forbidden transitions in a sentence's ``tags`` (T,), including both ends."""
    if not len(tags):
        return 0
    ends = int(found.start[tags[0]] < 0) + int(found.end[tags[-1]] < 0)
    return ends + int((found.steps[tags[:-1], tags[1:]] < 0).sum())

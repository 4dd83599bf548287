"""Tags of word spans (entities, chunks) in the schemes IOB1, IOB2 and BIOES."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.errors import UserError, quoted

# Begin, inside, end (or last), single (or unit, whole) of a span with a type; O: outside.
TAG = re.compile(r"O|[BIELSUW]-.+", re.DOTALL)
AS_IOB2 = {"B": "B", "S": "B", "U": "B", "W": "B", "I": "I", "E": "I", "L": "I"}


def are_spans(classes: Sequence[str]) -> bool:
    """Whether the tags mark spans, unlike parts of speech."""
    return all(map(TAG.fullmatch, classes)) and any(name != "O" for name in classes)


def as_iob2(tags: Sequence[str]) -> list[str]:
    """Convert tags of any scheme to B and I, for an evaluation like conlleval.

    Predicted tags may be ill-formed. An I without a B, or after another type, stays as it is;
    conlleval reads it as the start of a span.
    """
    return [tag if tag == "O" else AS_IOB2[tag[0]] + tag[1:] for tag in tags]


def spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(type, first word, last word) of every span, as conlleval finds them."""
    from seqeval.metrics.sequence_labeling import get_entities

    return set(get_entities(as_iob2(tags)))


def as_bioes(tags: Sequence[str]) -> list[str]:
    """Convert IOB1, IOB2 or BIOES to BIOES, in which adjacent spans of one type cannot merge."""
    found = ["O"] * len(tags)
    for kind, first, last in spans(tags):
        found[first : last + 1] = [f"I-{kind}"] * (last + 1 - first)
        found[first], found[last] = f"B-{kind}", f"E-{kind}"
        if first == last:
            found[first] = f"S-{kind}"
    return found


def read_bioes(tags: Sequence[str], path: Path, first: int) -> list[str]:
    """As :func:`as_bioes`, for the tags in lines ``first``, ``first + 1``, … of a file.

    Raises:
        UserError: a tag has no such scheme.
    """
    for number, tag in enumerate(tags, start=first):
        if not TAG.fullmatch(tag):
            raise UserError(
                f"{path}, line {number}: {quoted(tag)} is neither O nor of the form "
                "B-TYPE, I-TYPE; give the official file, or one in its layout"
            )
    return as_bioes(tags)

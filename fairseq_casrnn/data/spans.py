"""Tags of word spans (entities, chunks), in the schemes IOB1, IOB2, BIOES, BILOU and BMES."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_casrnn.errors import UserError, quoted

# Begin, inside, end (or last), single (or unit, whole) of a span with a type; O: outside.
TAG = re.compile(r"O|[BIELSUW]-.+", re.DOTALL)
# The same, also without a type and with the middle (M) of BMES.
ANY_TAG = re.compile(r"O|([BIMELSUW])(?:-(.+))?", re.DOTALL)
BARE = "SPAN"  # type for spans whose tags are only B, I, …
BEGINS, INSIDE = "BSUW", "IMEL"
AS_IOB2 = {"B": "B", "S": "B", "U": "B", "W": "B", "I": "I", "M": "I", "E": "I", "L": "I"}


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
    """Convert tags of any scheme to BIOES, in which adjacent spans of one type cannot merge."""
    typed = [tag if tag == "O" or len(tag) > 1 else f"{tag}-{BARE}" for tag in tags]
    found = ["O"] * len(tags)
    for kind, first, last in spans(typed):
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


def find_scheme(sentences: Sequence[Sequence[str]]) -> str | None:
    """The scheme of the tags; None if they mark no spans.

    IOB1 uses B only for a span that follows another one of the same type.
    """
    tags = {tag for row in sentences for tag in row}
    found = {tag: ANY_TAG.fullmatch(tag) for tag in tags}
    letters = {match[1] for match in found.values() if match and match[1]}
    typed = {bool(match[2]) for match in found.values() if match and match[1]}
    # Parts of speech may be I or S. Span tags all have types or all have none, and some begin.
    if not all(found.values()) or not letters or len(typed) > 1:
        return None
    if not (letters & set(BEGINS) or (typed == {True} and letters == {"I"})):
        return None
    if "M" in letters:
        return "BMES"
    if letters & set("LU"):
        return "BILOU"
    if letters & set("ESW"):
        return "BIOES"
    return "IOB2" if begins_with_b(sentences) else "IOB1"


def non_span_tags(tags: Iterable[str]) -> list[str]:
    """The tags that mark no spans in any scheme."""
    return [tag for tag in tags if not ANY_TAG.fullmatch(tag)]


def begins_with_b(sentences: Sequence[Sequence[str]]) -> bool:
    """Whether most spans that do not follow another one of their type begin with B."""
    starts = {"B": 0, "I": 0}
    for row in sentences:
        for before, tag in zip(("O", *row), row, strict=False):
            if (tag != "O" and before[1:] != tag[1:]) or before == "O" != tag:
                starts[tag[0]] += 1
    return starts["B"] > starts["I"]


def count_orphan_continuations(sentences: Sequence[Sequence[str]]) -> int:
    """The number of tags that continue a span without a beginning; they are read as its start."""
    orphans = 0
    for row in sentences:
        for before, tag in zip(("O", *row), row, strict=False):
            orphans += tag[0] in INSIDE and (before == "O" or before[1:] != tag[1:])
    return orphans

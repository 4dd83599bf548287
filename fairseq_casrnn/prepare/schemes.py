"""Recognising and converting the schemes of span tags: IOB1, IOB2, BIOES, BILOU, BMES."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fairseq_casrnn.data.spans import as_bioes

TAG = re.compile(r"O|([BIMELSUW])(?:-(.+))?", re.DOTALL)
BARE = "SPAN"  # type for spans whose tags are only B, I, …
BEGINS, INSIDE = "BSUW", "IMEL"


def find_scheme(sentences: Sequence[Sequence[str]]) -> str | None:
    """The scheme of the tags; None if they mark no spans.

    IOB1 uses B only for a span that follows another one of the same type.
    """
    tags = {tag for row in sentences for tag in row}
    found = {tag: TAG.fullmatch(tag) for tag in tags}
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
    return [tag for tag in tags if not TAG.fullmatch(tag)]


def begins_with_b(sentences: Sequence[Sequence[str]]) -> bool:
    """Whether most spans that do not follow another one of their type begin with B."""
    starts = {"B": 0, "I": 0}
    for row in sentences:
        for before, tag in zip(("O", *row), row, strict=False):
            if (tag != "O" and before[1:] != tag[1:]) or before == "O" != tag:
                starts[tag[0]] += 1
    return starts["B"] > starts["I"]


def to_bioes(tags: Sequence[str]) -> list[str]:
    """Convert tags of any scheme to BIOES, in which adjacent spans cannot merge."""
    typed = [tag if tag == "O" or len(tag) > 1 else f"{tag}-{BARE}" for tag in tags]
    return as_bioes([f"I{tag[1:]}" if tag[0] == "M" else tag for tag in typed])


def count_orphan_continuations(sentences: Sequence[Sequence[str]]) -> int:
    """The number of tags that continue a span without a beginning; they are read as its start."""
    orphans = 0
    for row in sentences:
        for before, tag in zip(("O", *row), row, strict=False):
            orphans += tag[0] in INSIDE and (before == "O" or before[1:] != tag[1:])
    return orphans

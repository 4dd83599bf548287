"""The schemes that tags of spans are written in: IOB1, IOB2, BIOES, BILOU, BMES."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairseq_casrnn.data.spans import as_bioes

TAG = re.compile(r"O|([BIMELSUW])(?:-(.+))?", re.DOTALL)
BARE = "SPAN"  # the type of spans whose tags are B, I, … alone
BEGINS, INSIDE = "BSUW", "IMEL"
SCHEMES = ("IOB1", "IOB2", "BIOES", "BILOU", "BMES")


def find_scheme(sentences: Sequence[Sequence[str]]) -> str | None:
    """The scheme of the tags of all sentences; None where they mark no spans.

    IOB1 writes B only between two spans of a type that touch.
    """
    tags = {tag for row in sentences for tag in row}
    found = {tag: TAG.fullmatch(tag) for tag in tags}
    letters = {match[1] for match in found.values() if match and match[1]}
    typed = {bool(match[2]) for match in found.values() if match and match[1]}
    # Parts of speech may be called I or S; tags of spans all have a type, or none, and begin.
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


def begins_with_b(sentences: Sequence[Sequence[str]]) -> bool:
    """Whether spans begin with B that follow none of their type, be it with a few exceptions."""
    begun = {"B": 0, "I": 0}
    for row in sentences:
        for before, tag in zip(("O", *row), row, strict=False):
            if (tag != "O" and before[1:] != tag[1:]) or before == "O" != tag:
                begun[tag[0]] += 1
    return begun["B"] > begun["I"]


def to_bioes(tags: Sequence[str]) -> list[str]:
    """Tags of any of the schemes as BIOES, in which neighbouring spans cannot merge."""
    typed = [tag if tag == "O" or len(tag) > 1 else f"{tag}-{BARE}" for tag in tags]
    return as_bioes([f"I{tag[1:]}" if tag[0] == "M" else tag for tag in typed])


def count_strays(sentences: Sequence[Sequence[str]]) -> int:
    """How many tags continue a span that did not begin, in a scheme with B; they begin one."""
    strays = 0
    for row in sentences:
        for before, tag in zip(("O", *row), row, strict=False):
            strays += tag[0] in INSIDE and (before == "O" or before[1:] != tag[1:])
    return strays

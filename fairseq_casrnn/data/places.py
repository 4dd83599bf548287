"""Where words stand in the text that they were split from, and which spans their tags make."""

from __future__ import annotations

from collections.abc import Sequence

from .spans import spans

QUOTES = {"``": '"“„', "''": '"”“'}  # what the Penn Treebank's quotation marks stand for


def places(words: Sequence[str], line: str) -> list[tuple[int, int]]:
    """(begin, end) of each word in ``line``, in characters, the end not included.

    A tokenizer leaves characters as they are, but for quotation marks. Where it has not, the words
    after it are found all the same, and its own place is a guess.
    """
    found, end = [], 0
    for word in words:
        begin, size = end, len(word)
        # A word may be white space itself, such as a no-break space.
        while line[begin : begin + 1].isspace() and not line.startswith(word, begin):
            begin += 1
        if not line.startswith(word, begin):
            if begin < len(line) and line[begin] in QUOTES.get(word, ""):
                size = 1
            elif (later := line.find(word, begin)) >= 0:
                begin = later
        end = min(begin + size, len(line))
        found.append((begin, end))
    return found


def span_places(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(type, first word, last word) of every span, from left to right."""
    return sorted(spans(tags), key=lambda span: span[1:])

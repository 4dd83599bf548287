"""Character offsets of words in the original text, and the spans that their tags mark."""

from __future__ import annotations

from collections.abc import Sequence

from fairseq_casrnn.data.spans import spans

# What the Penn Treebank's quotation marks may stand for: NLTK also opens with two apostrophes.
QUOTES = {"``": ('"', "“", "„", "''"), "''": ('"', "”", "“")}


def word_offsets(words: Sequence[str], line: str) -> list[tuple[int, int]]:
    """(begin, end) of each word in ``line``, in characters; the end is exclusive.

    Tokenizers keep all characters except quotation marks. If a word is not found in the line, its
    own offsets are a guess, but those of the following words are not affected.
    """
    found, end = [], 0
    for word in words:
        begin, size = end, len(word)
        # A word may be a white-space character, such as a no-break space.
        while line[begin : begin + 1].isspace() and not line.startswith(word, begin):
            begin += 1
        if not line.startswith(word, begin):
            quote = next((q for q in QUOTES.get(word, ()) if line.startswith(q, begin)), None)
            if quote is not None:
                size = len(quote)
            elif (later := line.find(word, begin)) >= 0:
                begin = later
        end = min(begin + size, len(line))
        found.append((begin, end))
    return found


def span_ranges(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(type, first word, last word) of each span, from left to right."""
    return sorted(spans(tags), key=lambda span: span[1:])

"""fairseq's own symbols where a text holds them as words.

Every dictionary begins with ``<s>``, ``<pad>`` and ``</s>``. A word of a text that is one of them
would be read as padding, which no loss counts, or as a sentence's end. So lines that are given to a
trained model, and the corpora of the recipes, have them escaped as Moses does (``&lt;pad&gt;``),
and text files that are given to fairseq as data are refused. ``<unk>`` means the same in a text as
in a dictionary, and some corpora are distributed with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from fairseq_casrnn.errors import UserError

ESCAPED = {"<s>": "&lt;s&gt;", "<pad>": "&lt;pad&gt;", "</s>": "&lt;/s&gt;"}
_WORD = re.compile(r"(?<!\S)(?:<s>|<pad>|</s>)(?!\S)")


def escape(words: Iterable[str]) -> list[str]:
    """The words, fairseq's symbols among them escaped."""
    return [ESCAPED.get(word, word) for word in words]


def escape_line(line: str) -> str:
    """The same of words that white space separates."""
    return _WORD.sub(lambda found: ESCAPED[found[0]], line)


def count(line: str) -> Counter:
    """How often a line has each of the symbols as a word."""
    return Counter(_WORD.findall(line)) if "<" in line else Counter()


def escaped_note(sentences: Iterable[Sequence[str]]) -> dict[str, str]:
    """What ``prepare.json`` says of sentences (their words) in which symbols will be escaped."""
    found = Counter(word for word in chain.from_iterable(sentences) if word in ESCAPED)
    return {"words that fairseq has a use of its own for, escaped": listed(found)} if found else {}


def listed(found: Counter) -> str:
    """The symbols and how often there are."""
    return ", ".join(f"{symbol} {number}" for symbol, number in sorted(found.items()))


def check_symbols(lines: Iterable[str], name: object) -> None:
    """Raise UserError where lines of the file ``name`` have fairseq's symbols as words."""
    found: Counter[str] = Counter()
    first = 0
    for number, line in enumerate(lines, start=1):
        if more := count(line):
            found += more
            first = first or number
    if found:
        symbol = next(iter(found))
        raise UserError(
            f"{name} has words that fairseq has a use of its own for ({listed(found)}, first in "
            f"line {first}), and would not count as words; write them differently, such as "
            f"{ESCAPED[symbol]}"
        )

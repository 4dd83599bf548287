"""fairseq's special symbols as words of a text.

Every dictionary starts with ``<s>``, ``<pad>`` and ``</s>``. If a word of a text is one of them,
fairseq reads it as padding, which the loss ignores, or as the end of a sentence. So they are
escaped as in Moses (``&lt;pad&gt;``) in the input of trained models and in the recipes' corpora,
and refused in text files given to fairseq. ``<unk>`` is left alone: it has the same meaning in a
text, and some corpora contain it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from fairseq_casrnn.errors import UserError, quoted

ESCAPED = {"<s>": "&lt;s&gt;", "<pad>": "&lt;pad&gt;", "</s>": "&lt;/s&gt;"}
SPECIAL = {*ESCAPED, "<unk>"}
_WORD = re.compile(r"(?<!\S)(?:<s>|<pad>|</s>)(?!\S)")


def escape(words: Iterable[str]) -> list[str]:
    """The words, with fairseq's symbols escaped."""
    return [ESCAPED.get(word, word) for word in words]


def escape_line(line: str) -> str:
    """The line, with words that are fairseq's symbols escaped."""
    return _WORD.sub(lambda found: ESCAPED[found[0]], line)


def check_class(name: str, what: str, where: str) -> None:
    """Raise UserError if a class's name is a symbol of fairseq or has an invisible character.

    Args:
        name: the name.
        what: ``label`` or ``tag``, for messages.
        where: file and line, for messages.
    """
    hidden = [character for character in name if unicodedata.category(character) in ("Cf", "Cc")]
    if hidden:
        raise UserError(
            f"{where}: the {what} {quoted(name)} has an invisible character, "
            f"U+{ord(hidden[0]):04X}; remove it"
        )
    if name in SPECIAL:
        raise UserError(f"{where}: the {what} {name} is a special symbol of fairseq; use another")


def count(line: str) -> Counter:
    """How often each symbol is a word of the line."""
    return Counter(_WORD.findall(line)) if "<" in line else Counter()


def escaped_note(sentences: Iterable[Sequence[str]]) -> dict[str, str]:
    """The note for ``prepare.json`` on escaped words of the sentences; empty without any."""
    found = Counter(word for word in chain.from_iterable(sentences) if word in ESCAPED)
    return {"words that are special symbols of fairseq, escaped": listed(found)} if found else {}


def listed(found: Counter) -> str:
    """The symbols and their counts, as text."""
    return ", ".join(f"{symbol} {number}" for symbol, number in sorted(found.items()))


def check_symbols(lines: Iterable[str], name: object) -> None:
    """Raise UserError if words of the file ``name`` are fairseq's symbols."""
    found: Counter[str] = Counter()
    first = 0
    for number, line in enumerate(lines, start=1):
        if more := count(line):
            found += more
            first = first or number
    if found:
        symbol = next(iter(found))
        raise UserError(
            f"{name} has words that are special symbols of fairseq ({listed(found)}, first in "
            f"line {first}); write them differently, such as {ESCAPED[symbol]}"
        )

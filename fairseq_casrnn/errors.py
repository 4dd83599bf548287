"""The error that is the user's to mend."""

import re

LONGEST = 1000  # characters of a message
# Control characters, line separators, marks of writing direction, halves of characters: what a
# terminal would obey, or could not show.
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


class UserError(ValueError):
    """A user's mistake: wrong option, missing or broken file.

    Its message is one sentence that names the file, line or option and the remedy. The command
    lines print it as ``error: <message>`` without a traceback and exit with 2.

    Args:
        message: the sentence; whatever it quotes is made safe to print (:func:`one_sentence`).
    """

    def __init__(self, message: str):
        super().__init__(one_sentence(message))


def printable(text: str) -> str:
    """``text`` with control characters and their like as Python escapes them, such as ``\\x1b``."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_sentence(message: str) -> str:
    """A message in printable characters on one line, without the middle of a very long one."""
    text = printable(re.sub(r"\s*\n\s*", " ", str(message)))
    return text if len(text) <= LONGEST else f"{text[:600]} … {text[-300:]}"


def quoted(text: str, longest: int = 60) -> str:
    """Text of a file for a message: in quotation marks, at most ``longest`` characters of it."""
    if len(text) > longest:
        return f"'{printable(text[:longest])}…' ({len(text)} characters)"
    return f"'{printable(text)}'"

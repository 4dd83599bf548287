"""The exception for users' mistakes, and text for messages."""

import re

LONGEST = 1000  # characters of a message
# Characters that a terminal would interpret or cannot show: control characters, line separators,
# directional marks, unpaired surrogates.
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


class UserError(ValueError):
    """A user's mistake, such as an invalid option or a damaged file.

    Its message is one sentence that names the file, line or option and the remedy. The commands
    print it as ``error: <message>`` without a traceback and exit with status 2.

    Args:
        message: the sentence; :func:`one_sentence` makes it safe to print.
    """

    def __init__(self, message: str):
        super().__init__(one_sentence(message))


def printable(text: str) -> str:
    """``text`` with UNPRINTABLE characters escaped as in Python, such as ``\\x1b``."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_sentence(message: str) -> str:
    """A message on one line, in printable characters; the middle of a very long one is cut."""
    text = printable(re.sub(r"\s*\n\s*", " ", str(message)))
    return text if len(text) <= LONGEST else f"{text[:600]} … {text[-300:]}"


def counted(number: int, noun: str) -> str:
    """A number and a noun for a message, such as "1 column" or "2 columns"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def as_option(name: str) -> str:
    """The option of a command line whose value has the name ``name``: ``--max-len`` for max_len."""
    return "--" + name.replace("_", "-")


def check_at_least(minimum: float, **options: float | None) -> None:
    """Raise UserError if an option is less, such as ``batch_size``; None stands for no value."""
    for name, value in options.items():
        if value is not None and value < minimum:
            raise UserError(f"{as_option(name)} is {value}; it must be at least {minimum}")


def quoted(text: str) -> str:
    """A text in quotation marks for a message, with at most 60 characters."""
    if len(text) > 60:
        return f"'{printable(text[:60])}…' ({len(text)} characters)"
    return f"'{printable(text)}'"

"""Error messages that quote arbitrary text."""

import pytest

from fairseq_casrnn.errors import UserError, quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – text, 中文", "plain – text, 中文"),
        ("a\rb\tc", r"a\rb\tc"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b2J\x7f\0", r"\x9b2J\x7f\x00"),
        ("\u202eabc\u2028\ufeff", r"\u202eabc\u2028\ufeff"),
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert str(UserError(text)) == shown
    assert quoted(text) == f"'{shown}'"


def test_messages_are_one_line():
    assert str(UserError("do that\n  instead")) == "do that instead"
    assert quoted("a\nb") == r"'a\nb'"


def test_long_messages_keep_beginning_and_end():
    text = f"corpus.txt, line 3: {'x' * 60_000} is no label; correct it"
    message = str(UserError(text))
    assert len(message) < 1000
    assert message.startswith("corpus.txt, line 3: xxx")
    assert message.endswith("xxx is no label; correct it")
    assert quoted("x" * 60_000) == f"'{'x' * 60}…' (60000 characters)"

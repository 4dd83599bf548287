"""Progress messages of slow operations."""

import itertools
import sys

import pytest

from fairseq_casrnn.console import progress


@pytest.mark.parametrize("terminal", [False, True])
def test_quick_operations_show_nothing(capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert list(progress.progress_bar("abc", 3, "letters")) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    assert list(progress.progress_bar("abc", 3, "letters")) == ["a", "b", "c"]
    out, error = capsys.readouterr()
    assert out == ""
    assert "letters" in error
    assert "/3 " in error


def test_one_line_per_minute_elsewhere(capsys, monkeypatch):
    """An item takes eleven seconds; there is a line after the second, and then each minute."""
    seconds = itertools.count(step=11)
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(seconds)))
    assert list(progress.progress_bar(range(9), 9, "numbers")) == list(range(9))
    assert capsys.readouterr().err.splitlines() == [
        "numbers: 1 of 9, 176 s left",
        "numbers: 7 of 9, 25 s left",
    ]

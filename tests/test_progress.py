"""The bar of what takes long."""

from fairseq_casrnn import progress


def test_nothing_is_said_of_what_is_over_soon(capsys):
    assert list(progress.shown("abc", 3, "letters")) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_what_takes_long_is_said_on_standard_error(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    assert list(progress.shown("abc", 3, "letters")) == ["a", "b", "c"]
    out, error = capsys.readouterr()
    assert out == ""
    assert "letters" in error
    assert "/3 " in error

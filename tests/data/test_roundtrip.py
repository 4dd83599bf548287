"""Lines that change when they are detokenised and tokenised again."""

from fairseq_casrnn.data import roundtrip

LINES = [
    "das ist gut .",
    "er geht . sie bleibt .",  # the capital of "Sie" is lost
    "er sagt : &quot; es geht . &quot; und : &quot; sie bleibt . &quot;",
    "zwei , ,drei",  # no tokenizer produces this
]


def test_lines_that_change_in_a_round_trip():
    assert [old for old, _ in roundtrip.failures(LINES, "de")] == [LINES[1], LINES[3]]
    assert roundtrip.failures(LINES, "de", capitals=True) == [(LINES[3], "zwei , , drei")]


def test_capitals_after_full_stops():
    line = "a . &quot; b c. d . - 3 . e"
    assert roundtrip.restore_capitals(line) == "a . &quot; B c. d . - 3 . E"


def test_report(tmp_path, capsys):
    path = tmp_path / "valid.de"
    path.write_text("\n".join(LINES) + "\n")
    assert roundtrip.main(["--lang", "de", "--show", "5", str(path)]) == 0
    out = capsys.readouterr().out
    assert "50.00 % of 4 lines are unchanged (as is)" in out
    assert "75.00 % of 4 lines are unchanged (capitals restored)" in out
    assert "- zwei , ,drei\n  + zwei , , drei" in out
    assert roundtrip.main(["--lang", "de", str(tmp_path / "none")]) == 2

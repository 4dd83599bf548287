"""Reading, tokenising and cleaning of text files."""

import gzip
import lzma

import pytest

from fairseq_casrnn.data import text
from fairseq_casrnn.data.readers import read_mixed
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.inference import line_command


def test_a_line_ends_at_newline_only(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\u2028still one\x85\r\ntwo\x0b\x0c\nthree".encode())
    assert text.read_lines(path) == ["one\u2028still one\x85", "two\x0b\x0c", "three"]


def test_a_carriage_return_alone_ends_no_line(tmp_path):
    """No reader ends a line at a carriage return, or reads a byte-order mark as text."""
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffa b\rc d\r\ne f\r".encode())
    expected = ["a b\rc d", "e f\r"]
    assert (
        text.read_lines(path)
        == read_mixed(path)
        == [line for _, line in line_command.numbered_lines(str(path))]
        == expected
    )


def test_written_lines_are_read_back(tmp_path):
    lines = ["ä", "", " b\u2028c "]
    text.write_lines(tmp_path / "new" / "a.txt", lines)
    assert text.read_lines(tmp_path / "new" / "a.txt") == lines


@pytest.mark.parametrize("module", [gzip, lzma])
def test_compressed_text(tmp_path, module):
    path = tmp_path / f"a.{'gz' if module is gzip else 'xz'}"
    path.write_bytes(module.compress(b"eins\nzwei\n"))
    assert text.read_lines(path) == ["eins", "zwei"]
    path.write_bytes(module.compress(bytes(2**25)))
    with pytest.raises(UserError, match="is more than 200 times as large"):
        text.read_lines(path)


# The header has no time, since it would be part of the test's name and differ between processes.
CUT_SHORT = gzip.compress(b"text\n" * 99, mtime=0)[:-12]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\nbad \xff\n", r"a\.txt, line 2 is not valid UTF-8"),
        ("a.txt", "\ufefftext\n".encode("utf-16-le"), r"a\.txt is UTF-16 or not text; save it as"),
        ("a.txt", "\ufeff文\n".encode("utf-16-be"), r"a\.txt is UTF-16 or not text; save it as"),
        ("a.txt", "text\n".encode("utf-16-le"), r"a\.txt is UTF-16 or not text; save it as"),
        ("a.txt", b"", r"a\.txt is empty"),
        ("a.txt", b"\n \n", r"a\.txt is empty"),
        ("a.gz", b"not gzip", r"a\.gz is not a complete gzip file"),
        ("a.gz", CUT_SHORT, r"a\.gz is not a complete gzip file"),
        ("a.xz", b"not xz", r"a\.xz is not a complete xz file"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        text.read_lines(tmp_path / name)


def test_input_in_utf16_is_named(tmp_path):
    """Converting it from cp1252, as for other files, would give nonsense."""
    (tmp_path / "a.txt").write_text("a lovely film\n", encoding="utf-16")
    with pytest.raises(UserError, match=r"a\.txt is UTF-16 or not text; save it as UTF-8$"):
        list(line_command.numbered_lines(str(tmp_path / "a.txt")))


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(UserError, match=r"b\.txt does not exist"):
        text.read_lines(tmp_path / "b.txt")
    with pytest.raises(UserError, match="cannot be read"):
        text.read_lines(tmp_path)


def test_sides_of_unequal_length_are_refused(tmp_path):
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    (tmp_path / "a.en").write_text("one\n")
    with pytest.raises(UserError, match=r"a\.de has 2 lines but .*a\.en has 1"):
        text.read_parallel(tmp_path / "a.de", tmp_path / "a.en")


@pytest.mark.parametrize(
    ("lang", "raw", "tokens"),
    [
        (
            "en",
            "It's \"5,300\" dogs' (yes).",
            "It &apos;s &quot; 5,300 &quot; dogs &apos; ( yes ) .",
        ),
        ("en", "Well-known A/B & [x]|y...", "Well-known A / B &amp; &#91; x &#93; &#124; y ..."),
        ("en", "in the U.S.", "in the U.S ."),
        ("en", "Mr. Smith has 3. No. 5 is his.", "Mr. Smith has 3 . No. 5 is his ."),
        (
            "de",
            "Das ist z.B. gut, ca. 3 Mio. Euro usw.",
            "Das ist z.B. gut , ca. 3 Mio. Euro usw .",
        ),
        ("de", "wie geht's?", "wie geht &apos; s ?"),
        ("de", "  zwei\tWörter\u00a0hier ", "zwei Wörter hier"),
        ("en", "Wait..", "Wait .."),
    ],
)
def test_tokens_are_those_of_moses(lang, raw, tokens):
    assert text.moses_tokenize(raw, lang) == tokens


def test_lower_casing_comes_after_tokenising():
    # A full stop ends a sentence before a capital, but not before a small letter.
    assert text.tokenize_lines(["Er geht. Sie bleibt."], "de") == ["er geht . sie bleibt ."]


def test_two_processes_give_the_same():
    lines = [f"Das ist Satz {i}, und er hört auf." for i in range(1001)]
    assert text.tokenize_lines(lines, "de", workers=2) == text.tokenize_lines(lines, "de")


def test_detokenising_undoes_tokenising():
    line = 'He said: "it\'s 5 & more" (maybe).'
    assert text.detokenize_lines([text.moses_tokenize(line, "en")], "en") == [line]


def words(count, word="a"):
    return " ".join([word] * count)


@pytest.mark.parametrize(
    ("src", "tgt", "clean"),
    [
        (words(2), words(3), True),  # the ratio is exactly 1.5
        (words(3), words(2), True),
        (words(3), words(5), False),
        (words(5), words(3), False),
        (words(1), words(1), True),
        ("", words(1), False),
        (words(1), " ", False),
        (words(175), words(175), True),
        (words(176), words(175), False),
        (words(175), words(176), False),
        (words(1, "a" * 1000), words(1), True),
        (words(1, "a" * 1001), words(1), False),
    ],
)
def test_cleaning_keeps_what_moses_keeps(src, tgt, clean):
    assert text.is_clean(src, tgt) is clean


def test_cleaning_without_ratio():
    assert text.is_clean(words(1), words(9), ratio=None)
    assert not text.is_clean("", "", ratio=None)

"""Reading the official IWSLT14 archive: segments, splits, and damaged archives."""

import hashlib
import tarfile

import pytest
from corpora import IWSLT_TESTS, iwslt_files, pairs, write_archive, write_iwslt

from fairseq_casrnn.data.corpora import iwslt14
from fairseq_casrnn.errors import UserError


def segments(count=1):
    return {
        stem: [(f"Satz {stem} {i}.", f"Line {stem} {i}.") for i in range(count)]
        for stem in IWSLT_TESTS
    }


def test_tags_are_dropped_or_stripped():
    lines = [
        "<url>http://x</url>",
        "<keywords>a, b</keywords>",
        "<talkid>7</talkid>",
        "<title>The title</title>",
        "<description>About it.</description>",
        " A sentence with a <b>tag</b>. ",
        "",
    ]
    assert iwslt14.parse_train(lines) == [
        "The title", "About it.", " A sentence with a <b>tag</b>. ", "",
    ]  # fmt: skip


def test_segments_are_taken_as_they_are():
    lines = [
        '<doc docid="1"><title>no</title>',
        '<seg id="1"> Tom &amp; I </seg>',
        '  <seg id="12">two</seg>  ',
        "<description>no</description>",
    ]
    assert iwslt14.parse_xml(lines) == ["Tom &amp; I", "  two"]


def test_a_segment_of_white_space():
    """A regular expression that backtracks over it would not end."""
    line = f'<seg id="1"> a{" " * 10**6}b </seg>'
    assert iwslt14.parse_xml([line]) == [f"a{' ' * 10**6}b"]


def test_every_23rd_pair_is_for_validation():
    numbered = [(str(n), f"t{n}") for n in range(1, 70)]
    parts = iwslt14.split_train(numbered)
    assert parts["valid"] == [("23", "t23"), ("46", "t46"), ("69", "t69")]
    assert parts["train"][:23] == [*numbered[:22], numbered[23]]
    assert len(parts["train"]) == 66


def test_the_whole_archive(tmp_path):
    long, odd = ("lang " * 176, "long " * 176), ("eins zwei drei vier", "one")
    train = [*pairs(50), ("", ""), long, odd, ("Ein’s", "It’s")]
    tests = segments(2)
    tests[IWSLT_TESTS[0]][0] = ("Das ’s", "It’s")
    path = write_archive(tmp_path / "de-en.tgz", iwslt_files(train, tests))
    corpus = iwslt14.read_corpus(path)
    # 50 pairs, title, description and the last pair are clean; of these 53, numbers 23 and 46 are
    # for validation
    assert corpus.notes == {"training lines": 56, "training lines dropped": 3}
    assert [len(corpus.splits[name]) for name in ("train", "valid", "test")] == [51, 2, 10]
    assert corpus.splits["train"][0][1] == "a talk , side 1"
    assert corpus.splits["train"][1][0] == "what it is about , side 0 ."
    # pair 23 of the clean ones is sentence 21, since title and description come first
    assert corpus.splits["valid"][0][0] == train[20][0].lower()[:-1] + " ."
    assert corpus.splits["train"][-1][1] == "it ’ s"
    # but ’ becomes ' in the test sets, except in the untouched reference
    assert corpus.splits["test"][0][1] == "it &apos;s"
    assert corpus.raw_test[0][1] == "It’s"
    assert corpus.raw_test == [pair for stem in IWSLT_TESTS for pair in tests[stem]]


def test_a_missing_file_is_named(tmp_path):
    files = iwslt_files(pairs(3), segments())
    del files["IWSLT14.TEDX.dev2012.de-en.en.xml"]
    path = write_archive(tmp_path / "a.tgz", files)
    with pytest.raises(UserError, match=r"holds no IWSLT14\.TEDX\.dev2012\.de-en\.en\.xml"):
        iwslt14.read_corpus(path)


@pytest.mark.parametrize("name", ["train.tags.de-en.en", "IWSLT14.TED.tst2011.de-en.en.xml"])
def test_sides_of_unequal_length_are_named(tmp_path, name):
    files = iwslt_files(pairs(3), segments())
    files[name] += '<seg id="99"> one more </seg>\n'
    path = write_archive(tmp_path / "a.tgz", files)
    with pytest.raises(UserError, match=f"but {name} has"):
        iwslt14.read_corpus(path)


def test_invalid_utf8_is_located(tmp_path):
    files = iwslt_files(pairs(3), segments())
    files["train.tags.de-en.de"] = files["train.tags.de-en.de"].encode() + b"\xe4\n"
    path = write_archive(tmp_path / "a.tgz", files)
    with pytest.raises(UserError, match=r"a\.tgz:train\.tags\.de-en\.de, line 9 is not valid"):
        iwslt14.read_corpus(path)


def test_a_cut_archive_is_refused(tmp_path):
    path = write_iwslt(tmp_path / "a.tgz")
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(UserError, match=r"a\.tgz is not a complete \.tgz archive"):
        iwslt14.read_corpus(path)
    with pytest.raises(UserError, match="--archive"):
        iwslt14.read_corpus(tmp_path / "none.tgz")
    path.write_bytes(b"")  # for an empty file, tarfile's error lists all formats it tried
    with pytest.raises(
        UserError, match=r"a\.tgz is not a complete \.tgz archive \(.*\); download it again$"
    ):
        iwslt14.read_corpus(path)


def test_two_files_of_one_name_in_an_archive(tmp_path):
    """The archive is refused; neither file may be used silently."""
    files = iwslt_files(pairs(3), segments())
    path = write_archive(
        tmp_path / "a.tgz",
        {**files, "old/train.tags.de-en.de": "x\n", "README": "", "old/README": ""},
    )
    with pytest.raises(
        UserError, match=r"two files train\.tags\.de-en\.de, 'de-en/train.*keep one"
    ):
        iwslt14.read_corpus(path)


def test_an_archive_that_expands_too_much(tmp_path):
    """Half a megabyte would expand to more than the memory."""
    path = write_archive(tmp_path / "a.tgz", {"zeros": bytes(iwslt14.LARGEST + 1)})
    with pytest.raises(UserError, match=r"a\.tgz holds more than 256 MiB of files, so it is not"):
        iwslt14.Archive(path)


def test_a_damaged_archive(tmp_path):
    """The compressed data are damaged in the middle, or a member has a negative size."""
    path = write_iwslt(tmp_path / "a.tgz")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.tgz is not a complete \.tgz archive \(.*\); download"):
        iwslt14.Archive(path)
    member = tarfile.TarInfo("train.tags.de-en.de")
    member.size = -512
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(2**10))
    with pytest.raises(UserError, match=r"a\.tgz is not a complete \.tgz archive \(.*\); download"):
        iwslt14.Archive(path)


def test_download_checks_the_file(tmp_path):
    source = write_iwslt(tmp_path / "source.tgz")
    md5 = hashlib.md5(source.read_bytes()).hexdigest()
    got = iwslt14.download(tmp_path / "out", source.as_uri(), md5)
    assert got.read_bytes() == source.read_bytes()
    source.unlink()  # not needed a second time
    assert iwslt14.download(tmp_path / "out", source.as_uri(), md5) == got
    with pytest.raises(UserError, match=f"has MD5 {md5}, not 0.*--archive"):
        iwslt14.download(tmp_path / "out", source.as_uri(), "0" * 32)


def test_without_a_connection_the_message_asks_for_the_archive(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(iwslt14.download, "__defaults__", ((tmp_path / "no").as_uri(), "0"))
    assert iwslt14.main(["--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: file://")
    assert "--archive FILE" in error
    assert not (tmp_path / "out" / "data-bin").exists()
    assert not list((tmp_path / "out").glob("*de-en*"))

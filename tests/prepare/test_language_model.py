"""``casrnn prepare language-model``, and its commands in the documentation."""

import gzip

import pytest
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig

from fairseq_casrnn import cli
from fairseq_casrnn.data.text import read_lines, write_lines

from .conftest import commands

LINES = [f"It isn't line {i}, is it?" for i in range(50)]


def prepare(*argv):
    return cli.main(["prepare", "language-model", *map(str, argv)])


def test_words_and_splits(tmp_path, capsys):
    write_lines(tmp_path / "x.txt", ["", *LINES[:20], "\x85 ", *LINES[20:], "<pad>"])
    options = ("--train", tmp_path / "x.txt", "--out")
    assert prepare(*options, tmp_path / "out") == 0
    text = [read_lines(tmp_path / "out" / "text" / f"{name}.txt") for name in
            ("train", "valid", "test")]  # fmt: skip
    assert list(map(len, text)) == [41, 5, 5]
    wanted = [f"It is n't line {i} , is it ?" for i in range(50)]
    assert [line for part in text for line in part] == [*wanted, "< pad >"]  # in order
    printed = capsys.readouterr().out
    assert "held out: the last 5 of 51 lines for test\n" in printed
    # only words that occur once in training become <unk>
    assert "train: 41 words are not in the dictionary, such as '0'; they become <unk>" in printed
    found = (tmp_path / "out" / "data-bin" / "dict.txt").read_text().split()[::2]
    assert sorted(found) == sorted(["It", "is", "n't", "line", ",", "it", "?"])
    assert prepare(*options, tmp_path / "all", "--min-count", 1, "--lowercase") == 0
    found = (tmp_path / "all" / "data-bin" / "dict.txt").read_text().split()[::2]
    assert len(found) == 6 + 41


def test_files_for_each_split(tmp_path):
    for name, lines in (("a", LINES[:30]), ("b", LINES[30:40]), ("c", LINES[40:])):
        write_lines(tmp_path / name, lines)
    options = ("--train", tmp_path / "a", "--valid", tmp_path / "b", "--test", tmp_path / "c")
    assert prepare(*options, "--out", tmp_path / "out", "--tokenizer", "whitespace") == 0
    for name, lines in (("train", LINES[:30]), ("valid", LINES[30:40]), ("test", LINES[40:])):
        assert read_lines(tmp_path / "out" / "text" / f"{name}.txt") == lines


def test_a_folder_of_texts(tmp_path, capsys):
    """Texts are sorted by name; other files and subfolders are ignored."""
    texts = tmp_path / "texts"
    write_lines(texts / "b.txt", LINES[30:])
    (texts / "a.txt.GZ").write_bytes(gzip.compress("\n".join(LINES[:30]).encode()))
    write_lines(texts / "README.md", ["no text"])
    write_lines(texts / "._b.txt", ["of a file browser"])
    write_lines(texts / "more" / "c.txt", ["nor this"])
    (texts / "aa.TXT").write_text("\n")
    options = ("--tokenizer", "whitespace", "--out", tmp_path / "out")
    assert prepare("--train", texts, *options) == 0
    text = tmp_path / "out" / "text"
    found = [read_lines(text / f"{name}.txt") for name in ("train", "valid", "test")]
    assert [line for part in found for line in part] == LINES
    assert f"reading 3 files of {texts}, but not 2 others\n" in capsys.readouterr().out
    write_lines(texts / "c.txt", ["one more"])
    assert prepare("--train", texts, *options) == 2
    assert "texts has changed since" in capsys.readouterr().err
    assert prepare("--train", texts / "more" / "..", "--valid", tmp_path, *options, "--force") == 2
    assert f"{tmp_path} has no file *.txt, *.gz or *.xz; give a text" in capsys.readouterr().err
    for name in ("c.txt", "b.txt", "a.txt.GZ"):
        (texts / name).unlink()
    assert prepare("--train", tmp_path / "out" / "text", "--valid", texts, *options, "--force") == 2
    assert f"{texts} has no text; give another with --valid" in capsys.readouterr().err


def test_text_that_is_already_tokenised(tmp_path, capsys):
    write_lines(tmp_path / "x.txt", [*LINES, "the <unk> sat"])
    options = ("--train", tmp_path / "x.txt", "--min-count", 1, "--out")
    assert prepare(*options, tmp_path / "a") == 0
    wanted = "x.txt, line 51 has <unk>, which --tokenizer penn splits; if the text is tokenised"
    assert wanted in capsys.readouterr().err
    assert prepare(*options, tmp_path / "b", "--tokenizer", "whitespace") == 0
    assert "tokenised" not in capsys.readouterr().err
    assert read_lines(tmp_path / "b" / "text" / "test.txt")[-1] == "the <unk> sat"


def test_sentencepiece(tmp_path, capsys):
    """Joined pieces give the text, also of valid and test, and there is no <unk>."""
    write_lines(tmp_path / "x.txt", [*LINES, "它 是 新的"])
    options = ("--train", tmp_path / "x.txt", "--sentencepiece", 40, "--out", tmp_path / "out")
    assert prepare(*options, "--test", tmp_path / "x.txt", "--force") == 2
    assert "must be different files" in capsys.readouterr().err
    write_lines(tmp_path / "test.txt", ["It's 它 new."])
    assert prepare(*options, "--test", tmp_path / "test.txt") == 0
    text, data = tmp_path / "out" / "text", tmp_path / "out" / "data-bin"
    (test,) = read_lines(text / "test.txt")
    bpe = SentencepieceBPE(
        SentencepieceConfig(sentencepiece_model=str(text / "sentencepiece.model"))
    )
    assert bpe.encode("It 's 它 new .") == test
    assert bpe.decode(test) == "It 's 它 new ."
    assert bpe.decode(read_lines(text / "train.txt")[0]) == "It is n't line 0 , is it ?"
    found = (data / "dict.txt").read_text().split()[::2]
    assert 20 < len(found) <= 40
    assert set(read_lines(text / "train.txt")[0].split()) <= set(found)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a\nb\nc\n", ("--sentencepiece", "0"), "--sentencepiece is 0; it must be at least 1"),
        (
            "a\nb\nc\n",
            ("--sentencepiece", "2"),
            "SentencePiece cannot find 2 pieces in the training",
        ),
        (
            "a\nb\nc\n",
            ("--sentencepiece", "9", "--min-count", "2"),
            "--min-count is for words, not for --sentencepiece; drop one of them",
        ),
        ("one\n", (), "--train has 1 line, too few to hold some out for test; give more, or a"),
        ("\n", (), "x.txt has no text"),
        ("a\nb\nc\n", ("--min-count", "9"), "no word occurs"),
        ('\n{"text": "a"}\n', (), "x.txt has JSON objects; give a file with the text alone"),
        ("a\nb\nc\n", ("--min-count", "0"), "--min-count is 0; it must be at least 1"),
    ],
)
def test_wrong_files_and_options(text, options, message, tmp_path, capsys):
    (tmp_path / "x.txt").write_text(text)
    assert prepare("--train", tmp_path / "x.txt", "--out", tmp_path / "out", *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    """The error comes before the text is read."""
    (tmp_path / "file").touch()
    options = ("--out", tmp_path / "file" / "out")
    assert prepare("--train", tmp_path / "gone", *options) == 2
    assert "out cannot be written (Not a directory); give another" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize("carry", [False, True], ids=["lines", "one text"])
def test_documentation(carry, bash, tmp_path):
    """The printed commands run, but with a tiny model."""
    write_lines(tmp_path / "text.txt", LINES)
    text = commands("casrnn prepare language-model")
    arch = "--arch dg_lstm_lm_tiny" + " --carry-state" * carry
    small = f"train language-model text {arch} -- --max-epoch 2 --batch-size 4"
    printed = bash(text.replace("train language-model text", small), tmp_path)
    assert "\nfairseq-train text/data-bin --user-dir " in printed
    assert ("--bptt 35 " in printed) == carry
    assert (" --sentence-reset" in printed) != carry
    assert "\ndg_lstm_lm_tiny seed 1: perplexity " in printed
    assert (" tokens, continuous, " in printed) == carry
    assert "warning: " not in printed
    last = "next: casrnn perplexity"
    (again,) = [line[6:] for line in printed.splitlines() if line.startswith(last)]
    value = printed.splitlines()[-1].split(" valid, ")[1].split(" test")[0]
    assert value in bash(again, tmp_path)

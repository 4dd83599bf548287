"""``casrnn prepare translation``, and its commands in the documentation."""

import gzip
import json
import random
import re
from itertools import chain
from pathlib import Path

import pytest

from fairseq_casrnn import cli
from fairseq_casrnn.data.text import read_lines, write_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.packed import task_options, unpacked
from fairseq_casrnn.prepare.splitting import hold_out_missing
from fairseq_casrnn.prepare.translation import drop_repeated
from fairseq_casrnn.recipes.train_command import find_recipe
from fairseq_casrnn.reranking.prepare import units

from .conftest import commands

WORDS = {"Hund": "dog", "Katze": "cat", "läuft": "runs", "schläft": "sleeps", "Haus": "house"}


def pairs(count=80):
    """Pairs without duplicates."""
    rng = random.Random(0)
    for i in range(count):
        chosen = rng.choices(list(WORDS), k=rng.randint(1, 5))
        source, target = (" ".join(row) for row in (chosen, [WORDS[word] for word in chosen]))
        yield f"{source}, {i}.", f"{target.capitalize()}, {i}."


def write_files(folder, rows, name="train"):
    for code, side in zip(("de", "en"), zip(*rows, strict=True), strict=True):
        write_lines(folder / f"{name}.{code}", side)
    return folder / f"{name}.de", folder / f"{name}.en"


def prepare(*argv):
    has_units = "--bpe-operations" in argv or "--sentencepiece" in argv
    options = () if has_units else ("--bpe-operations", 20)
    return cli.main(["prepare", "translation", *map(str, (*argv, *options))])


def prepared_pairs(out):
    """The tokenised pairs of each split."""
    return {
        split: list(zip(*(read_lines(out / "text" / f"{split}.tok.{code}") for code in
                          ("de", "en")), strict=True))
        for split in ("train", "valid", "test")
    }  # fmt: skip


def test_two_files_or_one(tmp_path, capsys):
    rows = list(pairs())
    files = write_files(tmp_path, rows)
    packed = [file.with_name(f"{file.name}.GZ") for file in files]
    for file, path in zip(files, packed, strict=True):
        path.write_bytes(gzip.compress(file.read_bytes()))
    assert prepare("--train", *packed, "--out", tmp_path / "a") == 0
    assert prepare("--train", *files, "--out", tmp_path / "a") == 2
    names = [" ".join(map(str, paths)) for paths in (packed, files)]
    assert f"was prepared with --train {names[0]}, not {names[1]}; giv" in capsys.readouterr().err
    write_lines(tmp_path / "x.tsv", (f"{a}\t{b}\tcredit" for a, b in rows))
    options = ("--source-lang", "de", "--target-lang", "en")
    assert prepare("--train", tmp_path / "x.tsv", *options, "--out", tmp_path / "b") == 0
    found = prepared_pairs(tmp_path / "a")
    assert found == prepared_pairs(tmp_path / "b")
    assert {name: len(part) for name, part in found.items()} == {
        "train": 64, "valid": 8, "test": 8
    }  # fmt: skip
    wanted = {(a.lower().replace(",", " ,")[:-1] + " .", b.lower().replace(",", " ,")[:-1] + " .")
              for a, b in rows}  # fmt: skip
    assert {pair for part in found.values() for pair in part} == wanted
    raw = read_lines(tmp_path / "a" / "text" / "test.raw.en")
    assert [line.lower().replace(",", " ,")[:-1] + " ." for line in raw] == [
        target for _, target in found["test"]
    ]


@pytest.mark.parametrize(
    ("first", "is_header"),
    [("de\ten", True), (" SRC\tTgt\tcredit", True), ("de\tof", False)],
)
def test_a_header_and_further_columns(first, is_header, tmp_path, capsys):
    """Header and columns are left out with a message; a first row may also be a pair."""
    rows = [f"{a}\t{b}" for a, b in pairs()]
    rows[3] += "\tcredit\t7"
    write_lines(tmp_path / "x.tsv", [first, *rows, ""])
    options = ("--source-lang", "de", "--target-lang", "en", "--out", tmp_path / "out")
    assert prepare("--train", tmp_path / "x.tsv", *options) == 0
    assert sum(map(len, prepared_pairs(tmp_path / "out").values())) == 80 + (not is_header)
    printed = capsys.readouterr().out
    names = ", ".join(first.split("\t")[:2])
    told = f"train: the first row, left out as a header: {names}\n"
    assert (told in printed) == is_header
    wanted = "train: lines with more than two columns, of which the first two are used: 1\n"
    assert wanted in printed


@pytest.mark.parametrize("first", ["en\tde", "tgt\tsrc\tcredit"])
def test_columns_in_the_other_order(first, tmp_path, capsys):
    write_lines(tmp_path / "x.tsv", [first, "a\tb"])
    options = ("--source-lang", "de", "--target-lang", "en", "--out", tmp_path / "out")
    assert prepare("--train", tmp_path / "x.tsv", *options) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: the first line of {tmp_path / 'x.tsv'} names the columns ")
    assert "write the source first, or exchange --source-lang" in error


def test_sentencepiece(tmp_path, capsys):
    """Both sides share one model, and joined pieces give the tokenised text."""
    files = write_files(tmp_path, pairs())
    command = ("--train", *files, "--out", tmp_path / "out", "--sentencepiece")
    assert prepare(*command, 0) == 2
    assert "--sentencepiece is 0; it must be at least 1" in capsys.readouterr().err
    assert prepare(*command, 60) == 0
    text, data = tmp_path / "out" / "text", tmp_path / "out" / "data-bin"
    for code in ("de", "en"):
        whole, cut = (read_lines(text / f"test.{kind}.{code}") for kind in ("tok", "spm"))
        assert [line.replace(" ", "").replace("▁", " ").strip() for line in cut] == whole
        pieces = {
            piece for line in read_lines(text / f"train.spm.{code}") for piece in line.split()
        }
        names = (data / f"dict.{code}.txt").read_text().split()[::2]
        assert {name for name in names if not name.startswith("madeupword")} == pieces
    assert not (text / "bpe.codes").exists()
    with pytest.raises(UserError, match="has SentencePiece units, which reranking cannot"):
        units(tmp_path / "out")
    assert prepare(*command, 70) == 2
    assert "was prepared with --sentencepiece 60, not 70" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        prepare(*command, 60, "--bpe-operations", 20)
    assert "--bpe-operations: not allowed with argument --sent" in capsys.readouterr().err


def test_held_out_parts_of_another_size():
    """A tenth of the pairs exceeds the maximum, which needs no message."""
    sources = [f"text {i}" for i in range(60)]
    note = {"held out": "a tenth of them for each of valid and test (--split-seed 1)"}
    for keys, most, size in ((sources, None, 6), (sources, 2, 2), (sources[:4], None, 1)):
        splits = {"train": keys}
        assert hold_out_missing(splits, keys, None, 1, " of them", most) == note
        assert len(splits["valid"]) == len(splits["test"]) == size
        assert sorted(chain(*splits.values())) == sorted(keys)
    keys = ["same"] * 40 + sources[:20]
    splits = {"train": keys}
    assert hold_out_missing(splits, keys, None, 1, " of them") == note | {
        f"held out for {name}": "2 of 60 instead of about 6, since identical texts stay together"
        for name in ("valid", "test")
    }
    assert sorted(map(len, splits.values())) == [2, 2, 56]


def test_too_many_files(tmp_path, capsys):
    files = [*write_files(tmp_path, pairs()), tmp_path / "train.fr"]
    assert prepare("--train", *files, "--out", tmp_path / "out") == 2
    assert "--train has 3 files; give two, or one with tabs" in capsys.readouterr().err


def test_the_same_files_for_training_and_test(tmp_path, capsys):
    files = write_files(tmp_path, pairs(20))
    assert prepare("--train", *files, "--test", *files, "--out", tmp_path / "out") == 2
    assert "every source of --train is also in --valid or --test" in capsys.readouterr().err


def test_cleaning(tmp_path, capsys):
    """Repeated pairs, sources of valid and test, and empty, long and uneven pairs are dropped."""
    rows = list(pairs(40))
    test, valid = rows[:4], rows[4:8]
    train = [*rows[6:], rows[20], (rows[0][0], "Another translation."), ("", "Nothing."),
             ("lang " * 9, "long " * 9), ("kurz", "not so short at all, it is"),
             ("Ja", "Yes, it is")]  # fmt: skip
    files = [write_files(tmp_path, part, name) for name, part in
             (("train", train), ("valid", valid), ("test", test))]  # fmt: skip
    options = [word for name, pair in zip(("train", "valid", "test"), files, strict=True)
               for word in (f"--{name}", *pair)]  # fmt: skip
    options += ["--max-length", "8", "--max-ratio", "5", "--bpe-operations", "0"]
    assert prepare(*options, "--out", tmp_path / "out") == 0
    found = prepared_pairs(tmp_path / "out")
    assert [len(found[name]) for name in ("train", "valid", "test")] == [33, 4, 4]
    printed = capsys.readouterr().out
    for line in (
        "repeated pairs, left out of train: 1",
        "pairs whose source is in valid or test, left out of train: 3",
        "empty, too long or too different in length, left out of train: 3",
    ):
        assert f"{line}\n" in printed


def test_long_pairs_are_not_held_out(tmp_path, capsys):
    """A model could not validate or be evaluated with them."""
    rows = list(pairs(60)) + [(f"lang {i} " * 5, f"long {i} " * 5) for i in range(60)]
    files = write_files(tmp_path, rows)
    options = ["--max-length", "8", "--bpe-operations", "0", "--out", tmp_path / "out"]
    assert prepare("--train", *files, *options) == 0
    found = prepared_pairs(tmp_path / "out")
    assert all(len(side.split()) <= 8 for part in found.values() for pair in part for side in pair)
    printed, left_out = capsys.readouterr().out, 0
    for part in ("valid", "test"):
        count = re.search(f"longer than --max-length, left out of {part}: ([0-9]+)\n", printed)[1]
        assert len(found[part]) + int(count) == 12
        left_out += int(count)
    assert f"empty, too long or too different in length, left out of train: {60 - left_out}\n" in (
        printed
    )
    raw = [read_lines(tmp_path / "out" / "text" / f"test.raw.{code}") for code in ("de", "en")]
    assert [len(side) for side in raw] == [len(found["test"])] * 2


def test_long_pairs_of_a_given_split_are_kept_and_counted(tmp_path, capsys):
    rows, long = list(pairs(40)), [("lang " * 9, "long " * 9)]
    train = write_files(tmp_path, rows[:30])
    valid = write_files(tmp_path, rows[30:] + long, "valid")
    options = ["--max-length", "8", "--bpe-operations", "0", "--out", tmp_path / "out"]
    assert prepare("--train", *train, "--valid", *valid, *options) == 0
    assert len(prepared_pairs(tmp_path / "out")["valid"]) == 11
    assert "longer than --max-length, but kept in valid: 1\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("x.tsv", "a\tb\nc\n", ("de", "en"), "x.tsv, line 2 has no tab; write SOURCE<TAB>TARGET"),
        ("x.tsv", "a\tb\n", (), "x.tsv is a single file; give --source-lang and --target-lang if"),
        (
            "x.tsv",
            "11\ta b\t12\tc d\n13\ta\t15\tc\n\n",
            ("de", "en"),
            "x.tsv: column 1 has numbers, such as '11'; write SOURCE<TAB>TARGET in the first two",
        ),
        ("x.tsv", "Source\tTarget\n", ("de", "en"), "x.tsv has a header but no rows; give a file"),
        ("x.tsv", "a\t0.5\nb\t0.75\n", ("de", "en"), "x.tsv: column 2 has numbers, such as '0.5"),
        ("x.tsv", "a\tb\n", ("german", "en"), "--source-lang is german; give a code such as de"),
        ("x.tsv", "a\tb\n", ("de", "de"), "source and target are both de; give different codes w"),
        ("x.tsv", "a\tb\n", ("de", "en"), "--train has 1 different example, too few to hold some"),
    ],
)
def test_bad_files(name, text, options, message, tmp_path, capsys):
    (tmp_path / name).write_text(text)
    named = [word for pair in zip(("--source-lang", "--target-lang"), options, strict=False)
             for word in pair]  # fmt: skip
    assert prepare("--train", tmp_path / name, *named, "--out", tmp_path / "out") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_changed_file(tmp_path, capsys):
    """Either of the two files may have changed."""
    files = [tmp_path / "x.de", tmp_path / "x.en"]
    for file in files:
        file.write_text("".join(f"a b {i}\n" for i in range(40)))
    command = ["prepare", "translation", "--out", str(tmp_path / "out"), "--bpe-operations", "0"]
    command += ["--train", *map(str, files)]
    assert cli.main(command) == 0
    assert cli.main(command) == 0
    files[1].write_text(files[1].read_text().replace("a", "c"))
    assert cli.main(command) == 2
    assert f"{files[1]} has changed since" in capsys.readouterr().err


def test_files_of_different_lengths(tmp_path, capsys):
    files = write_files(tmp_path, pairs(20))
    write_lines(files[1], ["one"])
    assert prepare("--train", *files, "--out", tmp_path / "out") == 2
    assert "train.de has 20 lines but " in capsys.readouterr().err


def test_settings_depend_on_the_size(tmp_path):
    (tmp_path / "text").mkdir()
    for tokens, updates in ((10_000, 720), (100_000, 5000), (1_000_000, 12_000)):
        notes = {"train tokens, of the longer sides": tokens}
        (tmp_path / "text" / "prepare.json").write_text(json.dumps(notes))
        settings = find_recipe("translation", tmp_path).settings
        assert settings["max-update"] == settings["total-num-update"] == str(updates)


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    """The error comes before the text is read."""
    (tmp_path / "file").touch()
    options = ("--source-lang", "de", "--target-lang", "en", "--out", tmp_path / "file" / "out")
    assert prepare("--train", tmp_path / "gone", *options) == 2
    assert "out cannot be written (Not a directory); give another" in capsys.readouterr().err


@pytest.mark.full
def test_documentation(bash, tmp_path):
    """The printed commands run, but with a tiny model."""
    write_files(tmp_path, pairs())
    small = "--arch cas_lstm_tiny -- --max-update 8"
    text = commands("casrnn prepare translation")
    text = text.replace("train.de train.en", "train.de train.en --bpe-operations 20")
    text = text.replace("seed1", "seed1 --input corpus/text/test.raw.de")
    text = text.replace('echo "Der Hund schläft." | ', "").replace(
        "cas_lstm_iwslt", "cas_lstm_tiny"
    )
    text = text.replace("train translation corpus", f"train translation corpus {small}")
    printed = bash(text, tmp_path)
    run = tmp_path / "corpus" / "out" / "cas_lstm_tiny" / "seed1"
    header, *rows = (run / "test.predictions.tsv").read_text().splitlines()
    assert header == "source\treference\ttranslation"
    test = [read_lines(tmp_path / "corpus/text" / f"test.raw.{code}") for code in ("de", "en")]
    assert [tuple(row.split("\t")[:2]) for row in rows] == list(zip(*test, strict=True))
    assert "cas_lstm_tiny seed 1: BLEU " in printed
    found = [line.split("\t")[2] for line in rows]
    assert found == printed.splitlines()[-len(found) :]


@pytest.mark.full
def test_translation_in_pieces(bash, tmp_path):
    """Evaluation and translation join them, also with the packed model."""
    write_files(tmp_path, pairs())
    printed = bash(
        "casrnn prepare translation --train train.de train.en --out x --sentencepiece 60; "
        "casrnn train translation x --arch cas_lstm_tiny -- --max-update 60 --lr 0.02 --cpu; "
        "casrnn evaluate x; casrnn pack x/out/cas_lstm_tiny/seed1 --output x.casrnn; mv x y; "
        "cat y/text/test.raw.de | casrnn translate --path x.casrnn",
        tmp_path,
    )
    run = tmp_path / "y" / "out" / "cas_lstm_tiny" / "seed1"
    _, *rows = (run / "test.predictions.tsv").read_text().splitlines()
    found = [line.split("\t")[2] for line in rows]
    assert found == printed.splitlines()[-len(found) :]
    assert "▁" not in "".join(found)
    text = (run / "generated.checkpoint_best.beam10.txt").read_text()
    joined = dict(re.findall(r"^T-(\d+)\t(.*)$", text, re.MULTILINE))
    whole = read_lines(tmp_path / "y" / "text" / "test.tok.en")
    assert joined == {str(number): line for number, line in enumerate(whole)}
    options = task_options(unpacked(tmp_path / "x.casrnn"))
    pieces = (tmp_path / "y" / "text" / "sentencepiece.model").read_bytes()
    assert Path(options["sentencepiece_model"]).read_bytes() == pieces
    assert (options["bpe"], options["tokenizer"]) == ("sentencepiece", "moses_lowercase")


def test_held_out_sources_are_compared_without_surrounding_spaces():
    raw = {
        "train": [("ja ", "yes"), ("nein", "no"), ("nein", "no"), ("", "x")],
        "valid": [("ja", "yes")],
        "test": [("", "y")],
    }
    notes = {}
    assert drop_repeated(raw, notes) == [("nein", "no"), ("", "x")]
    assert list(notes.values()) == [1, 1]

"""The prepared folder of a translation corpus, and errors while it is made."""

import errno
import json
import os
import resource
import subprocess
import sys

import pytest
from corpora import pairs, write_multi30k
from sentencepiece import SentencePieceProcessor

from fairseq_casrnn.data import translation
from fairseq_casrnn.data.corpora import multi30k
from fairseq_casrnn.data.subwords import apply_bpe, learn_joint_bpe, learn_pieces
from fairseq_casrnn.errors import UserError


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("multi30k")
    raw = write_multi30k(folder / "raw")
    out = folder / "out"
    assert multi30k.main(["--raw", str(raw), "--out", str(out), "--bpe-operations", "40"]) == 0
    return raw, out


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_all_files_are_written(prepared):
    _, out = prepared
    assert sorted(path.name for path in out.iterdir()) == ["data-bin", "text"]
    text = out / "text"
    for split, count in (("train", 120), ("valid", 16), ("test", 13)):
        for lang in ("de", "en"):
            assert len(lines(text / f"{split}.tok.{lang}")) == count
            bpe = lines(text / f"{split}.bpe.{lang}")
            assert [line.replace("@@ ", "") for line in bpe] == lines(text / f"{split}.tok.{lang}")
            assert (out / "data-bin" / f"{split}.de-en.{lang}.bin").exists()
    assert lines(text / "test.raw.de")[0].lower()[:-1] + " ." == lines(text / "test.tok.de")[0]
    notes = json.loads((text / "prepare.json").read_text())
    assert notes["train pairs"] == 120
    assert len(lines(text / "bpe.codes")) == 41


def test_dictionaries_are_separate_and_from_training(prepared):
    from fairseq.data import Dictionary

    _, out = prepared
    for lang in ("de", "en"):
        dictionary = Dictionary.load(str(out / "data-bin" / f"dict.{lang}.txt"))
        types = {
            token for line in lines(out / "text" / f"train.bpe.{lang}") for token in line.split()
        }
        assert types == {s for s in dictionary.symbols[4:] if not s.startswith("madeupword")}


def test_a_second_call_does_nothing_unless_forced(prepared, capsys):
    raw, out = prepared
    before = (out / "data-bin" / "dict.de.txt").stat().st_mtime_ns
    command = ["--raw", str(raw), "--out", str(out), "--bpe-operations", "40"]
    assert multi30k.main(command) == 0
    assert f"already prepared, from {raw}; --force" in capsys.readouterr().out
    assert multi30k.main([*command[:-1], "50"]) == 2
    assert "prepared with --bpe-operations 40, not 50" in capsys.readouterr().err
    assert (out / "data-bin" / "dict.de.txt").stat().st_mtime_ns == before
    (out / "checkpoints").mkdir()  # a folder of the user, which must be kept
    assert multi30k.main([*command, "--force"]) == 0
    assert (out / "data-bin" / "dict.de.txt").stat().st_mtime_ns > before
    (out / "checkpoints").rmdir()
    assert sorted(path.name for path in out.iterdir()) == ["data-bin", "text"]


def test_words_without_bpe(prepared, tmp_path):
    raw, _ = prepared
    assert multi30k.main(["--raw", str(raw), "--out", str(tmp_path), "--bpe-operations", "0"]) == 0
    assert not (tmp_path / "text" / "bpe.codes").exists()
    words = {line.split()[0] for line in lines(tmp_path / "data-bin" / "dict.en.txt")}
    assert {"three", "house", "."} <= words


def damaged(raw, tmp_path, name, content):
    folder = tmp_path / "raw"
    folder.mkdir()
    for path in raw.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test_2016_flickr.en", None, r"holds no test_2016_flickr\.en"),
        ("test_2016_flickr.en", b"one line\n", r"test_2016_flickr\.de has 13 lines but .* has 1"),
        ("train.raw.de.gz", b"junk", "not a complete gzip file"),
    ],
)
def test_a_bad_file_leaves_nothing(prepared, tmp_path, capsys, name, content, message):
    folder = damaged(prepared[0], tmp_path, name, content)
    out = tmp_path / "out"
    assert multi30k.main(["--raw", str(folder), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(error)
    assert not out.exists()


def test_an_error_later_keeps_the_old_result(prepared, monkeypatch, capsys):
    raw, out = prepared
    before = (out / "data-bin" / "dict.de.txt").read_bytes()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "train.bpe.de")

    monkeypatch.setattr(translation, "apply_bpe", full)
    assert multi30k.main(["--raw", str(raw), "--out", str(out), "--force"]) == 2
    assert capsys.readouterr().err == (
        f"error: could not write {out} (No space left on device); free some space and run the "
        "command again\n"
    )
    assert sorted(path.name for path in out.iterdir()) == ["data-bin", "text"]
    assert (out / "data-bin" / "dict.de.txt").read_bytes() == before


def test_a_limit_on_file_sizes(prepared, tmp_path):
    """A child process really cannot write more than 3 kB to a file."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "fairseq_casrnn.data.corpora.multi30k"]
    done = subprocess.run(
        [*command, "--raw", str(prepared[0]), "--out", str(out), "--bpe-operations", "40"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"error: could not write {out} (File too large); free some space and run the command again"
    )
    assert not out.exists()


def test_a_training_pair_with_an_empty_side_is_dropped(tmp_path):
    raw = write_multi30k(tmp_path / "raw")
    for lang in ("de", "en"):
        (raw / f"train.raw.{lang}.gz").unlink()
    (raw / "train.de").write_text("Ein Hund.\n\nEine Katze.\n")
    (raw / "train.en").write_text("A dog.\nNothing.\nA cat.\n")
    corpus = multi30k.read_corpus(raw)
    assert corpus.splits["train"] == [("ein hund .", "a dog ."), ("eine katze .", "a cat .")]
    assert corpus.notes == {"training pairs dropped": 1}


def test_bpe_is_learned_jointly(tmp_path):
    german, english = ["hundehund hunde"] * 3, ["underneath"] * 3
    learn_joint_bpe((german, english), 6, tmp_path / "codes")
    merges = lines(tmp_path / "codes")[1:]
    # they occur four times each only if both sides are counted
    assert merges[:2] == ["u n", "un d"]
    units = apply_bpe(["hundehund underneath"], tmp_path / "codes")[0]
    assert units.replace("@@ ", "") == "hundehund underneath"
    assert len(units.split()) < len("hundehundunderneath")


def test_fewer_subword_units_than_asked(tmp_path, capsys):
    text = ["aa ab aa abc", "ab aa"]
    learn_joint_bpe((text, []), 2, tmp_path / "codes")
    assert not capsys.readouterr().out
    learn_joint_bpe((text, []), 5, tmp_path / "codes")
    wanted = "learnt 2 BPE merges; the training text is too small for 5\n"
    assert capsys.readouterr().out == wanted
    text = [f"line {number} of a text" for number in range(50)]
    size = SentencePieceProcessor(model_proto=learn_pieces(text, 100)).get_piece_size()
    wanted = f"learnt {size} pieces of SentencePiece; the training text is too small for 100\n"
    assert capsys.readouterr().out == wanted
    learn_pieces(text, size)
    assert not capsys.readouterr().out


def test_too_little_text_for_bpe(tmp_path):
    with pytest.raises(UserError, match="too small"):
        learn_joint_bpe((["a b"], ["c"]), 5, tmp_path / "codes")


def test_an_empty_split_is_refused():
    splits = {"train": pairs(2), "valid": [], "test": pairs(2)}
    corpus = translation.ParallelCorpus("de", "en", splits, splits["test"])
    with pytest.raises(UserError, match="no sentence pair is left for valid"):
        corpus.check()

"""Damaged, missing or empty data in ``fairseq-train`` gives one sentence that names the file."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset

from fairseq_casrnn.checks.binarised import check_binarised
from fairseq_casrnn.data.streams import whole_text
from fairseq_casrnn.diagnostics.explain import explained
from fairseq_casrnn.errors import UserError

from .commands import preprocess, write_corpus

SOURCE = "train.xx-yy.xx"


def an_empty_set(folder: Path) -> None:
    index = folder / f"{SOURCE}.idx"
    header = index.read_bytes()[:18]  # magic, version, type
    index.write_bytes(header + bytes(8))
    (folder / f"{SOURCE}.bin").write_bytes(b"")


def odd_lengths(folder: Path) -> None:
    for ending in ("idx", "bin"):
        shutil.copy(folder / f"valid.xx-yy.yy.{ending}", folder / f"train.xx-yy.yy.{ending}")


def cut(name: str, size: int):
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:size])

    return spoil


def write(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (an_empty_set, f"{SOURCE}.bin holds no sentence"),
        (odd_lengths, f"{SOURCE} has 40 sentences but .*train.xx-yy.yy has 6; run fairseq-prepro"),
        (cut(f"{SOURCE}.bin", -2), f"{SOURCE}.bin is truncated or does not belong to its .idx"),
        (cut(f"{SOURCE}.idx", 0), f"{SOURCE}.idx is not an index of fairseq-preprocess"),
        (cut("dict.xx.txt", 8), "xx.bin contains token number .*dict.xx.txt has only . entries"),
        (write("dict.xx.txt", "hello\n"), "dict.xx.txt has a line without a count, 'hello';"),
        (write("dict.xx.txt", "a 1\na 2\n"), "dict.xx.txt lists 'a' twice"),
        (lambda folder: (folder / "dict.xx.txt").unlink(), "dict.xx.txt does not exist"),
    ],
)
def test_damaged_data(fairseq, copied_data, spoil, sentence):
    spoil(copied_data)
    assert re.search(f"{copied_data}/.*{sentence}", fairseq.train(copied_data).sentence)


def change(name: str, place: int, value: int):
    """Add ``value`` to a byte of a file."""

    def spoil(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[place] = (content[place] + value) % 256
        (folder / name).write_bytes(content)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (change(f"{SOURCE}.idx", 9, 1), "is not an index"),  # version 2
        (change(f"{SOURCE}.idx", 17, -2), "is not an index"),  # floating point
        (change(f"{SOURCE}.idx", 29, 128), "is damaged: lengths and positions of"),
        (change(f"{SOURCE}.idx", 26, 1), "is damaged: lengths and positions of"),
        (change(f"{SOURCE}.idx", -8, 2), "is damaged: lengths and positions of"),
        (cut(f"{SOURCE}.bin", 0), "has 0 bytes instead of"),
        (cut(f"{SOURCE}.bin", 10), "has 10 bytes instead of"),
        (cut(f"{SOURCE}.idx", 10), "is not an index"),
        (cut(f"{SOURCE}.idx", 40), r"\.idx is truncated: it has 40 bytes instead of 506"),
        (cut(f"{SOURCE}.idx", -1), r"\.idx is truncated: it has 505 bytes instead of 506"),
        (an_empty_set, "holds no sentence"),
    ],
)
def test_check_of_binarised_data(copied_data, spoil, sentence):
    path = str(copied_data / SOURCE)
    check_binarised(path)
    spoil(copied_data)
    with pytest.raises(UserError, match=f"{path}.*{sentence}"):
        check_binarised(path)


@pytest.fixture(scope="module")
def old_data(fairseq, tmp_path_factory) -> Path:
    """Data in fairseq's older format, read by --dataset-impl lazy or cached; do not change it."""
    text = write_corpus(tmp_path_factory.mktemp("old"))
    assert preprocess(fairseq, text, "--dataset-impl", "lazy").status == 0
    return text / "bin"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (cut(f"{SOURCE}.bin", 20), f"{SOURCE}.bin is truncated .*: it has 20 bytes instead of 788"),
        (cut(f"{SOURCE}.idx", 20), f"{SOURCE}.idx is truncated: it has 20 bytes instead of"),
        (cut(f"{SOURCE}.idx", -8), f"{SOURCE}.idx is truncated: it has 1016 bytes instead of 1024"),
        (cut(f"{SOURCE}.idx", 5), f"{SOURCE}.idx is not an index of fairseq-preprocess"),
        (cut("dict.xx.txt", 8), "xx.bin contains token number 11, .* has only 6 entries"),
        (change(f"{SOURCE}.idx", 8, 1), f"{SOURCE}.idx is not an index of fairseq-preprocess"),
        (change(f"{SOURCE}.idx", 24, 1), f"{SOURCE}.idx is damaged: lengths and positions"),
        (change(f"{SOURCE}.idx", 56, 1), f"{SOURCE}.idx is damaged: lengths and positions"),
        (change(f"{SOURCE}.idx", 48 + 8 * 41 + 8, 1), f"{SOURCE}.idx is damaged: lengths and pos"),
        (change(f"{SOURCE}.idx", 48 + 8 * 82 - 8, 1), f"{SOURCE}.idx is damaged: lengths and pos"),
        (change(f"{SOURCE}.idx", -8, 1), f"{SOURCE}.idx is damaged: lengths and positions"),
        (change(f"{SOURCE}.bin", 3, 128), "xx.bin contains token number -21474836.., but"),
    ],
)
@pytest.mark.parametrize("impl", ["lazy", "cached"])
def test_damaged_old_data(old_data, tmp_path, impl, spoil, sentence):
    folder = shutil.copytree(old_data, tmp_path / "copied_data")

    def check():
        dictionary = Dictionary.load(str(folder / "dict.xx.txt"))
        return indexed_dataset.make_dataset(f"{folder}/{SOURCE}", impl, True, dictionary)

    assert len(check()) == 40
    spoil(folder)
    with pytest.raises(UserError, match=f"{folder}/.*{sentence}"):
        check()


def test_old_data_as_one_text(old_data):
    """fairseq reads such data as cached unless --dataset-impl is given."""
    dataset = indexed_dataset.make_dataset(f"{old_data}/{SOURCE}", "cached", True)
    sentence = "bin does not work with --dataset-impl cached; give --dataset-impl lazy"
    with pytest.raises(UserError, match=sentence), explained():
        whole_text(dataset)


@pytest.mark.full
def test_old_data_in_training(fairseq, data, old_data, tmp_path):
    assert fairseq.train(old_data, "--dataset-impl", "lazy").status == 0
    sentence = fairseq.train(old_data).sentence
    assert "bin does not work with --dataset-impl cached; give --dataset-impl lazy" in sentence
    for folder, impl in ((old_data, "mmap"), (data, "lazy")):
        sentence = fairseq.train(folder, "--dataset-impl", impl).sentence
        assert f"{folder}/valid.xx-yy.xx.idx is not an index of fairseq-prepro" in sentence
        assert "or check --dataset-impl" in sentence
    short = shutil.copytree(old_data, tmp_path / "short")
    (short / "dict.xx.txt").write_text("a 1\n")
    for impl in ("lazy", "cached"):
        sentence = fairseq.train(short, "--dataset-impl", impl).sentence
        assert f"but {short}/dict.xx.txt has only 5 entries" in sentence


@pytest.mark.parametrize("impl", ["mmap", "lazy"])
def test_blank_data(fairseq, tmp_path, impl):
    """fairseq-preprocess makes such data if this package is not loaded."""
    builder = indexed_dataset.make_builder(f"{tmp_path}/train.xx-yy.xx.bin", impl, 16)
    for _ in range(40):
        builder.add_item(torch.tensor([Dictionary().eos()], dtype=torch.int32))
    builder.finalize(f"{tmp_path}/train.xx-yy.xx.idx")
    for name in ("train", "test"):
        for ending in ("bin", "idx"):
            shutil.copy(tmp_path / f"train.xx-yy.xx.{ending}", tmp_path / f"{name}.yy.{ending}")
    with pytest.raises(UserError, match=f"^{tmp_path}/train.yy.bin only holds blank lines"):
        indexed_dataset.make_dataset(f"{tmp_path}/train.yy", impl, True, Dictionary())
    # the translations of a test set may be unknown
    assert len(indexed_dataset.make_dataset(f"{tmp_path}/test.yy", impl, True, Dictionary())) == 40


def test_check_of_tokens(data, tmp_path):
    dictionary = Dictionary.load(str(data / "dict.xx.txt"))
    check_binarised(str(data / SOURCE), dictionary)
    largest = max(i for i, symbol in enumerate(dictionary.symbols) if "madeup" not in symbol)
    dictionary.symbols = dictionary.symbols[: largest + 1]
    check_binarised(str(data / SOURCE), dictionary)
    dictionary.symbols.pop()
    with pytest.raises(UserError, match=f"token number {largest}, but {data}/dict.xx.txt has only"):
        check_binarised(str(data / SOURCE), dictionary)
    for ending in ("idx", "bin"):
        shutil.copy(data / f"{SOURCE}.{ending}", tmp_path / f"train.{ending}")
    (tmp_path / "dict.txt").touch()
    with pytest.raises(UserError, match=f"token number {largest}, but {tmp_path}/dict.txt has on"):
        check_binarised(str(tmp_path / "train"), dictionary)


@pytest.mark.full
def test_no_data(fairseq, data, tmp_path):
    (tmp_path / "empty").mkdir()
    sentence = fairseq.train(tmp_path / "nowhere").sentence
    assert sentence == f"{tmp_path}/nowhere does not exist; check the path"
    sentence = fairseq.train(tmp_path / "empty").sentence
    assert f"{tmp_path}/empty holds no binarised translation data" in sentence
    sentence = fairseq.train(data / "dict.xx.txt").sentence
    assert sentence == f"{data}/dict.xx.txt cannot be used (Not a directory); check the path"

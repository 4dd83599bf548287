"""The documentation's four commands from one's own data to answers of a classifier."""

import json
import shutil

import pytest
from labelled_corpora import sentences

from .conftest import commands


@pytest.fixture(scope="module")
def printed(bash, tmp_path_factory):
    """A folder in which the commands ran, and their output."""
    folder = tmp_path_factory.mktemp("own")
    rows = [f"{text.capitalize()}!\t{'pos' if good else 'neg'}" for text, good in sentences(80)]
    (folder / "reviews.tsv").write_text("text\tlabel\n" + "".join(f"{row}\n" for row in rows))
    return folder, bash(commands("casrnn prepare classification", "README.md"), folder)


def test_documentation(printed):
    """README and docs/own-data.md have the same commands."""
    readme, page = (commands("casrnn prepare classification", page) for page in
                    ("README.md", "docs/own-data.md"))  # fmt: skip
    without = [line.partition("#")[0].rstrip() for line in readme.splitlines()]
    assert without == page.splitlines()
    _, text = printed
    for line in (
        "columns: text: text, label: label",
        "held out: a tenth of each class for each of valid and test (--split-seed 1)",
        "prepared reviews/data-bin",
        "fairseq-train reviews/data-bin --user-dir ",
        "predictions: reviews/out/bicas2/seed1/test.predictions.tsv",
    ):
        assert f"\n{line}" in f"\n{text}"
    assert "--batch-size 8 " in text  # there are few examples
    label, probability = text.splitlines()[-1].split("\t")
    assert label in ("neg", "pos")
    assert 0.5 <= float(probability) <= 1


def read(path):
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    return [dict(zip(header.split("\t"), row.split("\t"), strict=True)) for row in rows]


def test_predictions_show_the_original_text(printed):
    folder, text = printed
    run = folder / "reviews" / "out" / "bicas2" / "seed1"
    rows, wrong = (read(run / f"test.{name}.tsv") for name in ("predictions", "errors"))
    source = (folder / "reviews.tsv").read_text().splitlines()
    assert f"\ntest sentences: {len(rows)}\n" in text
    for row in rows:
        assert source[int(row["line"]) - 1] == f"{row['text']}\t{row['gold']}"
    assert wrong == sorted(
        (row for row in rows if row["gold"] != row["predicted"]),
        key=lambda row: -float(row["probability"]),
    )
    accuracy = round(100 * (1 - len(wrong) / len(rows)), 2)
    assert f"bicas2 seed 1: accuracy {accuracy:.2f}, macro-F1 " in text
    assert json.loads((run / "test.json").read_text())["accuracy"] == accuracy


def test_predict_splits_text_as_prepare_does(printed, bash):
    """casrnn predict, given raw text, finds the probabilities of casrnn evaluate."""
    folder, _ = printed
    moved = shutil.copytree(folder / "reviews", folder / "elsewhere" / "moved")
    rows = read(moved / "out" / "bicas2" / "seed1" / "test.predictions.tsv")
    (folder / "texts").write_text("".join(f"{row['text']}\n" for row in rows))
    answers = bash("casrnn predict --path moved/out/bicas2/seed1 --input ../texts", moved.parent)
    for row, answer in zip(rows, answers.splitlines(), strict=True):
        label, probability = answer.split("\t")
        assert label == row["predicted"]
        assert float(probability) == pytest.approx(float(row["probability"]), abs=2e-4)


@pytest.mark.full
def test_pairs_and_another_architecture(bash, tmp_path):
    lines = [f'{{"premise": "a man {i}", "hypothesis": "he", "label": {i % 2}}}' for i in range(40)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    out = bash(
        "casrnn prepare classification --train x.jsonl --out x; casrnn train classification x "
        "--arch cnn_sentence_encoder --seed 2 -- --max-epoch 1 --cpu; casrnn evaluate x --arch "
        "cnn_sentence_encoder --subset valid",
        tmp_path,
    )
    assert "--mlp-batch-norm" in out  # one of the settings for pairs
    assert "--arch cnn_sentence_encoder" in out
    rows = read(tmp_path / "x" / "out" / "cnn_sentence_encoder" / "seed2" / "valid.predictions.tsv")
    assert {row["pair"] for row in rows} == {"he"}


def test_word_vectors(printed, bash, tmp_path):
    """Training embeds words with a vector, and finds the vectors from any folder."""
    folder, _ = printed
    (tmp_path / "some.vec").write_text("nowhere 1 2\nfilm 3 4\n")
    for name in ("valid", "test"):
        rows = "text\tlabel\na nowhere film\tpos\nelsewhere\tneg\n"
        (tmp_path / f"{name}.tsv").write_text(rows)
    options = f"--train {folder}/reviews.tsv --valid valid.tsv --test test.tsv"
    bash(f"casrnn prepare classification {options} --vectors some.vec --out x", tmp_path)
    words = (tmp_path / "x" / "data-bin" / "input0" / "dict.txt").read_text().split()[::2]
    assert "nowhere" in words
    assert "elsewhere" not in words
    said = bash("casrnn train classification ../../x --dry-run", tmp_path / "x" / "data-bin")
    assert f" --encoder-embed-path {tmp_path}/some.vec --encoder-embed-dim 2 " in said


def test_mistakes(printed, bash):
    folder, _ = printed
    for command, error in (
        ("train classification none", "none was not filled by casrnn prepare; call casrnn"),
        ("train classification reviews --arch x", "unknown system x; choose from lstm, "),
        ("train classification reviews --seed 0", "--seed must be a positive number, not '0'"),
        ("evaluate reviews --subset dev", "dev; check the data folder and the subset's name"),
        ("evaluate reviews --unconstrained-tags", "is for taggers, not for classification; drop"),
        ("evaluate reviews --seed x", "--seed must be a positive number, not 'x'"),
        ("evaluate reviews --arch cnn", "holds no run of cnn with seed 1; train it first"),
        ("evaluate reviews/data-bin --arch cnn", "reviews/out holds no run of cnn with seed 1"),
        ("train classification reviews/data-bin --arch x", "unknown system x; choose from lstm, "),
        ("evaluate reviews --out none", "none holds no trained run"),
    ):
        said = bash(f"casrnn {command}", folder, status=2)
        assert error in said
        assert said.count("\n") == 1

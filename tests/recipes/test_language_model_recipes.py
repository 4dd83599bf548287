"""The language model recipes from raw data to perplexity, on generated texts."""

import dataclasses
import json
import re

import pytest
from language_models.common import write_text
from recipe_runs import EXAMPLES, run, stub_python
from tiers import mostly_full

from fairseq_casrnn.data.corpora import monolingual
from fairseq_casrnn.data.folder import SPLITS
from fairseq_casrnn.errors import UserError

SCRIPTS = sorted(
    script for recipe in ("ptb", "wikitext2", "dyck") for script in (EXAMPLES / recipe).glob("*.sh")
)


def write_raw(folder, names):
    folder.mkdir()
    for seed, (name, size) in enumerate(zip(names, (60, 9, 9), strict=True)):
        write_text(folder / name, size, seed)
    return folder


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return write_raw(tmp_path_factory.mktemp("ptb") / "raw", ["train.txt", "valid.txt", "test.txt"])


@pytest.fixture(scope="module")
def data(raw, tmp_path_factory):
    data = tmp_path_factory.mktemp("prepared")
    printed = run("ptb/prepare.sh", "--raw", raw, "--out", data, "--any-size")
    assert "train: 60 lines" in printed
    assert "dictionary: 23 entries, 4 of them special" in printed
    return data


def test_ptb(raw, data, tmp_path):
    run("ptb/train.sh", "--tiny", "--data", data, "--out", tmp_path)
    printed = run("ptb/evaluate.sh", "--data", data, "--out", tmp_path)
    (result,) = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    assert result["mode"] == "sentences"
    assert result["checkpoint"] == "ema"
    assert result["test_tokens"] == len((raw / "test.txt").read_text().split()) + 9
    assert f"dg_lstm_lm_tiny seed 1: perplexity {result['valid']:.2f} valid" in printed
    assert f"dg_lstm_lm_tiny seed 1: perplexity {result['valid']:.2f} valid, " in printed
    assert f" {result['test']:.2f} test (" in printed


@pytest.mark.full
def test_ptb_as_one_text(raw, data, tmp_path):
    small = ["--batch-size", 2, "--bptt", 10, "--bptt-jitter", 1]
    options = ["--data", data, "--out", tmp_path]
    run("ptb/train_carried.sh", "--tiny", *options, "--", *small)
    printed = run("ptb/evaluate_carried.sh", *options, "--cache", 20)
    (result,) = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    assert (result["mode"], result["checkpoint"]) == ("continuous", "ema")
    assert result["test_tokens"] == len((raw / "test.txt").read_text().split()) + 9 - 1
    assert f"dg_lstm_lm_tiny seed 1: perplexity {result['valid']:.2f} valid" in printed
    assert f"cache of 20 words: perplexity {result['valid_with_cache']:.2f} valid" in printed


def test_unknown_words_are_reported(tmp_path):
    raw = write_raw(tmp_path / "raw", ["train.txt", "valid.txt", "test.txt"])
    with open(raw / "test.txt", "a") as file:
        file.write("zzz <unk> w5 oov\n")
    printed = run("ptb/prepare.sh", "--raw", raw, "--out", tmp_path / "data", "--any-size")
    assert "test: 2 words are not in the dictionary, such as 'zzz'; they become <unk>" in printed
    assert "valid: 9 lines" in printed
    assert "valid: 0" not in printed


def test_an_architecture_of_translation_is_refused_by_name(data, tmp_path):
    options = ["--arch", "dg_lstm_lm_tiny,dg_lstm_iwslt", "--data", data, "--out", tmp_path / "out"]
    error = run("ptb/train.sh", *options, status=2)
    assert error.startswith(
        "error: --arch dg_lstm_iwslt is not a language model, whose names contain"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_each_kind_of_run_has_its_own_folder():
    """The evaluation of one kind would otherwise read the runs of the other."""
    for script in ("train", "train_carried", "train_paper", "train_short"):
        folder = f"out/{script[6:]}".rstrip("/")
        shown = run(f"ptb/{script}.sh", "--help", COLUMNS="999")
        assert f"(default: {EXAMPLES}/ptb/{folder})" in shown
    shown = run("ptb/evaluate_carried.sh", "--help", COLUMNS="999")
    assert f"(default: {EXAMPLES}/ptb/out/carried)" in shown


@pytest.mark.parametrize("form", ["--assignment-path={}", "--assignment-path {}"])
def test_resuming_with_another_assignment_is_refused(data, tmp_path, form):
    cells = tmp_path / "cells"
    options = ["--data", data, "--out", tmp_path, "--tiny", "--", *form.format(cells).split()]
    options += ["--batch-size", 2, "--bptt", 10]
    nothing = stub_python(tmp_path / "python", "exit 0")
    for text in ("w4 1\n", "w4 0\n"):
        cells.write_text(text)
        run("wikitext2/train.sh", *options, PYTHON=nothing)
        (identity,) = tmp_path.glob("*/seed1/identity")
        found = identity.read_text()
        (identity.parent / "finished").unlink()
        cells.write_text(text + "w5 0\n")
        run("wikitext2/train.sh", *options, PYTHON=nothing)
        assert identity.read_text() != found
        (identity.parent / "finished").unlink()


@pytest.mark.full
def test_wikitext2(raw, data, tmp_path):
    small = ["--batch-size", 2, "--bptt", 10, "--num-cells", 3]
    run("wikitext2/train.sh", "--tiny", "--data", data, "--out", tmp_path, "--", *small)
    printed = run("wikitext2/evaluate.sh", "--data", data, "--out", tmp_path)
    tokens = len((raw / "test.txt").read_text().split()) + 9 - 1
    assert "second_order_lstm_lm_tiny seed 1" in printed
    assert f"({tokens} tokens, continuous" in printed


@pytest.mark.full
def test_a_short_training_on_wikitext2(data, tmp_path):
    """With EPOCHS=2 the rate falls to zero over the updates of 64 streams with 35 steps."""
    arch = "second_order_lstm_lm_tiny"
    small = ["--batch-size", 2, "--bptt", 10, "--adaptive-softmax-cutoff", "10,15"]
    options = ["--arch", arch, "--data", data, "--out", tmp_path]
    run("wikitext2/train.sh", *options, "--", *small, EPOCHS="2")
    log = (tmp_path / arch / "seed1" / "train.log").read_text()
    assert re.findall(r"end of epoch (\d)", log) == ["1", "2"]
    updates, rate = re.findall(r"num_updates (\d+) \| lr ([\d.e-]+)", log)[-1]
    assert float(rate) == pytest.approx(2e-3 * (1 - int(updates) / (2 * 933)), rel=1e-5)
    assert re.findall(r"temperature ([\d.]+) \|", log)[-1] == "0.0003"
    run("wikitext2/evaluate.sh", "--data", data, "--out", tmp_path)
    error = run("wikitext2/train.sh", "--data", data, status=2, EPOCHS="few")
    assert "environment variable EPOCHS" in run("wikitext2/train.sh", "--help")
    file = EXAMPLES / "wikitext2" / "recipe.yaml"
    assert error == f"error: {file}: EPOCHS must be a positive number, not 'few'\n"


def test_raw_texts_are_checked(raw, tmp_path, capsys, monkeypatch):
    """A missing file, or another number of words or types than the known ones, is an error."""
    arguments = ["wikitext2", "--raw", str(raw), "--out", str(tmp_path / "out")]
    assert monolingual.main(arguments) == 2
    error = capsys.readouterr().err
    assert f"{raw}/train.txt has 60 lines and" in error
    assert "but train of WikiText-2 has 36,718 and 2,088,628" in error
    assert not (tmp_path / "out").exists()
    counts = [
        (len(text.splitlines()), len(text.split()) + len(text.splitlines()))
        for text in ((raw / f"{split}.txt").read_text() for split in SPLITS)
    ]
    lines, tokens = zip(*counts, strict=True)
    own = dataclasses.replace(monolingual.CORPORA["ptb"], lines=lines, tokens=tokens, types=20)
    assert len(monolingual.read_corpus(own, raw)["train"]) == 60
    with pytest.raises(UserError, match="the training text has 20 types, but that of the Penn"):
        monolingual.read_corpus(dataclasses.replace(own, types=21), raw)
    with pytest.raises(UserError, match=r"holds no ptb\.train\.txt or train\.txt"):
        monolingual.read_corpus(own, tmp_path)
    (tmp_path / "train.txt").write_text(" \n")
    with pytest.raises(UserError, match=r"train\.txt is empty"):
        monolingual.read_corpus(own, tmp_path)


@pytest.mark.full
def test_dyck(tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    sizes = ["--train", 30, "--valid", 10, "--test", 10, "--lengths", "7:21"]
    run("dyck/prepare.sh", "--m", "3", "--out", data, *sizes)
    run("dyck/train.sh", "--m=3", "--data", data, "--out", out, "--", "--max-epoch", "1")
    printed = run("dyck/evaluate.sh", "--m", "3,4", "--data", data, "--out", out)
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [result["subset"] for result in results] == 2 * ["test", "test1"]
    assert printed.count("WCPA") == 4
    for cell, annealed in (("stacked", False), ("second_order", True)):
        options = (out / "m3" / f"{cell}_lstm_lm_dyck_3" / "seed1" / "finished").read_text()
        assert ("--temperature-floor" in options) == annealed
        assert options.count("--adam-eps") == options.count("--adam-eps 1e-3") == 1
        assert ("--total-num-update 60000" in options) != annealed
    assert (out / "m3" / "stacked_lstm_lm_dyck_3" / "seed1" / "ldpa.test1.png").exists()
    assert (out / "m3" / "wcpa.png").exists()
    error = run("dyck/evaluate.sh", "--m", "4,6", "--data", data, "--out", out, status=2)
    assert f"{out} holds no trained run of --m 4,6; train some, or give another --out" in error
    with open(data / "m3" / "data-bin" / "train.idx", "ab") as file:
        file.write(b"\0")
    error = run("dyck/evaluate.sh", "--m", "3", "--data", data, "--out", out, status=2)
    assert f"was trained on other data than {data}/m3" in error
    error = run("dyck/train.sh", "--m", "5", "--data", data, "--out", out, status=2)
    assert f"{data}/m5 is not prepared; run prepare.sh --m 5 --out {data} first" in error


@pytest.mark.parametrize(
    "script",
    mostly_full(SCRIPTS, *SCRIPTS[:2]),
    ids=lambda script: f"{script.parent.name}/{script.name}",
)
def test_help_and_wrong_options(script):
    assert run(script, "--help").startswith("usage: ")
    if script.name != "prepare.sh":
        assert "error: " in run(script, "--no-such-option", status=2)

"""The recipes of language models from raw data to perplexity, on generated texts."""

import json
import subprocess
from pathlib import Path

import pytest
from language_models.common import write_text

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(
    script for recipe in ("ptb", "wikitext2", "dyck") for script in (EXAMPLES / recipe).glob("*.sh")
)


def run(script, *options, status=0):
    """Run a script of examples/ from elsewhere; its output, or its error if it must fail."""
    command = [EXAMPLES / script, *map(str, options)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout if status == 0 else done.stderr


def write_raw(folder, names):
    folder.mkdir()
    for seed, (name, size) in enumerate(zip(names, (60, 9, 9), strict=True)):
        write_text(folder / name, size, seed)
    return folder


def test_ptb(tmp_path):
    raw = write_raw(tmp_path / "raw", [f"ptb.{s}.txt" for s in ("train", "valid", "test")])
    data, out = tmp_path / "data", tmp_path / "out"
    message = run("ptb/prepare.sh", "--raw", raw, "--out", data, status=2)
    assert "ptb.train.txt has 60 lines and" in message
    assert "but train of the Penn Treebank has 42,068 and 929,589" in message
    assert not data.exists()
    printed = run("ptb/prepare.sh", "--raw", raw, "--out", data, "--any-size")
    assert "train: 60 lines" in printed
    assert "dictionary: 23 entries, 4 of them special" in printed
    run("ptb/train.sh", "--tiny", "--data", data, "--out", out)
    printed = run("ptb/evaluate.sh", "--data", data, "--out", out)
    (result,) = map(json.loads, (out / "results.jsonl").read_text().splitlines())
    assert result["mode"] == "sentences"
    assert result["test_tokens"] == len((raw / "ptb.test.txt").read_text().split()) + 9
    assert f"dg_lstm_lm_tiny seed 1: perplexity {result['valid']:.2f} valid" in printed
    assert f"dg_lstm_lm_tiny  test {result['test']:.2f}  (1 run)" in printed


def test_wikitext2(tmp_path):
    raw = write_raw(tmp_path / "raw", [f"wiki.{s}.tokens" for s in ("train", "valid", "test")])
    data, out = tmp_path / "data", tmp_path / "out"
    run("wikitext2/prepare.sh", "--raw", raw, "--out", data, "--any-size")
    small = ["--batch-size", 2, "--bptt", 10, "--num-cells", 3]
    run("wikitext2/train.sh", "--tiny", "--data", data, "--out", out, "--", *small)
    printed = run("wikitext2/evaluate.sh", "--data", data, "--out", out)
    tokens = len((raw / "wiki.test.tokens").read_text().split()) + 9 - 1
    assert "second_order_lstm_lm_tiny seed 1" in printed
    assert f"({tokens} tokens, continuous" in printed


def test_dyck(tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    sizes = ["--train", 30, "--valid", 10, "--test", 10, "--lengths", "7:21"]
    run("dyck/prepare.sh", "--m", "3", "--out", data, *sizes)
    small = ["--arch", "stacked_lstm_lm_dyck_3", "--", "--max-epoch", "1"]
    run("dyck/train.sh", "--m=3", "--data", data, "--out", out, *small)
    printed = run("dyck/evaluate.sh", "--m", "3,4", "--data", data, "--out", out)
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [result["subset"] for result in results] == ["test", "test1"]
    assert printed.count("WCPA") == 2
    assert (out / "m3" / "stacked_lstm_lm_dyck_3" / "seed1" / "ldpa.test1.png").exists()
    assert "holds no trained run" in run("dyck/evaluate.sh", "--out", tmp_path, status=2)


@pytest.mark.parametrize(
    "script", SCRIPTS, ids=lambda script: f"{script.parent.name}/{script.name}"
)
def test_help_and_wrong_options(script):
    if script.name == "common.sh":
        return
    assert run(script, "--help").startswith("usage: ")
    assert "error: " in run(script, "--no-such-option", status=2)

"""The classification recipes from raw files to a table, on generated corpora."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from labelled_corpora import (
    write_mr,
    write_mrpc,
    write_plain_nli,
    write_reviews,
    write_rte,
    write_sick,
    write_sst,
    write_trec,
)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RECIPES = {
    "sst": (write_sst, ()),
    "trec": (write_trec, ("--valid-size", "9")),
    "nli": (write_plain_nli, ("--train-on-dev", "--valid-size", "9")),
    "paraphrase": (write_mrpc, ("--corpus", "mrpc", "--valid-size", "9")),
    "sick": (write_sick, ()),
    "rte": (write_rte, ("--valid-size", "9")),
}
SCRIPTS = [
    EXAMPLES / recipe / f"{step}.sh"
    for recipe in (*RECIPES, "mr", "reviews16")
    for step in ("prepare", "train", "evaluate")
] + [EXAMPLES / "mr" / "run_folds.sh", EXAMPLES / "reviews16" / "run_table.sh"]


def run(script, *options, cwd="/", status=0, **env):
    """Run a script of examples/ from elsewhere; its output, or its error if it must fail."""
    done = subprocess.run(
        [EXAMPLES / script, *map(str, options)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
    )
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout if status == 0 else done.stderr


def results(out):
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("recipe", RECIPES)
def test_settings_train(recipe, tmp_path):
    """Each recipe's own settings, on a tiny model: prepare, one epoch, evaluate."""
    write, options = RECIPES[recipe]
    raw, data, out = write(tmp_path / "raw"), tmp_path / "data", tmp_path / "out"
    run(f"{recipe}/prepare.sh", "--raw", raw, "--out", data, *options)
    run(f"{recipe}/train.sh", "--tiny", "--data", data, "--out", out)
    printed = run(f"{recipe}/evaluate.sh", "--data", data, "--out", out)
    (result,) = results(out)
    assert f"seed 1: accuracy {result['accuracy']:.2f}, macro-F1" in printed
    assert result["sentences"] == json.loads((data / "data-bin" / "prepare.json").read_text()).get(
        "test pairs", result["sentences"]
    )
    run_folder = out / "cas_lstm_sentence_encoder_tiny" / "seed1"
    lines = (run_folder / "test.predictions.tsv").read_text().splitlines()
    assert len(lines) == result["sentences"]
    right = sum(line.split("\t")[0] == line.split("\t")[1] for line in lines)
    assert result["accuracy"] == pytest.approx(100 * right / len(lines), abs=0.01)
    assert result["train_seconds"] > 0


def test_folds_of_several_systems(tmp_path):
    """Named systems with the papers' shapes, made small; interrupted and resumed; a table."""
    raw, data, out = write_mr(tmp_path / "raw", 30), tmp_path / "data", tmp_path / "out"
    options = ["--raw", raw, "--data", data, "--out", out, "--folds", "0,3"]
    options += ["--arch", "slstm,bicas2", "--", "--encoder-embed-dim", "4", "--max-epoch"]
    run("mr/run_folds.sh", *options, "1", HIDDEN="4")
    printed = run("mr/run_folds.sh", *options, "2", HIDDEN="4")
    header, _, first, second, average = printed.splitlines()[-5:]
    assert header == "| set | bicas2 | slstm |"
    assert first.startswith("| fold0 | ")
    assert second.startswith("| fold3 | ")
    scores = [
        [r["accuracy"] for r in results(out / fold) if r["arch"] == "slstm"][-1]
        for fold in ("fold0", "fold3")
    ]
    assert average.split(" | ")[2].startswith(f"{sum(scores) / 2:.2f}, ")
    log = (out / "fold0" / "slstm" / "seed1" / "train.log").read_text()
    assert "Loaded checkpoint" in log
    assert "'arch': 'sentence_state_lstm_sentence_encoder'" in log


def test_review_sets_in_one_command(tmp_path):
    raw = write_reviews(tmp_path / "raw", train=240)
    printed = run(
        "reviews16/run_table.sh", "--raw", raw, "--set", "books,MR", "--tiny",
        "--data", tmp_path / "data", "--out", tmp_path / "out",
    )  # fmt: skip
    table = printed.splitlines()[-5:]
    assert [line.split(" | ")[0] for line in table if "---" not in line] == [
        "| set",
        "| MR",
        "| books",
        "| **average**",
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_help(script):
    assert os.access(script, os.X_OK)
    assert run(script, "--help").startswith(f"usage: {script.name} ")


def test_unknown_options():
    for script in ("mr/run_folds.sh", "reviews16/run_table.sh", "sst/prepare.sh", "sst/train.sh"):
        error = run(script, "--bogus", status=2)
        assert error.startswith("error: ")
        assert error.count("\n") == 1
    assert "--raw is missing" in run("mr/run_folds.sh", status=2)


def test_unknown_system(tmp_path):
    (tmp_path / "data-bin").mkdir()
    error = run("mr/train.sh", "--data", tmp_path, "--arch", "slstm,magic", status=2)
    assert error.startswith("error: unknown system magic")

"""The translation recipes from raw data to BLEU, on generated corpora."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpora import write_iwslt, write_multi30k, write_tatoeba
from recipe_runs import EXAMPLES, run, stub_python
from tiers import mostly_full

from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.inference import loading

SCRIPTS = [
    EXAMPLES / recipe / f"{step}.sh"
    for recipe in ("iwslt14", "multi30k", "tatoeba_zh_en")
    for step in ("prepare", "train", "evaluate")
] + [EXAMPLES / "tatoeba_zh_en" / "run_table.sh"]


def results(out):
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.mark.full
def test_multi30k(tmp_path):
    write_multi30k(tmp_path / "raw")
    data, out = tmp_path / "data", tmp_path / "out"
    # paths are relative to the caller's folder
    prepare = ("multi30k/prepare.sh", "--raw=raw", "--out", "data", "--bpe-operations=30")
    printed = run(*prepare, cwd=tmp_path, PYTHON="")
    assert "train pairs: 120" in printed

    run("multi30k/train.sh", "--tiny", "--data", data, "--out", out, "--seed", "3", PYTHON="")
    model = out / "cas_lstm_tiny" / "seed3"
    assert (model / "checkpoint1.pt").exists()
    # a second call finds the last checkpoint, and extra options override the script's
    train = ("multi30k/train.sh", "--arch", "cas_lstm_tiny", "--data", data, "--out", out)
    run(*train, "--seed", "3", "--", "--max-epoch", "2")
    log = (model / "train.log").read_text()
    assert "Loaded checkpoint" in log
    assert log.count("begin training epoch 1\n") == 1
    assert (model / "checkpoint2.pt").exists()

    printed = run("multi30k/evaluate.sh", "--data", data, "--out", out, "--checkpoint", "last:2")
    assert "cas_lstm_tiny seed 3: BLEU" in printed
    (result,) = results(out)
    assert (result["arch"], result["seed"], result["checkpoint"]) == ("cas_lstm_tiny", 3, "last:2")
    # all of them, though 13 is not a multiple of 8
    assert (result["beam"], result["sentences"]) == (10, 13)
    assert "case:lc" in result["signature"]
    generated = (model / "generated.checkpoint_avg_last_2.beam10.txt").read_text()
    assert f"BLEU4 = {result['bleu']:.2f}" in generated
    run_the_documentation(tmp_path)


def run_the_documentation(folder):
    """Run the commands and the program of Getting started, with other folder names."""

    model = folder / "out" / "cas_lstm_tiny" / "seed3"

    def here(text):
        text = text.replace("examples/multi30k/data", str(folder / "data"))
        text = text.replace("CHECKPOINT", str(model / "checkpoint_best.pt"))
        return text.replace("examples/multi30k/out/cas_lstm_iwslt/seed1", str(model))

    page = (EXAMPLES.parent / "docs" / "getting-started.md").read_text(encoding="utf-8")
    section = page.partition("## Translation in five commands")[2].partition("\n## ")[0]
    commands, program = (
        block.strip("`\n") for block in re.findall("```.*?```", section, re.DOTALL)
    )
    typed = (folder / "raw" / "test_2016_flickr.de").read_text().splitlines()[0]
    _, generate, interactive = here(commands).split("\nfairseq-")

    def shell(command):
        printed = subprocess.run(
            ["bash", "-c", f"fairseq-{command}"],
            cwd=EXAMPLES.parent,
            input=typed + "\n",
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )
        assert printed.returncode == 0, printed.stderr[-3000:]
        return printed

    assert "BLEU4 = " in shell(generate).stdout
    printed = shell(interactive)
    (source,) = [line for line in printed.stdout.splitlines() if line.startswith("S-0")]
    prepared = (folder / "data" / "text" / "test.bpe.de").read_text().splitlines()[0]
    assert source == f"S-0\t{prepared}"
    assert prepared != typed
    (said,) = [line for line in printed.stdout.splitlines() if line.startswith("D-0")]
    *setup, ask = here(program.removeprefix("python\n")).splitlines()
    ask = re.sub('".*"', repr(typed), ask)
    python = "\n".join([*setup, f"print('D:', {ask})"])
    printed = subprocess.run(
        [sys.executable, "-c", python], cwd=EXAMPLES.parent, capture_output=True, text=True
    )
    assert printed.returncode == 0, printed.stderr[-3000:]
    assert printed.stdout.splitlines()[-1] == f"D: {said.split(chr(9))[2]}"


@pytest.mark.full
def test_iwslt14_with_seeds_and_a_test_of_significance(tmp_path):
    archive = write_iwslt(tmp_path / "de-en.tgz")
    data, out = tmp_path / "data", tmp_path / "out"
    options = ("--archive", archive, "--out", data, "--bpe-operations", "30")
    printed = run("iwslt14/prepare.sh", *options)
    # 230 pairs, a title and a description; 15 segments
    assert "valid pairs: 10" in printed
    assert "train pairs: 222" in printed
    assert "test pairs: 15" in printed

    run("iwslt14/train.sh", "--tiny", "--seeds", 2, "--data", data, "--out", out)
    # a copy of the runs with another name, since evaluate.sh only records the folder's name
    (out / "a_copy").symlink_to(out / "cas_lstm_tiny")
    printed = run(
        "iwslt14/evaluate.sh", "--data", data, "--out", out, "--seeds", 2, "--checkpoint", "best",
        "--arch", "a_copy,cas_lstm_tiny", "--baseline", "cas_lstm_tiny", "--", "--max-len-b", "20",
    )  # fmt: skip
    assert [(r["arch"], r["seed"]) for r in results(out)] == [
        (arch, seed) for arch in ("a_copy", "cas_lstm_tiny") for seed in (1, 2)
    ]
    baseline, other = printed.splitlines()[-2:]
    assert baseline.startswith("cas_lstm_tiny  ")
    assert "(2 runs)" in baseline
    assert other.startswith("a_copy ")
    assert "p = 0.5 against cas_lstm_tiny (one-tailed paired t-test, 2 pairs)" in other


@pytest.mark.full
def test_the_table_of_depths(tmp_path):
    raw, data, out = write_tatoeba(tmp_path / "cmn.txt"), tmp_path / "data", tmp_path / "out"
    printed = run("tatoeba_zh_en/prepare.sh", "--raw", raw, "--out", data, "--eval-size", 10)
    assert "test pairs: 10" in printed
    assert (data / "text" / "test.tok.zh").read_text().split("\n")[0].endswith(" 。")
    printed = run(
        "tatoeba_zh_en/run_table.sh", "--depth", 3, "--data", data, "--out", out,
        "--checkpoint", "best", "--", "--max-epoch", "1",
    )  # fmt: skip
    wrong = ("--data", data, "--out", out, "--checkpoint", "lasst:2")
    refused = run("tatoeba_zh_en/run_table.sh", *wrong, status=2)  # before any training
    assert refused.endswith("must be best, last, ema, best:N or last:N, not 'lasst:2'\n")
    assert refused.startswith("error: --checkpoint")
    header, _, row = printed.splitlines()[-3:]
    assert header == "| Depth | GRU | LSTM | DG-LSTM |"
    assert row.startswith("| 3 | ")
    assert "–" not in row
    assert {r["arch"] for r in results(out)} == {
        f"{cell}_btec_3" for cell in ("stacked_gru", "stacked_lstm", "dg_lstm")
    }
    hub = loading.load_translator(out / "dg_lstm_btec_3" / "seed1")
    raw, text = (data / "text" / f"test.{kind}.zh" for kind in ("raw", "tok"))
    assert list(map(hub.tokenize, read_lines(raw))) == read_lines(text)


@pytest.mark.parametrize(
    "script", mostly_full(SCRIPTS, *SCRIPTS[:2]), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_help_and_unknown_options(script):
    assert os.access(script, os.X_OK)
    assert run(script, "--help").startswith("usage: ")
    if script.name == "prepare.sh" and "iwslt14" not in str(script):
        return  # all three use the same parser
    error = run(script, "--bogus", status=2)
    assert error.startswith("error: ")
    assert "--bogus" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "/nowhere"), "/nowhere is not prepared; run prepare.sh"),
        (("--seeds", "none"), "--seeds must be a positive number, not 'none'"),
        (("--seed", "1,x"), "--seed must be a positive number, not 'x'"),
        (("--out",), "argument --out: expected one argument"),
    ],
)
def test_wrong_options_of_train(options, message):
    assert message in run("multi30k/train.sh", *options, status=2)


def test_a_failed_training_fails_the_script(tmp_path):
    (tmp_path / "data-bin").mkdir()
    where = ("--data", tmp_path, "--out", tmp_path / "out")
    error = run("multi30k/train.sh", *where, "--tiny", status=1)
    assert error.splitlines()[-1].startswith("error: ")
    log = (tmp_path / "out" / "cas_lstm_tiny" / "seed1" / "train.log").read_text()
    assert error.strip() in log  # the line end may come later, after output of the other stream


def test_python_without_fairseq(tmp_path):
    """Python lacks it, or there is no Python."""
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    for script in ("mr/prepare.sh", "mr/train.sh", "rerank/prepare.sh", "mr/run_curves.sh"):
        for python in (bare, tmp_path / "none"):
            error = run(script, status=2, PYTHON=str(python))
            assert error.startswith(f"error: {python} does not run or has no fairseq; ")
            assert error.count("\n") == 1


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_during_training(tmp_path, number):
    """Ctrl-C reaches all processes of a terminal, and other signals may reach all of a job.

    The last output of the training is still written.
    """
    (tmp_path / "data-bin").mkdir()
    stub = stub_python(
        tmp_path / "python",
        f"trap 'echo stopped >&2; trap - {number}; kill -{number} $$' {number}\n"
        "echo begun; echo begun >&2\nwhile :; do sleep 0.05; done",
    )
    script = subprocess.Popen(
        [EXAMPLES / "multi30k/train.sh", "--data", tmp_path, "--out", tmp_path / "out", "--tiny"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHON": stub},
        start_new_session=True,
        # tests that run in the background may inherit a handler that ignores it
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert "begun\n" in iter(script.stdout.readline, "")
    assert script.stderr.readline() == "begun\n"
    os.killpg(script.pid, number)
    _, error = script.communicate(timeout=60)
    said = error.splitlines()
    # after other signals, bash may print a message of its own
    assert said == ["stopped"] or (number != signal.SIGINT and "stopped" in said)
    assert script.returncode in (128 + number, -number)
    folder = tmp_path / "out" / "cas_lstm_tiny" / "seed1"
    log = (folder / "train.log").read_text()
    assert sorted(set(log.splitlines()) - set(said)) == ["begun"]
    assert log.splitlines().count("begun") == 2
    assert "stopped" in log.splitlines()
    assert not (folder / "finished").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell the training")
def test_a_killed_recipe_stops_its_training(tmp_path):
    """The recipe sends SIGTERM, on which fairseq-train saves a checkpoint."""
    (tmp_path / "data-bin").mkdir()
    stopped = tmp_path / "stopped"
    stub = stub_python(
        tmp_path / "python",
        f"trap 'touch {stopped}; exit' TERM\necho begun\nfor i in $(seq 1400); do sleep 0.05; done",
    )
    script = subprocess.Popen(
        [EXAMPLES / "multi30k/train.sh", "--data", tmp_path, "--out", tmp_path / "out", "--tiny"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHON": stub},
    )
    assert "begun\n" in iter(script.stdout.readline, "")
    script.kill()
    script.wait(timeout=60)
    until = time.monotonic() + 60
    while not stopped.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert stopped.exists()
    script.stdout.close()

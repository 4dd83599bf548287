"""examples/rerank on a generated corpus."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_lines.programs import train
from corpora import write_multi30k
from recipe_runs import stub_python

from fairseq_casrnn.data.corpora import multi30k
from fairseq_casrnn.data.text import read_lines

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(script, *options, status=0):
    """Run a script of examples/ in another folder; return its output, or its error."""
    command = [EXAMPLES / script, *map(str, options)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    assert status or not done.stderr  # the README shows no other lines
    return done.stdout if status == 0 else done.stderr


@pytest.mark.full
def test_from_a_corpus_to_bleu(tmp_path):
    data, prepared, out = (tmp_path / name for name in ("data", "prepared", "lists"))
    raw = write_multi30k(tmp_path / "raw", train=60, valid=9, test=8)
    options = ["--raw", raw, "--out", data, "--bpe-operations", 30]
    assert multi30k.main(list(map(str, options))) == 0
    run("rerank/prepare.sh", "--data", data / "data-bin", "--out", prepared)
    plain = read_lines(data / "text" / "test.bpe.en")
    mirror = read_lines(prepared / "right_to_left" / "text" / "test.en")
    assert [" ".join(reversed(line.split())) for line in mirror] == plain
    assert (prepared / "backwards" / "data-bin" / "test.en-de.de.bin").exists()
    error = run("rerank/prepare.sh", "--data", data, "--out", prepared, status=2)
    assert f"{prepared} exists" in error
    (tmp_path / "file").touch()
    error = run("rerank/prepare.sh", "--data", data, "--out", tmp_path / "file" / "x", status=2)
    assert error == f"error: --out {tmp_path}/file/x cannot be created; give another folder\n"

    train(data / "data-bin", tmp_path / "mt", "cas_lstm_tiny", epochs=1)
    task = ["--task", "language_modeling", "--tokens-per-sample", 20]
    train(prepared / "lm" / "data-bin", tmp_path / "lm", "dg_lstm_lm_tiny", *task, epochs=1)
    model, lm = (tmp_path / name / "checkpoint_best.pt" for name in ("mt", "lm"))
    command = ["rerank/rerank.sh", "--baseline", model.parent, "--data", data]
    command += ["--prepared", prepared, "--out", out, "--nbest", 3]
    printed = run(*command, "--right-to-left", model, "--lm", lm.parent, "--runs", 2)
    assert f"valid: {model} --right-to-left\nscored 27 hypotheses of 9 sentences" in printed
    assert f"test: {lm} --lm\nscored 24 hypotheses of 8 sentences" in printed
    result = json.loads((out / "result.json").read_text())
    assert result["sentences"] == 8
    assert len(result["reranked"]) == 2
    assert result["oracle"] >= result["baseline"]
    translations = read_lines(out / "test.reranked.en")
    assert len(translations) == 8
    assert not any("@@" in line for line in translations)
    weights = json.loads((out / "weights.json").read_text())
    assert len(weights["features"]) == 4
    assert sorted(path.name for path in out.glob("*.tsv")) == [
        f"{split}.{name}.tsv" for split in ("test", "valid") for name in ("1-right-to-left", "2-lm")
    ]
    where = command.index("--out") + 1
    error = run(*command[:where], tmp_path / "file", "--lm", lm, status=2)
    assert error == f"error: --out {tmp_path}/file cannot be written; give another folder\n"
    error = run(*command[:-1], 4, status=2)
    assert "has lists of another --baseline, --data or --nbest" in error
    with open(next((data / "data-bin").glob("test.*.de.bin")), "ab") as file:
        file.write(b"prepared anew")
    error = run(*command, "--lm", lm, status=2)
    assert "has lists of another --baseline, --data or --nbest" in error


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell the program")
def test_a_killed_call_stops_fairseq_generate(tmp_path):
    """Sentences may have as many tokens as the model allows, not fairseq's default of 1024."""
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "test.de-en.de.idx").touch()
    stopped = tmp_path / "stopped"
    stub = stub_python(
        tmp_path / "python",
        f"trap 'touch {stopped}; exit' TERM\necho $@\nfor i in $(seq 1400); do sleep 0.05; done",
    )
    command = [sys.executable, "-m", "fairseq_casrnn.cli", "rerank", "all", "--baseline", __file__]
    command += ["--data", tmp_path, "--prepared", tmp_path, "--out", tmp_path / "out"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHON": stub}
    )
    asked = "--max-source-positions 100000 --max-target-positions 100000"
    lists = (tmp_path / "out").glob
    wait_until(lambda: any(asked in file.read_text() for file in lists("valid.nbest.*.tmp")))
    process.kill()
    process.wait(timeout=60)
    wait_until(stopped.exists)


def wait_until(condition):
    """Wait until something becomes true, for a minute at most."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


@pytest.mark.parametrize(
    "script", [pytest.param("prepare.sh", marks=pytest.mark.full), "rerank.sh"]
)
def test_help_and_wrong_options(script, tmp_path):
    command = "prepare" if script == "prepare.sh" else "all"
    assert run(f"rerank/{script}", "--help").startswith(f"usage: casrnn rerank {command} ")
    baseline = ("--baseline", __file__) if command == "all" else ()
    for options, message in [
        (("--bogus", 1), "unrecognized arguments: --bogus 1"),
        (("--data",), "argument --data: expected one argument"),
        (("--data", tmp_path), "(no data-bin with a test set in it); give the folder that"),
        ((f"--data={tmp_path}",), f"{tmp_path} is not a prepared folder"),
    ]:
        error = run(f"rerank/{script}", *baseline, *options, status=2)
        assert error.startswith("error: ")
        assert message in error
        assert error.count("\n") == 1

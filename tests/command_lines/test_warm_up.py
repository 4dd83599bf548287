"""``casrnn warm-up``: the trainings that it starts, and what it says when it cannot."""

import os
import subprocess
import sys
import time

import pytest
import torch

from fairseq_casrnn import cli, plugin
from fairseq_casrnn.console import warm_up

RECORD = "import sys; open(sys.argv[1], 'a').write(repr(sys.argv[2:]) + chr(10))"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")


def test_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["warm-up", "data", "--arch", "cas_lstm_iwslt"]) == 2
    assert "torch finds no GPU on this machine" in capsys.readouterr().err


def test_one_update_in_each_dtype_with_few_and_many_sentences(gpu, monkeypatch, tmp_path, capsys):
    record = tmp_path / "record"
    monkeypatch.setattr(warm_up, "PROGRAM", [sys.executable, "-c", RECORD, str(record)])
    given = ["--arch", "cas_lstm_iwslt", "data", "--fp16", "--max-tokens", "4000"]
    assert cli.main(["warm-up", *given, "--dtype", "float32,bfloat16"]) == 0
    runs = record.read_text().splitlines()
    assert len(runs) == 4
    assert all("'--arch', 'cas_lstm_iwslt', 'data', '--max-tokens', '4000'" in run for run in runs)
    assert all("'--max-update=1', '--no-save'" in run for run in runs)
    assert [sum(option in run for run in runs) for option in ("--fp16", "--bf16")] == [0, 2]
    assert sum("--batch-size=8" in run and "--bf16" in run for run in runs) == 1
    assert capsys.readouterr().out == "kernels compiled for NVIDIA H100\n"
    record.unlink()
    assert cli.main(["warm-up", *given]) == 0  # in the dtype that its options say
    assert ["--fp16" in run for run in record.read_text().splitlines()] == [True, True]


def test_a_training_that_fails_says_why(gpu, monkeypatch, capsys):
    script = "import sys; print('much'); sys.exit('error: no such data')"
    monkeypatch.setattr(warm_up, "PROGRAM", [sys.executable, "-c", script])
    assert cli.main(["warm-up", "data"]) == 2
    assert "fairseq-train failed: error: no such data" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell the trainings")
def test_a_killed_command_stops_its_trainings(tmp_path):
    stopped = tmp_path / "stopped"
    training = f"trap 'touch {stopped}; exit' TERM; touch {tmp_path}/begun; " + (
        "for i in $(seq 1400); do sleep 0.05; done"
    )
    script = (
        "import torch; torch.cuda.is_available = lambda: True\n"
        "from fairseq_casrnn.console import warm_up; from fairseq_casrnn import cli\n"
        f"warm_up.PROGRAM = ['sh', '-c', {training!r}]\n"
        "cli.main(['warm-up', 'data'])"
    )
    command = subprocess.Popen([sys.executable, "-c", script])
    wait_for(tmp_path / "begun")
    command.kill()
    command.wait(timeout=60)
    wait_for(stopped)


def wait_for(path):
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert path.exists()


def test_a_plugin_is_passed_on(tmp_path, monkeypatch):
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    training = ["data", "--user-dir", warm_up.USER_DIR, "--arch", "x"]
    assert warm_up.without_plugin(training) == ["data", "--arch", "x"]
    assert plugin.VARIABLE not in os.environ
    monkeypatch.setenv(plugin.VARIABLE, "")
    assert warm_up.without_plugin(["data", f"--user-dir={tmp_path}"]) == ["data"]
    assert os.environ[plugin.VARIABLE] == str(tmp_path)

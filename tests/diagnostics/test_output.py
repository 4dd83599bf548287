"""Standard output that is closed, full or not read to its end, and exhausted memory."""

import errno
import io
import subprocess
import sys

import pytest
import torch

from fairseq_casrnn import cli
from fairseq_casrnn.console.program import run_main
from fairseq_casrnn.diagnostics.explain import explain

from .commands import USER_DIR

SHORT = "out of memory; use smaller batches (--max-tokens, --batch-size), "


def shell(warm_python, fairseq_script: str, redirection: str, tmp_path, *args):
    """Run a program of fairseq in bash with redirected output."""
    script = f"{sys.executable.rpartition('/')[0]}/{fairseq_script}"
    command = f'set -o pipefail; "$@" {redirection}'
    return subprocess.run(
        ["bash", "-c", command, "bash", warm_python, script, *map(str, args)],
        cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("redirection", "sentence"),
    [
        ("| head -1", "the program that reads the output has ended; let it read everything, or "),
        ("> /dev/full", "could not write the output (No space left on device); free some space"),
    ],
)
def test_output_of_generation(warm_python, data, checkpoint, tmp_path, redirection, sentence):
    options = ["--user-dir", USER_DIR, "--path", checkpoint, "--cpu", "--nbest", 2, "--beam", 2]
    done = shell(
        warm_python,
        "fairseq-generate",
        redirection,
        tmp_path,
        data,
        *options,
        "--gen-subset",
        "train",
    )
    assert done.returncode not in (0, 120)
    assert done.stderr.strip().splitlines()[-1].startswith(f"error: {sentence}")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_output_is_utf8(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert run_main(lambda: print("5 °C – \udcff")) == 0
    assert sys.stdout.buffer.getvalue() == "5 °C – ".encode() + b"\xff\n"


def test_closed_output(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["user-dir"]) == 2
    assert capsys.readouterr().err.startswith("error: standard output is closed; open it")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("std::bad_alloc"),
        RuntimeError("std::bad_alloc"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate me"
                     "mory: you tried to allocate 8 bytes. Error code 12 (Cannot allocate memory)"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    ],
)  # fmt: skip
def test_out_of_memory(error, capsys):
    def fail():
        raise error

    assert explain(error).startswith(SHORT)
    assert run_main(fail) == 2
    assert capsys.readouterr().err.startswith(f"error: {SHORT}")


def test_other_runtime_errors_keep_their_traceback():
    def fail():
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run_main(fail)

"""Fixtures that run the commands of the documentation."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def commands(first, page="docs/own-data.md"):
    """The page's first block of commands that begins with ``first``."""
    blocks = re.findall(r"```\w*\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    found, *_ = [block for block in blocks if block.startswith(first)]
    return found


def refused(prepare, capsys, tmp_path, *argv):
    """Run ``prepare(*argv)``, which must fail without creating files; return its error message."""
    capsys.readouterr()
    assert prepare(*argv, "--out", tmp_path / "none") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "none").exists()
    return error


@pytest.fixture(scope="module")
def bash(warm_python, tmp_path_factory):
    """``bash(text, folder)`` runs commands with small models, and returns their output."""
    programs = tmp_path_factory.mktemp("programs")
    (programs / "casrnn").write_text(f'#!/bin/sh\nexec {warm_python} -m fairseq_casrnn.cli "$@"\n')
    (programs / "casrnn").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHON": warm_python, "HIDDEN": "24"}

    def run(text, folder, status=0):
        done = subprocess.run(
            ["bash", "-ec", text], cwd=folder, capture_output=True, text=True, env=env
        )
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout if status == 0 else done.stderr

    return run

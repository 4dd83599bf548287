"""Functions that run the scripts of examples/.

Starting Python and torch takes seconds, so most scripts get a PYTHON that runs only ``casrnn run``
and records the command lines of all other programs, which are then run in this process.
"""

import os
import subprocess
import sys
from pathlib import Path

from command_lines.programs import fairseq

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(script, *options, cwd="/", status=0, **env):
    """Run a script of examples/ from another folder; return its output, or its expected error."""
    done = subprocess.run(
        [EXAMPLES / script, *map(str, options)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
    )
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout if status == 0 else done.stderr


def stub_python(path, script):
    """Write a PYTHON that runs a shell script for all programs but ``casrnn run`` and ``-c``."""
    runs = f'case "$1 $2 $3" in -c*|"-m fairseq_casrnn.cli run") exec {sys.executable} "$@";; esac'
    path.write_text(f"#!/bin/sh\n{runs}\n{script}\n")
    path.chmod(0o755)
    return str(path)


def train(command):
    """Run a recorded ``fairseq_cli.train`` without its --user-dir, which is set anyway."""
    program, *args = command
    assert program == "fairseq_cli.train"
    at = args.index("--user-dir")
    return fairseq("train", *args[:at], *args[at + 2 :], "--cpu")

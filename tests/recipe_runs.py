"""Running the scripts of examples/.

Starting Python and torch takes seconds, so most scripts get a PYTHON that only records its
arguments, which are then run in this process.
"""

import os
import subprocess
from pathlib import Path

from command_lines.programs import fairseq

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


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


def train(command):
    """Run a recorded ``fairseq_cli.train``, without its --user-dir, which is given anyway."""
    program, *args = command
    assert program == "fairseq_cli.train"
    at = args.index("--user-dir")
    return fairseq("train", *args[:at], *args[at + 2 :], "--cpu")

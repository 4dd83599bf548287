"""Trainings that are killed at random moments and resumed equal uninterrupted ones.

They only run in ``make fuzz``, with a hundredth of its number of inputs as kills per role.
"""

import importlib.util
import os
import random
import signal
import time
from pathlib import Path

import pytest
from command_lines.programs import assert_same_training, fairseq

from .profile import INPUTS

KILLS = INPUTS // 100
ROLES = ("translation", "language_model", "sentence_encoder", "tagger")
OPTIONS = [
    *("--cpu", "--num-workers", "0", "--optimizer", "adam", "--lr", "0.01", "--max-epoch", "3"),
    *("--seed", "1", "--batch-size", "8", "--save-interval-updates", "2"),
    *("--keep-interval-updates", "1", "--no-epoch-checkpoints", "--dropout", "0.2"),
]


def make_golden():
    """Import tests/golden/make.py, whose functions write the data of each role."""
    path = Path(__file__).parents[1] / "golden" / "make.py"
    spec = importlib.util.spec_from_file_location("make_golden", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(*options) -> int:
    """Start a training in a new process, and return its number."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            fairseq("train", "data", *OPTIONS, *options)
            status = 0
        finally:
            os._exit(status)
    return pid


def finish(*options) -> None:
    """Train to the end."""
    assert os.waitpid(start(*options), 0)[1] == 0


@pytest.fixture(scope="module", params=ROLES)
def role(request, tmp_path_factory):
    """The options of a role, in a folder with its data; and the seconds of a whole training."""
    folder = tmp_path_factory.mktemp(request.param)
    before = Path.cwd()
    os.chdir(folder)
    try:
        options = make_golden().ROLES[request.param]()
        started = time.monotonic()
        finish(*options, "--save-dir", "whole")
        yield options, time.monotonic() - started
    finally:
        os.chdir(before)


@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_any_moment(role, number):
    options, seconds = role
    folder = f"killed{number}"
    pid = start(*options, "--save-dir", folder)
    time.sleep(random.Random(number).random() * seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    finish(*options, "--save-dir", folder)
    assert_same_training(f"{folder}/checkpoint_last.pt", "whole/checkpoint_last.pt")

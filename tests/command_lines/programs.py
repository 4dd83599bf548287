"""Call fairseq's programs in this process, which saves starting Python and torch each time."""

import contextlib
import importlib
import io
import json
import logging
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
import torch
from fairseq.logging import metrics
from tiers import mostly_full

import fairseq_casrnn
from fairseq_casrnn.cells import FAMILIES

USER_DIR = str(Path(fairseq_casrnn.__file__).parent)
# `make test` runs two cells through the programs; tests/models compares all cells.
every_cell = pytest.mark.parametrize("cell", mostly_full(FAMILIES, "cas_lstm", "stacked_gru"))
TRAIN = [
    *("--cpu", "--max-tokens", "60", "--optimizer", "adam", "--lr", "0.01", "--num-workers", "0"),
    *("--log-format", "json", "--log-interval", "1", "--seed", "3", "--dropout", "0.2"),
]


@dataclass
class Done:
    """What a program printed and logged."""

    output: str
    log: str

    def lines(self, kind: str) -> list[list[str]]:
        """Lines "kind-number<tab>…" of the output, without the kind, sorted by number."""
        found = [
            line.split("\t") for line in self.output.splitlines() if line.startswith(f"{kind}-")
        ]
        return sorted(([int(n[2:]), *rest] for n, *rest in found), key=lambda line: line[0])

    def records(self, key: str) -> list[dict]:
        """The progress bar's records (--log-format json) that hold ``key``, such as train_loss."""
        lines = [line for line in self.log.splitlines() if line.startswith('{"')]
        return [record for record in map(json.loads, lines) if key in record]


class Recorder(logging.Handler):
    """Collects log messages."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


@contextlib.contextmanager
def recorded(recorder):
    """Send messages of level INFO and above to ``recorder``; restore the root logger afterwards."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    # Not the root logger: fairseq-validate removes its handlers.
    loggers = [logging.getLogger(name) for name in ("fairseq", "fairseq_cli", "fairseq_casrnn")]
    root.setLevel(logging.INFO)
    for logger in loggers:
        logger.addHandler(recorder)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(recorder)
        root.setLevel(level)
        root.handlers[:] = handlers


class Loader(torch.utils.data.DataLoader):
    """Loads without worker processes, whose late shutdown takes 5 seconds."""

    def __init__(self, *args, **options):
        options.update(num_workers=0, timeout=0, persistent_workers=False)
        super().__init__(*args, **options)


def without_workers():
    """Load data in this process, whatever ``--num-workers`` is."""
    return mock.patch.object(torch.utils.data, "DataLoader", Loader)


def fairseq(program: str, *args) -> Done:
    """Call ``fairseq-program`` with ``args``."""
    argv = [f"fairseq-{program}", *map(str, args)]
    if program != "score":
        argv += ["--user-dir", USER_DIR]
    recorder, output = Recorder(), io.StringIO()
    with (
        recorded(recorder),
        without_workers(),
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(output),
        warnings.catch_warnings(action="ignore"),
    ):
        metrics.reset()
        try:
            importlib.import_module(f"fairseq_cli.{program}").cli_main()
        finally:
            metrics.reset()
    return Done(output.getvalue(), "\n".join(recorder.messages))


def train(data, save_dir, arch, *args, epochs: int = 2) -> Done:
    """Train ``arch`` for a few epochs of a few updates."""
    options = [*TRAIN, "--max-epoch", epochs, "--save-dir", save_dir, "--arch", arch]
    return fairseq("train", data, *options, *args)


def generate(data, path, *args) -> Done:
    """Translate the test set, eight sentences at a time."""
    options = ["--cpu", "--batch-size", "8", "--max-len-b", "12", "--num-workers", "0"]
    return fairseq("generate", data, "--path", path, *options, *args)


def run(*command, **kwargs) -> subprocess.CompletedProcess:
    """Run a program in a process of its own."""
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **kwargs
    )


def checkpoint(path) -> dict:
    """Load a checkpoint with ``weights_only``."""
    return torch.load(path, weights_only=True)


def assert_same_training(first, second) -> None:
    """Two checkpoints agree bit for bit in model, optimizer state and number of updates."""
    first, second = checkpoint(first), checkpoint(second)
    assert first["model"].keys() == second["model"].keys()
    for name, tensor in first["model"].items():
        assert tensor.equal(second["model"][name]), name
    ours, theirs = (c["last_optimizer_state"]["state"] for c in (first, second))
    assert ours.keys() == theirs.keys() != set()
    for index, state in ours.items():
        for name, value in state.items():
            assert torch.as_tensor(value).equal(torch.as_tensor(theirs[index][name])), name
    ours, theirs = (c["optimizer_history"][-1]["num_updates"] for c in (first, second))
    assert ours == theirs

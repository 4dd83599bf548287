"""A binarised text and a trained model, which all tests of a process share."""

from pathlib import Path

import pytest
from command_lines.programs import fairseq

from .common import write_text

TRAIN = [
    *("--task", "stateful_language_modeling", "--cpu", "--batch-size", "4", "--bptt", "6"),
    *("--optimizer", "adam", "--lr", "0.01", "--num-workers", "0", "--seed", "3"),
    *("--log-format", "json", "--log-interval", "1", "--arch", "cas_lstm_lm_tiny"),
    *("--dropout", "0.2"),
]


def train(data, save_dir, *args, epochs=2):
    return fairseq("train", data, *TRAIN, "--max-epoch", epochs, "--save-dir", save_dir, *args)


def preprocess(folder: Path, *args) -> Path:
    """Binarise the text of ``folder``."""
    prefixes = [part for s in ("train", "valid", "test") for part in (f"--{s}pref", folder / s)]
    fairseq("preprocess", "--only-source", *prefixes, "--destdir", folder / "bin", *args)
    return folder / "bin"


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for seed, (split, size) in enumerate({"train": 50, "valid": 12, "test": 9}.items()):
        write_text(folder / split, size, seed)
    return preprocess(folder)


@pytest.fixture(scope="session")
def checkpoint(data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    train(data, folder, "--dropout", "0")
    return folder / "checkpoint_last.pt"

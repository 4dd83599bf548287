"""A tiny corpus and a tiny model, which the tests misuse."""

import shutil
from pathlib import Path

import pytest

from .commands import Commands, preprocess, write_corpus


@pytest.fixture(scope="module")
def fairseq(tmp_path_factory, warm_python):
    return Commands(tmp_path_factory.mktemp("runs"), warm_python)


@pytest.fixture(scope="module")
def data(fairseq, tmp_path_factory) -> Path:
    """A binarised corpus, which tests must not change."""
    text = write_corpus(tmp_path_factory.mktemp("corpus"))
    assert preprocess(fairseq, text).status == 0
    return text / "bin"


@pytest.fixture(scope="module")
def other_data(fairseq, tmp_path_factory) -> Path:
    """A binarised corpus with more words."""
    text = write_corpus(tmp_path_factory.mktemp("other"), "abcdefghijklmnopqrstuvwxyz")
    assert preprocess(fairseq, text).status == 0
    return text / "bin"


@pytest.fixture
def copied_data(data, tmp_path) -> Path:
    """A copy of ``data`` that a test may damage."""
    return shutil.copytree(data, tmp_path / "copied_data")


@pytest.fixture(scope="module")
def checkpoint(fairseq, data, tmp_path_factory) -> Path:
    """The checkpoint of a cas_lstm_tiny trained on ``data``."""
    folder = tmp_path_factory.mktemp("model")
    done = fairseq.train(data, "--save-dir", folder)
    assert done.status == 0, done.err
    return folder / "checkpoint_last.pt"

"""A prepared corpus and a trained tagger for all tests of a process."""

import pytest

from .common import prepare, train


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("ner"))


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    train(data, out, "cas_lstm", 15, "--encoder-bidirectional")
    return out

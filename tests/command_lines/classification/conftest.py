"""Prepared corpora and a trained classifier for all tests of a process."""

import pytest
from labelled_corpora import write_mr, write_sick

from fairseq_casrnn.data.corpora import mr, sick

from .common import prepare, train


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mr")
    return prepare(mr, write_mr(folder / "raw", 50), folder)


@pytest.fixture(scope="session")
def pair_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sick")
    return prepare(sick, write_sick(folder / "raw"), folder)


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    train(data, out, "cas_lstm", 8)
    return out

"""Fixtures for the tests of the engines."""

import logging

import pytest
import torch

from fairseq_casrnn.recurrence import choice


@pytest.fixture
def messages(caplog):
    choice.logged.clear()
    caplog.set_level(logging.INFO, logger="fairseq_casrnn")
    return lambda: [r.getMessage() for r in caplog.records if "engine" in r.getMessage()]


@pytest.fixture(params=["highest", "medium"])
def precision(request):
    """Run the test with each value of torch's float32 matmul precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(before)

"""What several tests of the engines need."""

import logging

import pytest
import torch

from fairseq_casrnn import recurrence
from fairseq_casrnn.recurrence import triton_loop


@pytest.fixture
def messages(caplog):
    triton_loop.say.cache_clear()
    recurrence._announce.cache_clear()
    recurrence._explain.cache_clear()
    recurrence._replace.cache_clear()
    caplog.set_level(logging.INFO, logger="fairseq_casrnn")
    return lambda: [r.getMessage() for r in caplog.records if "engine" in r.getMessage()]


@pytest.fixture(params=["highest", "medium"])
def precision(request):
    """torch's switch, set to each."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(before)

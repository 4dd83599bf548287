"""What several tests of the engines need."""

import logging

import pytest

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

import numpy
import pytest
from fairseq.data import data_utils

import fairseq_casrnn  # noqa: F401


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 20])
def test_no_sentence_is_lost(count):
    batches = data_utils.batch_by_size(
        numpy.arange(count),
        num_tokens_fn=lambda index: 5,
        num_tokens_vec=numpy.full(count, 5),
        max_tokens=50,
        required_batch_size_multiple=8,
    )
    assert [index for batch in batches for index in batch] == list(range(count))
    assert all(len(batch) % 8 == 0 for batch in batches[:-1])


def test_a_generator_of_indices_loses_none_either():
    batches = data_utils.batch_by_size(
        (i for i in range(11)), lambda index: 1, max_tokens=100, required_batch_size_multiple=8
    )
    assert sum(len(batch) for batch in batches) == 11

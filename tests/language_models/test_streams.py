"""Texts that are read as parallel streams."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_casrnn.data.streams import StreamDataset, piece_lengths
from fairseq_casrnn.errors import UserError

PAD = 1


@settings(deadline=None)
@given(
    total=st.integers(8, 90),
    rows=st.integers(1, 2),
    workers=st.integers(1, 2),
    bptt=st.integers(1, 9),
    jitter=st.sampled_from([0, 2.0]),
)
def test_every_token_but_the_first_of_a_stream_is_predicted_once(
    total, rows, workers, bptt, jitter
):
    text = StreamDataset(torch.arange(10, 10 + total), PAD).cut(rows * workers)
    lengths = piece_lengths(int(text.sizes.max()), bptt, jitter, (1, 1))
    batches = text.batches(workers, lengths)
    assert len(batches) == workers * len(lengths)
    seen, predicted = {}, []
    for number, pieces in enumerate(batches):
        batch = text.collater([text[piece] for piece in pieces])
        source, target = batch["net_input"]["src_tokens"], batch["target"]
        assert source.shape == target.shape
        assert len(target) == rows
        assert batch["ntokens"] == int(target.ne(PAD).sum())
        for row, inputs, outputs in zip(batch["id"].tolist(), source, target, strict=True):
            assert row // rows == number % workers  # each worker keeps its streams
            real = outputs.ne(PAD)
            assert torch.equal(outputs[real], inputs[real] + 1)
            assert torch.equal(real, inputs.ne(PAD))
            if real.any():
                # it starts where the previous piece ended
                assert inputs[0] == seen.get(row, inputs[0])
                seen[row] = outputs[real][-1]
            predicted += outputs[real].tolist()
    firsts = 10 + text.bounds[:-1]
    assert sorted(predicted) == sorted(set(range(10, 10 + total)) - set(firsts.tolist()))


def test_lengths_of_streams_differ_by_one_at_most():
    text = StreamDataset(torch.arange(11), PAD)
    assert text.cut(4).sizes.tolist() == [2, 2, 2, 1]
    assert text.sizes.tolist() == [10]  # the caller may divide it differently
    with pytest.raises(UserError, match="11 tokens, too few for 6 streams"):
        text.cut(6)


def test_lengths_of_pieces():
    assert piece_lengths(15, 6, 0, (1, 1)) == [6, 6, 3]
    first, again, other = (piece_lengths(100_000, 70, 5.0, (1, e)) for e in (1, 1, 2))
    assert first == again != other
    lengths = np.array(first[:-1])
    assert sum(first) == 100_000
    assert lengths.min() >= 5
    halved = lengths < 52
    assert 0.02 < halved.mean() < 0.09
    assert abs(lengths[~halved].mean() - 70) < 1
    assert abs(lengths[halved].mean() - 35) < 2
    assert abs(lengths[~halved].std() - 5) < 1

"""Batches of sentences."""

from fairseq_casrnn.data.batches import split_batches


def test_batches_of_long_sentences_are_small():
    """With padding they have 10 tokens at most, unless a single sentence has more."""
    lengths = [1, 1, 1, 1, 4, 5, 6, 30, 2]
    batches = list(split_batches(range(9), lengths, 10, 3))
    assert batches == [[0, 1, 2], [3, 4], [5], [6], [7], [8]]
    assert list(split_batches([5, 6], [5, 5], 10, 3)) == [[5, 6]]
    assert list(split_batches("abcdefg", [1] * 7, 7)) == [list("abcdefg")]
    assert not list(split_batches([], [], 10))

"""The data set of sentences, and mixing in another one."""

import numpy
import pytest
import torch
from fairseq.data import Dictionary, ListDataset

from fairseq_casrnn.data.datasets import (
    MixedDataset,
    RemappedDataset,
    SentenceDataset,
    UnkDropout,
)

PAD, EOS = 1, 2


def sentences(lengths, first=4):
    """Sentence n consists of the word n+first, repeated, and </s>."""
    rows = [torch.tensor([n + first] * (length - 1) + [EOS]) for n, length in enumerate(lengths)]
    return ListDataset(rows, numpy.array(lengths))


def dataset(lengths=(3, 1, 5, 2), shuffle=False, **kwargs):
    labels = numpy.arange(len(lengths)) % 2
    return SentenceDataset([sentences(lengths)], labels, PAD, shuffle=shuffle, **kwargs)


def test_batch():
    data = dataset()
    batch = data.collater([data[0], data[3]])
    assert batch["net_input"]["src_tokens"].tolist() == [[4, 4, 2], [7, 2, 1]]
    assert batch["target"].tolist() == [0, 1]
    assert batch["id"].tolist() == [0, 3]
    assert (batch["nsentences"], batch["ntokens"]) == (2, 5)
    assert data.collater([]) == {}


def test_batch_of_pairs():
    data = SentenceDataset([sentences((3, 1)), sentences((1, 4), first=9)], None, PAD)
    batch = data.collater([data[1], data[0]])
    assert batch["net_input"]["src_tokens"].tolist() == [[2, 1, 1], [4, 4, 2]]
    assert batch["net_input"]["pair_tokens"].tolist() == [[10, 10, 10, 2], [2, 1, 1, 1]]
    assert "target" not in batch
    assert batch["ntokens"] == 4 + 5  # of both sentences
    assert data.sizes.tolist() == [3, 4]  # of the longer sentence


def test_pairs_are_sorted_by_their_first_sentences_and_then_their_second():
    pairs = [sentences((3, 2, 3, 2)), sentences((1, 5, 4, 2))]
    assert SentenceDataset(pairs, None, PAD, shuffle=False).ordered_indices().tolist() == [
        3, 1, 0, 2,
    ]  # fmt: skip


def test_sentences_are_sorted_by_length():
    lengths = numpy.random.RandomState(0).randint(1, 6, 100)
    order = dataset(lengths, shuffle=True).ordered_indices()
    assert sorted(order) == list(range(100))
    assert (numpy.diff(lengths[order]) >= 0).all()
    assert not numpy.array_equal(order, dataset(lengths).ordered_indices())


def test_training_has_other_batches_in_each_epoch():
    assert not dataset(shuffle=True).can_reuse_epoch_itr_across_epochs
    assert dataset().can_reuse_epoch_itr_across_epochs


def test_unk_dropout_of_rare_words():
    """Half of the rare words become <unk>: others in each epoch, the same if it is repeated."""
    unk, rare = 3, torch.zeros(12, dtype=torch.bool)
    rare[5] = True
    lengths = (401, 401)  # of word 4, and of word 5

    def words(epoch, n, seed=1):
        data = dataset(lengths, shuffle=True, unk_dropout=UnkDropout(rare, unk, 0.5, seed))
        data.set_epoch(epoch)
        return data[n]["inputs"][0]

    assert words(1, 0).tolist() == [4] * 400 + [EOS]
    rare[4] = True
    places = [words(1, n) == unk for n in range(2)]
    assert not places[0].equal(places[1])  # sentences lose words at different places
    rare[4] = False
    once = words(1, 1)
    assert set(once[:-1].tolist()) == {5, unk}
    assert once[-1] == EOS
    assert 150 < (once == unk).sum() < 250
    assert once.equal(words(1, 1))
    assert not once.equal(words(2, 1))
    assert not once.equal(words(1, 1, seed=2))


def test_unk_dropout_of_a_mix():
    rare = torch.ones(60, dtype=torch.bool)
    base, extra = (
        dataset([9] * 40, shuffle=True, unk_dropout=UnkDropout(rare, 3, 0.5, 1)) for _ in "ab"
    )
    mixed = MixedDataset(base, extra, 0.5)
    first = [mixed[0]["inputs"][0].tolist(), mixed[41]["inputs"][0].tolist()]
    assert all(3 in tokens for tokens in first)
    mixed.set_epoch(2)
    assert mixed[0]["inputs"][0].tolist() != first[0]


def test_truncation_keeps_the_end_symbol():
    data = dataset(truncate=3)
    assert data[2]["inputs"][0].tolist() == [6, 6, EOS]
    assert data[3]["inputs"][0].tolist() == [7, EOS]
    assert data.sizes.tolist() == [3, 1, 3, 2]


def test_a_mix_draws_other_sentences_in_each_epoch():
    base, extra = dataset(), dataset([2] * 40)
    mixed = MixedDataset(base, extra, 0.15, seed=5)
    assert len(mixed) == 4 + 6
    seen = []
    for epoch in (1, 2, 1):
        mixed.set_epoch(epoch)
        assert [mixed[i]["inputs"][0].tolist() for i in range(4)] == [
            base[i]["inputs"][0].tolist() for i in range(4)
        ]
        chosen = [int(mixed[i]["inputs"][0][0]) for i in range(4, 10)]
        assert len(set(chosen)) == 6
        seen.append(chosen)
        assert sorted(mixed.ordered_indices()) == list(range(10))
    assert seen[0] == seen[2] != seen[1]
    assert mixed.num_tokens(2) == 5
    assert not mixed.can_reuse_epoch_itr_across_epochs
    batch = mixed.collater([mixed[9], mixed[0]])
    assert batch["id"].tolist() == [9, 0]


def test_lengths_of_a_mix():
    mixed = MixedDataset(dataset(), dataset(numpy.arange(2, 42)), 0.25, seed=5)
    for epoch in (1, 2):
        mixed.set_epoch(epoch)
        lengths = [len(mixed[i]["inputs"][0]) for i in range(len(mixed))]
        assert mixed.sizes.tolist() == lengths
        assert [lengths[i] for i in mixed.ordered_indices()] == sorted(lengths)


@pytest.mark.parametrize(("fraction", "count"), [(0.001, 1), (0.5, 20), (1.0, 40)])
def test_size_of_the_mix(fraction, count):
    assert len(MixedDataset(dataset(), dataset([2] * 40), fraction)) == 4 + count


def test_words_of_another_dictionary():
    ours, theirs = Dictionary(), Dictionary()
    for word in ("a", "b"):
        ours.add_symbol(word)
    for word in ("b", "new", "a"):
        theirs.add_symbol(word)
    remapped = RemappedDataset(
        ListDataset([torch.tensor([4, 5, 6, 2])], numpy.array([4])), theirs, ours
    )
    assert remapped[0].tolist() == [ours.index("b"), ours.unk(), ours.index("a"), 2]

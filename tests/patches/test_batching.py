"""Batches contain all sentences, and are the same after resuming."""

import numpy
import pytest
from fairseq.data import FairseqDataset, data_utils
from fairseq.tasks import FairseqTask

from fairseq_casrnn.patches import batching


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


def test_no_sentence_of_a_generator_is_lost():
    batches = data_utils.batch_by_size(
        (i for i in range(11)), lambda index: 1, max_tokens=100, required_batch_size_multiple=8
    )
    assert sum(len(batch) for batch in batches) == 11


def test_batches_of_fixed_shapes_are_not_changed():
    """Missing sentences may belong anywhere in them, not only at the end."""

    def batch_by_size(indices, **kwargs):
        return [[3, 1]]

    found = batching.keep_last_batch(batch_by_size, numpy.arange(4), fixed_shapes=[[4, 2]])
    assert found == [[3, 1]]


class Shuffled(FairseqDataset):
    """Twenty sentences of one token, in random order."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return index

    def collater(self, samples):
        return samples

    def num_tokens(self, index):
        return 1

    def ordered_indices(self):
        return numpy.random.permutation(20)


def batches_of(start, **options):
    """Return the first epoch and the batches of a training that starts in epoch ``start``."""
    iterator = FairseqTask(None).get_batch_iterator(
        Shuffled(), max_sentences=4, seed=5, epoch=start, **options
    )
    return iterator.epoch, [list(batch) for batch in iterator.frozen_batches]


def test_batches_do_not_depend_on_the_epoch_a_training_is_resumed_in():
    first, batches = batches_of(1)
    assert first == 1
    assert batches_of(3) == (3, batches)
    # With this option each epoch has other batches.
    assert batches_of(3, update_epoch_batch_itr=True)[1] != batches


def test_validation_on_the_training_set_has_its_own_iterator():
    task, trained, other = FairseqTask(None), Shuffled(), Shuffled()
    training = task.get_batch_iterator(trained, max_sentences=4, grouped_shuffling=False)
    epoch = training.next_epoch_itr()
    next(epoch)
    validation = task.get_batch_iterator(trained, max_sentences=4)
    assert len(list(validation.next_epoch_itr(shuffle=False))) == 5
    assert (training.epoch, training.iterations_in_epoch) == (1, 1)
    again = task.get_batch_iterator(trained, max_sentences=4, grouped_shuffling=False)
    assert again is training
    # Other iterators are kept, as in fairseq.
    kept = task.get_batch_iterator(other, max_sentences=4)
    assert task.get_batch_iterator(other, max_sentences=4) is kept

"""Data sets with batches of sentences of similar length."""

from __future__ import annotations

import numpy
from fairseq.data import FairseqDataset


class LengthSortedDataset(FairseqDataset):
    """Sentences, or pairs of them, sorted by length.

    Args:
        lengths: one or two arrays (N,): lengths of the sentences, or of both sentences of pairs.
        shuffle: whether sentences of equal length are shuffled, in a new order in each epoch.

    Attributes:
        sizes: (N,), length of the sentence, or of the longer one of a pair.
        epoch: the current epoch, counting from 1.
    """

    def __init__(self, lengths, shuffle: bool):
        self.lengths, self.shuffle, self.epoch = lengths, shuffle, 1
        self.sizes = numpy.max(lengths, axis=0)

    @property
    def can_reuse_epoch_itr_across_epochs(self):
        """Whether all epochs have the same batches."""
        return not self.shuffle

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines random choices."""
        self.epoch = epoch

    def __len__(self):
        return len(self.sizes)

    def num_tokens(self, index):
        """Length of the (longer) sentence with </s>, for ``--max-tokens``."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices):
        """Lengths of several examples, see :meth:`num_tokens`."""
        return self.sizes[indices]

    def size(self, index):
        """Length of the (longer) sentence with </s>, for the maximum positions."""
        return int(self.sizes[index])

    def ordered_indices(self):
        """All indices sorted by length; equal lengths are shuffled if ``shuffle``."""
        count = len(self)
        indices = numpy.random.permutation(count) if self.shuffle else numpy.arange(count)
        for lengths in reversed(self.lengths):
            indices = indices[numpy.argsort(lengths[indices], kind="stable")]
        return indices

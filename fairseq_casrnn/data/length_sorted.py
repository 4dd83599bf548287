"""Data sets whose batches are sentences of about one length."""

from __future__ import annotations

import numpy
from fairseq.data import FairseqDataset


class LengthSortedDataset(FairseqDataset):
    """Sentences, or pairs of them, sorted by length.

    Args:
        lengths: one or two arrays (N,): of the sentences, or of the first and the second ones.
        shuffle: whether sentences of one length come in random order, another one in each epoch.

    Attributes:
        sizes: (N,), of the longer of two sentences.
        epoch: the current one, from 1.
    """

    def __init__(self, lengths, shuffle: bool):
        self.lengths, self.shuffle, self.epoch = lengths, shuffle, 1
        self.sizes = numpy.max(lengths, axis=0)

    @property
    def can_reuse_epoch_itr_across_epochs(self):
        """Whether all epochs have the same batches."""
        return not self.shuffle

    def set_epoch(self, epoch: int) -> None:
        """Choose anew what is random."""
        self.epoch = epoch

    def __len__(self):
        return len(self.sizes)

    def num_tokens(self, index):
        """Length of the (longer) sentence, with </s>, which ``--max-tokens`` counts."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices):
        """The same for many."""
        return self.sizes[indices]

    def size(self, index):
        """The same, which the maximal positions limit."""
        return int(self.sizes[index])

    def ordered_indices(self):
        """All indices, sorted by length, in random order among equals: batches of one length."""
        count = len(self)
        indices = numpy.random.permutation(count) if self.shuffle else numpy.arange(count)
        for lengths in reversed(self.lengths):
            indices = indices[numpy.argsort(lengths[indices], kind="stable")]
        return indices

"""What data sets of labelled and of tagged sentences share: order by length, <unk> in training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch
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
        """Length of the (longer) sentence with </s>, for limits of tokens and positions."""
        return int(self.sizes[index])

    size = num_tokens

    def num_tokens_vec(self, indices):
        """Lengths of several examples, see :meth:`num_tokens`."""
        return self.sizes[indices]

    def ordered_indices(self):
        """All indices sorted by length; equal lengths are shuffled if ``shuffle``."""
        count = len(self)
        indices = numpy.random.permutation(count) if self.shuffle else numpy.arange(count)
        for lengths in reversed(self.lengths):
            indices = indices[numpy.argsort(lengths[indices], kind="stable")]
        return indices


@dataclass
class UnkDropout:
    """Randomly replaces rare words by <unk>, so that the embedding of <unk> is trained.

    Args:
        rare: ``(V,)`` bool, the words that may be replaced.
        unk: index of <unk>.
        probability: probability of replacing a rare word.
        seed: seed of the choice, together with the epoch and the index of the sentence.
    """

    rare: torch.Tensor
    unk: int
    probability: float
    seed: int

    def __call__(self, sentences: list, epoch: int, index: int) -> list:
        """The token tensors of one example, with some words replaced."""
        draw = numpy.random.default_rng([self.seed, epoch, index])
        replaced = []
        for tokens in sentences:
            chosen = torch.from_numpy(draw.random(len(tokens)) < self.probability)
            replaced.append(tokens.masked_fill(chosen & self.rare[tokens], self.unk))
        return replaced

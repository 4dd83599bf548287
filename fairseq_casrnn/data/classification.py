"""fairseq data sets of labelled sentences or pairs of sentences."""

from __future__ import annotations

import numpy
import torch
from fairseq.data import data_utils

from fairseq_casrnn.data.labelled import LengthSortedDataset, UnkDropout

UNSEEN = -1  # label of a class that does not occur in training; also ignored by the loss


class SentenceDataset(LengthSortedDataset):
    """Labelled sentences, or labelled pairs of sentences.

    Args:
        inputs: one or two data sets of token tensors with ``sizes``, of equal length.
        labels: ``(N,)`` class indices, or :data:`UNSEEN` in validation and test; None if there are
            no labels.
        pad: index of the padding symbol.
        shuffle: whether sentences of equal length are shuffled, in a new order in each epoch.
        truncate: maximum length in tokens; longer sentences are cut but keep their last token.
        unk_dropout: replaces words by <unk>, or None.
    """

    def __init__(
        self,
        inputs,
        labels,
        pad: int,
        shuffle: bool = True,
        truncate: int | None = None,
        unk_dropout: UnkDropout | None = None,
    ):
        self.inputs, self.labels, self.pad = list(inputs), labels, pad
        self.truncate, self.unk_dropout = truncate, unk_dropout
        lengths = [numpy.asarray(sentences.sizes) for sentences in self.inputs]
        if truncate:
            lengths = [numpy.minimum(sizes, truncate) for sizes in lengths]
        super().__init__(lengths, shuffle)

    def __getitem__(self, index):
        inputs = [self._sentence(sentences[index]) for sentences in self.inputs]
        if self.unk_dropout:
            inputs = self.unk_dropout(inputs, self.epoch, int(index))
        return {
            "id": int(index),
            "inputs": inputs,
            "label": None if self.labels is None else int(self.labels[index]),
        }

    def _sentence(self, tokens):
        if self.truncate and len(tokens) > self.truncate:
            tokens = torch.cat([tokens[: self.truncate - 1], tokens[-1:]])
        return tokens.long()

    def collater(self, samples):
        """Make a batch.

        ``net_input`` has ``src_tokens`` (B, T) and, for pairs, ``pair_tokens`` (B, T'), padded on
        the right. ``target`` is (B,).
        """
        if not samples:
            return {}
        columns = zip(*(sample["inputs"] for sample in samples), strict=True)
        tokens = [data_utils.collate_tokens(list(column), self.pad) for column in columns]
        batch = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(len(tokens) for sample in samples for tokens in sample["inputs"]),
            "net_input": dict(zip(("src_tokens", "pair_tokens"), tokens, strict=False)),
        }
        if samples[0]["label"] is not None:
            batch["target"] = torch.tensor([sample["label"] for sample in samples])
        return batch


class MixedDataset(LengthSortedDataset):
    """A data set and a random part of another one, drawn anew in each epoch.

    Args:
        base: the data set that is used as a whole.
        extra: the data set of which a part is drawn without replacement.
        fraction: size of that part, between 0 and 1.
        seed: seed of the draw, together with the epoch.
    """

    def __init__(
        self, base: SentenceDataset, extra: SentenceDataset, fraction: float, seed: int = 1
    ):
        super().__init__(base.lengths, shuffle=True)
        self.base, self.extra, self.seed = base, extra, seed
        self.count = max(1, round(fraction * len(extra)))
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        """Draw the extra sentences of ``epoch``, which counts from 1."""
        super().set_epoch(epoch)
        for part in (self.base, self.extra):
            part.set_epoch(epoch)
        choice = numpy.random.RandomState([self.seed, epoch])
        self.chosen = numpy.sort(choice.choice(len(self.extra), self.count, replace=False))
        columns = zip(self.base.lengths, self.extra.lengths, strict=True)
        self.lengths = [numpy.concatenate([own, new[self.chosen]]) for own, new in columns]
        self.sizes = numpy.max(self.lengths, axis=0)

    def __getitem__(self, index):
        own = len(self.base)
        sample = self.base[index] if index < own else self.extra[self.chosen[index - own]]
        return {**sample, "id": int(index)}

    def collater(self, samples):
        """Make a batch, as :class:`SentenceDataset` does."""
        return self.base.collater(samples)


class RemappedDataset:
    """Sentences binarised with one dictionary, with the indices of another.

    Args:
        sentences: data set of token tensors with ``sizes``.
        theirs: the dictionary of ``sentences``.
        ours: the dictionary whose indices are returned; words that it lacks become <unk>.
    """

    def __init__(self, sentences, theirs, ours):
        self.sentences, self.sizes = sentences, sentences.sizes
        self.table = torch.tensor([ours.index(symbol) for symbol in theirs.symbols])

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        return self.table[self.sentences[index].long()]

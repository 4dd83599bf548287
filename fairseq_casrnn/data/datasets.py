"""fairseq data sets of labelled sentences, of pairs of them, and of tagged sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
from fairseq.data import FairseqDataset, data_utils

UNSEEN_CLASS = -1  # label of a class that does not occur in training; also ignored by the loss
UNSEEN_TAG = -2  # label of a tag that does not occur in training
LONGEST_WORD = 50  # characters; longer words, such as URLs, are cut


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


class SentenceDataset(LengthSortedDataset):
    """Labelled sentences, or labelled pairs of sentences.

    Args:
        inputs: one or two data sets of token tensors with ``sizes``, of equal length.
        labels: ``(N,)`` class indices, in validation and test also :data:`UNSEEN_CLASS`; None if
            there are no labels.
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


class TaggingDataset(LengthSortedDataset):
    """Sentences of words with their characters and tags.

    Args:
        words: data set of token tensors with ``sizes``; each ends with </s>.
        tags: function from an index to the sentence's tag indices ``(words,)``, in validation and
            test also :data:`UNSEEN_TAG`; None if there are no tags.
        pad: index of the padding symbol of words.
        characters: function from an index to the characters of the sentence's words, a tensor for
            each word; None if characters are not used.
        character_pad: index of the padding symbol of characters.
        shuffle: whether sentences of equal length are shuffled, in a new order in each epoch.
        unk_dropout: replaces words by <unk>, or None.
    """

    def __init__(
        self,
        words,
        tags: Callable | None,
        pad: int,
        *,
        characters: Callable | None = None,
        character_pad: int = 0,
        shuffle: bool = True,
        unk_dropout: UnkDropout | None = None,
    ):
        super().__init__([numpy.asarray(words.sizes)], shuffle)
        self.words, self.tags, self.pad, self.unk_dropout = words, tags, pad, unk_dropout
        self.characters, self.character_pad = characters, character_pad

    def __getitem__(self, index):
        words = [self.words[index].long()]
        if self.unk_dropout:
            words = self.unk_dropout(words, self.epoch, int(index))
        return {
            "id": int(index),
            "words": words[0],
            "characters": self.characters(index) if self.characters else None,
            "tags": self.tags(index) if self.tags else None,
        }

    def collater(self, samples):
        """Make a batch.

        ``net_input`` has ``src_tokens`` (B, T + 1), with </s> and padded on the right, and
        ``spelling`` (B, T, W) if characters are used. ``lengths`` (B,) counts words without </s>.
        ``target`` (B, T) has the tags, and -1 at padding. T is at least 1.
        """
        if not samples:
            return {}
        words = [sample["words"] for sample in samples]
        lengths = torch.tensor([len(sentence) - 1 for sentence in words])
        batch = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "lengths": lengths,
            "net_input": {"src_tokens": data_utils.collate_tokens(words, self.pad)},
        }
        longest = max(int(lengths.max()), 1)
        if samples[0]["characters"] is not None:
            char_ids = [sample["characters"] for sample in samples]
            batch["net_input"]["spelling"] = self._spelling(char_ids, longest)
        if samples[0]["tags"] is not None:
            tags = [sample["tags"] for sample in samples]
            batch["target"] = data_utils.collate_tokens(tags, -1, pad_to_length=longest)
        return batch

    def _spelling(self, sentences: list, longest: int) -> torch.Tensor:
        words = [word[:LONGEST_WORD] for sentence in sentences for word in sentence]
        width = max((len(word) for word in words), default=1)
        spelling = torch.full((len(sentences), longest, width), self.character_pad)
        place = [(b, t) for b, sentence in enumerate(sentences) for t in range(len(sentence))]
        for (b, t), word in zip(place, words, strict=True):
            spelling[b, t, : len(word)] = word
        return spelling


def characters_of_words(dataset, eos: int, index: int) -> list[torch.Tensor]:
    """The characters of each word of sentence ``index``, where ``eos`` ends each word."""
    row = dataset[index].long()
    ends = row.eq(eos).nonzero().flatten().tolist()
    begins = [0, *(position + 1 for position in ends)]
    return [row[a:b] for a, b in zip(begins, ends, strict=False) if b > a]

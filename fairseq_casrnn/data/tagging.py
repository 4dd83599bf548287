"""Sentences with a tag for each word, as a fairseq data set."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import torch
from fairseq.data import data_utils

from fairseq_casrnn.data.labelled import LengthSortedDataset, UnkDropout

UNSEEN = -2  # label of a tag that does not occur in training
LONGEST_WORD = 50  # characters; longer words, such as URLs, are cut


class TaggingDataset(LengthSortedDataset):
    """Sentences of words with their characters and tags.

    Args:
        words: data set of token tensors with ``sizes``; each ends with </s>.
        tags: function from an index to the sentence's tag indices ``(words,)``, or :data:`UNSEEN`
            in validation and test; None if there are no tags.
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
            target = torch.full((len(samples), longest), -1)
            for row, sample in zip(target, samples, strict=True):
                row[: len(sample["tags"])] = sample["tags"]
            batch["target"] = target
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

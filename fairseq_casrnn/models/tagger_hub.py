"""A trained tagger for use from Python: text in, tags out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import UserError
from .hub import Hub, check_finite, listed


class Word(NamedTuple):
    """A word and its tag."""

    text: str
    tag: str


class TaggerHub(Hub):
    """What ``from_pretrained`` of a tagger returns.

    Attributes:
        model: the :class:`.Tagger`, in ``eval()`` mode.
        task: the ``sequence_tagging`` task.
        classes: names of the tags, in the order of the emissions.
    """

    task_name, what = "sequence_tagging", "tagger"

    @staticmethod
    def parts(model_cfg) -> tuple[str, ...]:
        """Also that of the characters, if it reads them."""
        return ("input0", "label", "spelling") if model_cfg.char_filters else ("input0", "label")

    @property
    def is_constrained(self) -> bool:
        """Whether a CRF's tags are kept to the scheme of spans."""
        return self.model.crf is not None and self.task.constraints is not None

    def tag(self, sentences: Sequence, batch_size: int = 32) -> list[list[Word]]:
        """The words of each sentence with their tags.

        Args:
            sentences: strings, which are split as the training text was, or lists of words.
            batch_size: how many to compute at once.

        Raises:
            UserError: something that is neither.
        """
        split = [self._words(sentence) for sentence in listed(sentences)]
        if not split:
            return []
        tokens, spelt = zip(*map(self.task.encode_words, split), strict=True)
        lengths = [len(row) for row in tokens]
        dataset = self.task.build_dataset_for_inference(list(tokens), lengths, spelt=list(spelt))
        tags = self.of_dataset(dataset, batch_size)
        return [
            [Word(word, tag) for word, tag in zip(words, row, strict=True)]
            for words, row in zip(split, tags, strict=True)
        ]

    def _words(self, sentence) -> list[str]:
        if isinstance(sentence, str):
            return self.task.split_text(sentence)
        if isinstance(sentence, (list, tuple)) and all(
            isinstance(word, str) and word for word in sentence
        ):
            return list(sentence)
        raise UserError(f"a sentence is a string or a list of words, not {sentence!r}")

    def of_dataset(self, dataset, batch_size: int = 32) -> list[list[str]]:
        """The tags of each sentence of a data set that the task loaded, in its order."""
        found: list[list[str]] = [[] for _ in range(len(dataset))]
        for indices, best, _ in self._best(dataset, batch_size):
            for index, row in zip(indices, best, strict=True):
                found[index] = [self.classes[tag] for tag in row]
        return found

    def confidence(self, dataset, batch_size: int = 32) -> list[float]:
        """The probability of the best tags of each sentence, all together, in its order."""
        found = [0.0] * len(dataset)
        for indices, best, emissions in self._best(dataset, batch_size):
            for index, value in zip(
                indices, self.model.probabilities(emissions, best), strict=True
            ):
                found[index] = value
        return found

    @torch.no_grad()
    def _best(self, dataset, batch_size: int) -> Iterator[tuple[list, list[list[int]], Tensor]]:
        """(indices, best tags, emissions) of each batch."""
        for indices, batch in self.batches(dataset, batch_size):
            emissions, _ = self.model(**batch["net_input"])
            check_finite(emissions)
            lengths = batch["lengths"].to(emissions.device)
            best = self.model.best(emissions, lengths, self.task.constraints)
            yield indices, best, emissions

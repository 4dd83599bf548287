"""A trained tagger for use from Python: from text to tags and spans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from ..data.spans import spans
from ..errors import UserError
from ..kinds import TAGGER
from .hub import Hub, as_list, check_outputs_finite

# What the Penn Treebank's quotation marks may stand for: NLTK also opens with two apostrophes.
QUOTES = {"``": ('"', "“", "„", "''"), "''": ('"', "”", "“")}


Batch: TypeAlias = tuple[list[int], list[list[int]], Tensor, Tensor]
"""Indices, best tags, emissions and lengths of sentences."""


class Word(NamedTuple):
    """A word and its tag."""

    text: str
    tag: str


class TaggedWord(NamedTuple):
    """A word, its tag, the tag's probability, and the word's character offsets in the line."""

    text: str
    tag: str
    probability: float
    start: int
    end: int


class Span(NamedTuple):
    """A span of words: its text, its character offsets in the line, and its probability.

    The probability is the smallest of its words' tags.
    """

    type: str
    start: int
    end: int
    text: str
    probability: float


class TaggerHub(Hub):
    """The interface that ``from_pretrained`` of a tagger returns.

    Attributes:
        model: the :class:`.Tagger`, in ``eval()`` mode.
        task: the ``sequence_tagging`` task.
        classes: names of the tags, in the order of the emissions.
    """

    kind = TAGGER

    @property
    def is_constrained(self) -> bool:
        """Whether the best tags of a CRF are restricted to valid spans."""
        return self.model.crf is not None and self.task.constraints is not None

    def tag(self, sentences: Sequence, batch_size: int = 32) -> list[list[Word]]:
        """The words of each sentence with their tags.

        Args:
            sentences: strings, which are tokenised as the training text was, or lists of words.
            batch_size: sentences per batch.

        Raises:
            UserError: an item that is neither.
        """
        split = [self._words(sentence) for sentence in as_list(sentences)]
        found: list[list[Word]] = [[] for _ in split]
        for indices, best, _, _ in self._best_of_words(split, batch_size):
            for index, row in zip(indices, best, strict=True):
                pairs = zip(split[index], row, strict=True)
                found[index] = [Word(word, self.classes[tag]) for word, tag in pairs]
        return found

    def annotate(self, sentences: Sequence, batch_size: int = 32) -> list[list[TaggedWord]]:
        """As :meth:`tag`, with the tags' probabilities and the words' character offsets.

        The probability of a tag is the CRF's marginal, over all tags of the other words, or the
        softmax's. The line of a list of words is the words joined by spaces.
        """
        sentences = as_list(sentences)
        split = [self._words(sentence) for sentence in sentences]
        found: list[list[TaggedWord]] = [[] for _ in split]
        for indices, best, emissions, lengths in self._best_of_words(split, batch_size):
            marginals = self.model.marginals(emissions, lengths, self.task.constraints).cpu()
            for index, tags, rows in zip(indices, best, marginals, strict=True):
                values = rows[: len(tags)].gather(-1, torch.tensor(tags).long().unsqueeze(-1))
                offsets = word_offsets(split[index], self.line(sentences[index]))
                columns = (split[index], tags, values.squeeze(-1).tolist(), offsets)
                found[index] = [
                    TaggedWord(word, self.classes[tag], value, *place)
                    for word, tag, value, place in zip(*columns, strict=True)
                ]
        return found

    @staticmethod
    def line(sentence: str | Sequence[str]) -> str:
        """The line of a sentence that is a string or a list of words."""
        return sentence if isinstance(sentence, str) else " ".join(sentence)

    def spans(self, sentences: Sequence[str], batch_size: int = 32) -> list[list[Span]]:
        """The spans of each sentence, from left to right.

        Arguments and errors as for :meth:`tag`; also a UserError if the tags mark no spans.
        """
        self.check_spans()
        sentences = as_list(sentences)
        return [
            self.spans_of(words, self.line(sentence))
            for words, sentence in zip(self.annotate(sentences, batch_size), sentences, strict=True)
        ]

    def check_spans(self) -> None:
        """Raise UserError if the model's tags mark no spans."""
        if not self.task.are_spans:
            raise UserError(
                f"the tags of this model ({', '.join(self.classes[:3])}, …) mark no spans; ask for "
                "the words' tags (--format columns or json)"
            )

    def spans_of(self, words: Sequence[TaggedWord], line: str) -> list[Span]:
        """The spans of the tagged words of a line."""
        found = spans([word.tag for word in words])
        return [
            Span(
                kind,
                words[first].start,
                words[last].end,
                line[words[first].start : words[last].end],
                min(word.probability for word in words[first : last + 1]),
            )
            for kind, first, last in sorted(found, key=lambda span: span[1])
        ]

    def _words(self, sentence: str | Sequence[str]) -> list[str]:
        if isinstance(sentence, str):
            return self.task.split_text(sentence)
        if isinstance(sentence, (list, tuple)) and all(
            isinstance(word, str) and word for word in sentence
        ):
            return list(sentence)
        raise UserError(f"a sentence is a string or a list of words, not {sentence!r}")

    @torch.no_grad()
    def of_dataset(
        self, dataset: FairseqDataset, batch_size: int = 32
    ) -> list[tuple[list[str], float]]:
        """The best tags of each sentence of a data set of the task, and their joint probability."""
        found: list[tuple[list[str], float]] = [([], 1.0)] * len(dataset)
        for indices, best, emissions, _ in self._best(dataset, batch_size):
            values = self.model.probabilities(emissions, best)
            for index, row, value in zip(indices, best, values, strict=True):
                found[index] = [self.classes[tag] for tag in row], value
        return found

    def _best_of_words(self, split: Sequence[list[str]], batch_size: int) -> Iterator[Batch]:
        """As :meth:`_best`, for sentences that are lists of words."""
        if split:
            tokens, char_ids = zip(*map(self.task.encode_words, split), strict=True)
            lengths = [len(row) for row in tokens]
            dataset = self.task.build_dataset_for_inference(
                list(tokens), lengths, char_ids=list(char_ids)
            )
            yield from self._best(dataset, batch_size)

    @torch.no_grad()
    def _best(self, dataset: FairseqDataset, batch_size: int) -> Iterator[Batch]:
        """Yields each batch of a data set of the task."""
        for indices, batch in self.batches(dataset, batch_size):
            emissions, _ = self.model(**batch["net_input"])
            check_outputs_finite(emissions)
            lengths = batch["lengths"].to(emissions.device)
            best = self.model.best(emissions, lengths, self.task.constraints)
            yield indices, best, emissions, lengths


def word_offsets(words: Sequence[str], line: str) -> list[tuple[int, int]]:
    """(begin, end) of each word in ``line``, in characters; the end is exclusive.

    Tokenizers keep all characters except quotation marks. If a word is not found in the line, its
    own offsets are a guess, but those of the following words are not affected.
    """
    found, end = [], 0
    for word in words:
        begin, size = end, len(word)
        # A word may be a white-space character, such as a no-break space.
        while line[begin : begin + 1].isspace() and not line.startswith(word, begin):
            begin += 1
        if not line.startswith(word, begin):
            quote = next((q for q in QUOTES.get(word, ()) if line.startswith(q, begin)), None)
            if quote is not None:
                size = len(quote)
            elif (later := line.find(word, begin)) >= 0:
                begin = later
        end = min(begin + size, len(line))
        found.append((begin, end))
    return found

"""Sequence tagging: a class for each word of a sentence."""

# No "from __future__ import annotations" here: fairseq reads the fields' types.
# ruff: noqa: UP045
import functools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Optional

import numpy
import torch
from fairseq.data import Dictionary, ListDataset
from fairseq.logging.meters import MetersDict
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from omegaconf import MISSING

from ..data.datasets import UNSEEN_TAG, TaggingDataset, characters_of_words
from ..data.dictionaries import digest
from ..data.spans import are_spans
from ..data.symbols import escape
from ..data.tag_constraints import Constraints, constraints, has_closing, violations
from ..data.words import normalised, with_plain_quote, words_to_show
from ..errors import UserError
from .data_folder import check_equally_many, load_dictionary
from .labelled import LabelledConfig, LabelledTask

logger = logging.getLogger(__name__)

MAX_VIOLATIONS = 0.01  # of the tags that are not O; more means that the data has another scheme


@dataclass
class SequenceTaggingConfig(LabelledConfig):
    """Options of the task."""

    data: str = field(
        default=MISSING,
        metadata={"help": "folder with input0/, label/ and, for --char-filters, spelling/"},
    )
    zero_digits: Optional[bool] = field(
        default=None,
        metadata={
            "help": "read every digit of raw text as 0 when tagging (default: as in the data "
            "folder's text.json)"
        },
    )
    unconstrained_tags: bool = field(
        default=False,
        metadata={
            "help": "decode tags by the model's scores alone; otherwise sequences that IOB2 or "
            "BIOES forbids, such as I-PER after O, are excluded"
        },
    )


@register_task("sequence_tagging", dataclass=SequenceTaggingConfig)
class SequenceTaggingTask(LabelledTask):
    """Tagging of words with parts of speech, or with spans such as names, in IOB or BIOES.

    The data folder has ``input0/`` and ``label/`` with as many tags as words in each sentence, both
    filled by ``fairseq-preprocess --only-source``. It may have ``spelling/``, whose sentences are
    the characters of the words with </s> after each word.

    Attributes:
        characters: the dictionary of characters, or None.
        uses_characters: whether the model reads characters; the model sets it when it is built.
        are_spans: whether the tags mark spans, so that F1 is computed.
        constraints: the transitions that decoding must not use, or None.
    """

    uses_characters = False

    def __init__(
        self, cfg: SequenceTaggingConfig, dictionary: Dictionary, label_dictionary: Dictionary
    ):
        super().__init__(cfg, dictionary, label_dictionary)
        self.characters: Any = None
        if os.path.isfile(os.path.join(cfg.data, "spelling", "dict.txt")):
            self.characters = load_dictionary(cfg.data, "spelling")
            self.state.merge_state_dict({"characters": digest(self.characters)})
        self.are_spans = are_spans(self.classes)
        self.state.merge_state_dict({"irregular_tags": False})
        if self.are_spans:
            logger.info(
                "tags mark spans: accuracy is over tags in IOB2, precision, recall and F1 over "
                "spans"
            )

    def text_settings(self) -> dict:
        """Settings of the text, and whether digits are read as 0."""
        return {"zero_digits": False, **super().text_settings()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint's state, see :meth:`LabelledTask.load_state_dict`.

        Older checkpoints do not say whether B and I tags are in IOB1, which violates IOB2; for
        them nothing is excluded in decoding.
        """
        unknown = "irregular_tags" not in state_dict and not has_closing(self.classes)
        super().load_state_dict({"irregular_tags": unknown, **state_dict})

    def check_words(self, state_dict: dict[str, Any]) -> None:
        """Raise UserError if a checkpoint was trained with other words or characters."""
        super().check_words(state_dict)
        if self.uses_characters:
            self._check_characters(state_dict.get("characters"))

    def use_characters(self) -> None:
        """Load the words' characters, too, for a model that reads them.

        Raises:
            UserError: the model was trained with another dictionary of characters.
        """
        self.uses_characters = True
        self._check_characters(self.state.characters)  # from the checkpoint, if one was loaded

    def _check_characters(self, known: int | None) -> None:
        if known not in (None, digest(self.characters)):
            raise UserError(
                f"{self.cfg.data}/spelling/dict.txt is not the dictionary that the model was "
                "trained with; give the data folder of its training"
            )

    @property
    def constraints(self) -> Optional[Constraints]:
        """The transitions that decoding must not use.

        None if the tags mark no spans, ``--unconstrained-tags`` is given, or the training data
        violates the scheme.
        """
        if not self.are_spans or self.cfg.unconstrained_tags or self.state.irregular_tags:
            return None
        return constraints(tuple(self.classes))

    # --- data ----------------------------------------------------------------------------------

    def _for_training(self, dataset: TaggingDataset, split: str) -> TaggingDataset:
        """Note whether the tags violate their scheme, as IOB1 does."""
        if not self.are_spans:
            return dataset
        scheme, broken, marked = constraints(tuple(self.classes)), 0, 0
        outside = self.classes.index("O") if "O" in self.classes else -1
        assert dataset.tags is not None  # a training set has tags
        for index in range(len(dataset)):
            tags = dataset.tags(index)
            broken += violations(scheme, tags)
            marked += int(tags.ne(outside).sum())
        irregular = broken > MAX_VIOLATIONS * marked
        self.state.merge_state_dict({"irregular_tags": irregular})
        if irregular:
            logger.warning(
                "%d of %d span tags in the training set violate IOB2 or BIOES, so decoding does "
                "not enforce these schemes; casrnn prepare tagging converts tags to BIOES",
                broken,
                marked,
            )
        return dataset

    def _load(self, folder: str, split: str, train: bool) -> TaggingDataset:
        sentences = self._load_part(folder, "input0", split, self.dictionary)
        tags = self._load_part(folder, "label", split, self.label_dictionary)
        self._check_lengths(split, "label", sentences, tags)
        numbers = self._numbers(split, tags)
        characters, pad = None, 0
        if self.uses_characters:
            char_ids = self._load_part(folder, "spelling", split, self.characters)
            self._check_lengths(split, "spelling", sentences, char_ids, self.characters.eos())
            pad = self.characters.pad()
            characters = functools.partial(characters_of_words, char_ids, self.characters.eos())
        logger.info("%s: %d sentences", split, len(sentences))
        return TaggingDataset(
            sentences,
            lambda index: numbers[tags[index][:-1].long()],
            self.dictionary.pad(),
            characters=characters,
            character_pad=pad,
            shuffle=train,
            unk_dropout=self._unk_dropout() if train else None,
        )

    def _check_lengths(
        self, split: str, part: str, sentences: Any, other: Any, end: Optional[int] = None
    ) -> None:
        """Raise UserError unless ``other`` has one item for each word.

        Args:
            split: name of the split.
            part: folder of ``other``.
            sentences: the words.
            other: the tags, or the characters.
            end: index of </s> if it ends each item; None if each item is one token.
        """
        folder = self.cfg.data
        check_equally_many(folder, split, part, sentences, other)
        count = other.sizes
        if end is not None:
            # a sentence without words is </s> alone
            count = numpy.array([int(row.eq(end).sum()) + (len(row) > 1) for row in other])
        for number in numpy.flatnonzero(sentences.sizes != count)[:1]:
            raise UserError(
                f"{folder}/{part}/{split}, sentence {number + 1} covers {count[number] - 1} "
                f"words, but input0/{split} has {sentences.sizes[number] - 1}; "
                + ("give each word one tag" if end is None else "prepare them again together")
            )

    def _numbers(self, split: str, tags: Any) -> torch.Tensor:
        """For each index of the label dictionary: that into ``classes``, or ``UNSEEN_TAG``."""
        known = {name: n for n, name in enumerate(self.classes)}
        symbols = self.label_dictionary.symbols
        numbers = torch.tensor([known.get(symbol, UNSEEN_TAG) for symbol in symbols])
        count, first = 0, ""
        for i in range(len(tags)):
            for position in numbers[tags[i][:-1].long()].lt(0).nonzero().flatten().tolist():
                count += 1
                first = first or (
                    f"{self.cfg.data}/label/{split}, sentence {i + 1}, word {position + 1}"
                )
        if count:
            self._report_unseen(split, "tag", count, first)
        return numbers

    def tag_names(self, numbers: torch.Tensor) -> list[str]:
        """Names of tags; one that is not in training gets a name that no model predicts."""
        unseen = "I-<unk>" if self.are_spans else "<unk>"
        return [unseen if n == UNSEEN_TAG else self.classes[n] for n in numbers.tolist()]

    def split_text(self, line: str) -> list[str]:
        """The words of raw text, as they are shown."""
        return words_to_show(line, self.tokenizer, self.dictionary, self.language)

    def encode_text(self, line: str) -> torch.Tensor:
        """Raw text as token indices with </s>."""
        return self.encode_words(self.split_text(line))[0]

    def encode_words(self, sentence: list[str]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Token indices with </s>, and the character indices of each word, of a split sentence."""
        forms = escape(normalised(sentence, **self.normalisation))
        found = [self.index_of(with_plain_quote(self.dictionary, word)) for word in forms]
        char_ids = []
        if self.uses_characters:
            letters = self.characters
            char_ids = [
                torch.tensor([letters.index(with_plain_quote(letters, c)) for c in word])
                for word in sentence
            ]
        return torch.tensor([*found, self.dictionary.eos()]), char_ids

    def build_dataset_for_inference(
        self,
        src_tokens: list[torch.Tensor],
        src_lengths: Sequence[int],
        char_ids: Any = None,
        **kwargs: Any,
    ) -> TaggingDataset:
        """A data set without tags from lists of token tensors and of the words' characters."""
        sentences = ListDataset(src_tokens, numpy.array([len(t) for t in src_tokens]))
        return TaggingDataset(
            sentences,
            None,
            self.dictionary.pad(),
            characters=char_ids.__getitem__ if self.uses_characters else None,
            character_pad=self.characters.pad() if self.uses_characters else 0,
            shuffle=False,
        )

    def build_generator(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise UserError: a tagger generates no text."""
        raise UserError(
            "a tagger generates no text; use casrnn tag for its tags, fairseq-validate for its "
            "accuracy"
        )

    # --- training ------------------------------------------------------------------------------

    def post_validate(
        self, model: BaseFairseqModel, stats: dict[str, Any], agg: MetersDict
    ) -> None:
        """After a validation: write its scores to ``--save-dir``."""
        names = ("accuracy", "precision", "recall", "f1")
        result = {name: stats[name] for name in names if name in stats}
        if result:
            self.write_validation(result, stats)

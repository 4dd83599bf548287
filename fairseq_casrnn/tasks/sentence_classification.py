"""Classification of sentences or of pairs of sentences."""

# No "from __future__ import annotations" here: fairseq reads the fields' types.
# ruff: noqa: UP045
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Optional, Self

import numpy
import torch
from fairseq.data import Dictionary, ListDataset
from fairseq.logging.meters import MetersDict
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task

from ..data.datasets import UNSEEN_CLASS, MixedDataset, RemappedDataset, SentenceDataset
from ..data.symbols import escape
from ..data.words import words
from ..errors import UserError, check_at_least
from ..evaluation.confusion import summary
from .data_folder import check_equally_many, load_dictionary, read_text_json
from .labelled import LabelledConfig, LabelledTask

logger = logging.getLogger(__name__)


@dataclass
class SentenceClassificationConfig(LabelledConfig):
    """Options of the task."""

    truncate: Optional[int] = field(
        default=None, metadata={"help": "truncate sentences to this many tokens"}
    )
    mix: Optional[str] = field(
        default=None,
        metadata={
            "help": "DIR:FRACTION, add this fraction of another corpus' training set, drawn anew "
            "in each epoch"
        },
    )


@register_task("sentence_classification", dataclass=SentenceClassificationConfig)
class SentenceClassificationTask(LabelledTask):
    """Classification of sentences, or of pairs whose sentences are encoded separately.

    The data folder is that of fairseq's ``sentence_prediction``: ``input0/``, ``input1/`` (only for
    pairs) and ``label/``, each filled by ``fairseq-preprocess --only-source``; both inputs share
    the dictionary ``input0/dict.txt``. A class is one word of ``label/dict.txt``.
    """

    @classmethod
    def setup_task(cls, cfg: SentenceClassificationConfig, **kwargs: Any) -> Self:
        """Make the task for a data folder.

        Raises:
            UserError: the folder or an option is invalid.
        """
        check_at_least(1, truncate=cfg.truncate)
        return super().setup_task(cfg, **kwargs)

    def text_settings(self) -> dict:
        """Settings of the text, and whether the folder holds pairs."""
        pairs = os.path.isdir(os.path.join(self.cfg.data, "input1"))
        return {"pairs": pairs, **super().text_settings()}

    @property
    def pairs(self) -> bool:
        """Whether the inputs are pairs of sentences."""
        return bool(self.state.text["pairs"])

    # --- data ----------------------------------------------------------------------------------

    def _for_training(self, dataset: SentenceDataset, split: str) -> SentenceDataset | MixedDataset:
        """Add a part of another corpus if ``--mix`` is given."""
        if not self.cfg.mix:
            return dataset
        folder, fraction = parse_mix(self.cfg.mix)
        pairs = os.path.isdir(os.path.join(folder, "input1"))
        if os.path.isdir(folder) and pairs != self.pairs:
            kinds = ("single sentences", "pairs of sentences")
            raise UserError(
                f"{folder} holds {kinds[pairs]} and {self.cfg.data} {kinds[self.pairs]}; give "
                "--mix a folder of the same kind"
            )
        extra = self._load(folder, split, train=True)
        mixed = MixedDataset(dataset, extra, fraction, self.cfg.seed)
        logger.info("mixing in %d of %d sentences of %s", mixed.count, len(extra), folder)
        self._log_differences(folder)
        return mixed

    def _log_differences(self, folder: str) -> None:
        """Log which part of another folder's words is unknown, and warn of other text settings."""
        theirs = load_dictionary(folder, "input0")
        first, unknown = theirs.nspecial, self.dictionary.unk()
        words = list(zip(theirs.symbols[first:], theirs.count[first:], strict=True))
        lost = sum(count for word, count in words if self.dictionary.index(word) == unknown)
        share = 100 * lost / max(1, sum(count for _, count in words))
        logger.info("%.1f %% of the words of %s are not in the dictionary", share, folder)
        settings = read_text_json(folder)
        for name, ours in read_text_json(self.cfg.data).items():
            if settings.get(name, ours) != ours:
                logger.warning(
                    "text.json has %s %s in %s, but %s in %s, which --mix adds to it; prepare both "
                    "with the same options, so that their words match",
                    name,
                    json.dumps(ours),
                    self.cfg.data,
                    json.dumps(settings[name]),
                    folder,
                )

    def _load(self, folder: str, split: str, train: bool) -> SentenceDataset:
        parts = ("input0", "input1") if self.pairs else ("input0",)
        words = self.dictionary
        theirs = words if folder == self.cfg.data else load_dictionary(folder, "input0")
        if self.pairs:
            check_shared_dictionary(folder, theirs)
        inputs = [self._load_part(folder, part, split, theirs) for part in parts]
        labels = self._labels(folder, split)
        for part, sentences in zip((*parts[1:], "label"), [*inputs[1:], labels], strict=True):
            check_equally_many(folder, split, part, inputs[0], sentences)
        if theirs != words:
            inputs = [RemappedDataset(sentences, theirs, words) for sentences in inputs]
        logger.info("%s: %d sentences%s", split, len(labels), " (pairs)" if self.pairs else "")
        unk_dropout = self._unk_dropout() if train else None
        return SentenceDataset(inputs, labels, words.pad(), train, self.cfg.truncate, unk_dropout)

    def _labels(self, folder: str, split: str) -> numpy.ndarray:
        """The labels of a split as indices into :attr:`classes`, or ``UNSEEN_CLASS``."""
        own = folder == self.cfg.data
        dictionary = self.label_dictionary if own else load_dictionary(folder, "label")
        dataset = self._load_part(folder, "label", split, dictionary)
        eos, classes = dictionary.eos(), {name: n for n, name in enumerate(self.classes)}
        numbers = numpy.array([classes.get(symbol, UNSEEN_CLASS) for symbol in dictionary.symbols])
        first = ""
        labels = numpy.empty(len(dataset), dtype=numpy.int64)
        for i in range(len(dataset)):
            tokens = [int(token) for token in dataset[i] if token != eos]
            if len(tokens) != 1:
                raise UserError(
                    f"{folder}/label/{split}, sentence {i + 1} has {len(tokens)} words for a "
                    "label; write each label as one word"
                )
            labels[i] = numbers[tokens[0]]
            if labels[i] == UNSEEN_CLASS:
                name = dictionary[tokens[0]]
                first = first or f"{folder}/label/{split}, sentence {i + 1} ({name})"
        if first:
            self._report_unseen(split, "label", int((labels == UNSEEN_CLASS).sum()), first)
        return labels

    def encode_text(self, line: str) -> torch.Tensor:
        """Raw text as token indices with </s>, normalised like the training text."""
        tokens = [self.index_of(word) for word in escape(self.split_text(line))]
        tokens.append(self.dictionary.eos())
        if self.cfg.truncate and len(tokens) > self.cfg.truncate:
            tokens = [*tokens[: self.cfg.truncate - 1], tokens[-1]]
        return torch.tensor(tokens)

    def split_text(self, line: str) -> list[str]:
        """The words of raw text, tokenised and lower-cased like the training text."""
        return words(line, self.tokenizer, self.normalisation["lowercase"], self.language)

    def build_generator(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise UserError: a classifier generates no text."""
        raise UserError(
            "a sentence classifier generates no text; use casrnn predict for its classes, "
            "fairseq-validate for its accuracy"
        )

    def build_dataset_for_inference(
        self,
        src_tokens: list[torch.Tensor],
        src_lengths: Sequence[int],
        pair_tokens: list[torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> SentenceDataset:
        """A data set without labels from lists of token tensors."""
        inputs = [src_tokens] if pair_tokens is None else [src_tokens, pair_tokens]
        sets = [ListDataset(tokens, numpy.array([len(t) for t in tokens])) for tokens in inputs]
        return SentenceDataset(sets, None, self.dictionary.pad(), shuffle=False)

    # --- training ------------------------------------------------------------------------------

    def post_validate(
        self, model: BaseFairseqModel, stats: dict[str, Any], agg: MetersDict
    ) -> None:
        """After a validation: log the confusion matrix and write it to ``--save-dir``."""
        if "_confusion" not in agg:
            return
        result = summary(agg["_confusion"].sum.long().tolist(), self.classes)
        logger.info("confusion (rows: true class): %s", json.dumps(result["confusion"]))
        self.write_validation(result, stats)


def check_shared_dictionary(folder: str, first: Dictionary) -> None:
    """Raise UserError if ``input1`` was binarised with another dictionary than ``input0``."""
    path = os.path.join(folder, "input1", "dict.txt")
    if os.path.isfile(path) and Dictionary.load(path) != first:
        raise UserError(
            f"{path} differs from {folder}/input0/dict.txt, which both sentences share; run "
            f"fairseq-preprocess again for input1, with --srcdict {folder}/input0/dict.txt"
        )


def parse_mix(text: str) -> tuple[str, float]:
    """Folder and fraction of ``--mix``.

    Raises:
        UserError: it is not DIR:FRACTION.
    """
    folder, _, share = text.rpartition(":")
    try:
        fraction = float(share)
    except ValueError:
        fraction = 0.0
    if not folder or not 0 < fraction <= 1:
        raise UserError(
            f"--mix is '{text}'; give a prepared folder and a fraction between 0 and 1, such as "
            "DIR:0.15"
        )
    return folder, fraction

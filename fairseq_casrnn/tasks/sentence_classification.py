"""Classification of sentences or of pairs of sentences."""

# No "from __future__ import annotations" here: fairseq reads the fields' types.
# ruff: noqa: UP045
import json
import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import numpy
import torch
from fairseq.data import Dictionary, ListDataset, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II, MISSING

from ..data.classification import Forget, MixedDataset, Recoded, SentenceDataset
from ..data.command import read_json
from ..data.dictionaries import digest
from ..data.words import TOKENIZERS, words
from ..errors import UserError
from ..evaluation.confusion import summary
from ..files import replacing
from ..models.config import check_probabilities

logger = logging.getLogger(__name__)
FILLER = re.compile(r"madeupword\d{4}")  # with these fairseq-preprocess pads a dictionary


@dataclass
class SentenceClassificationConfig(FairseqDataclass):
    """Options of the task."""

    data: str = field(
        default=MISSING,
        metadata={"help": "folder with input0/, label/ and, for pairs, input1/"},
    )
    max_positions: int = field(default=100000, metadata={"help": "longest sentence, in tokens"})
    truncate: Optional[int] = field(
        default=None, metadata={"help": "cut sentences to that many tokens"}
    )
    mix: Optional[str] = field(
        default=None,
        metadata={
            "help": "DIR:FRACTION, add that part of another corpus' training set to ours, chosen "
            "anew in each epoch"
        },
    )
    forget_singletons: float = field(
        default=0.0,
        metadata={
            "help": "probability with which a word that occurs once in the training set is <unk> "
            "in training, anew in each epoch; without it no text of training holds <unk> unless "
            "rare words were left out of the dictionary"
        },
    )
    tokenizer: Optional[str] = field(
        default=None,
        metadata={
            "help": "how to split raw text when predicting: space, whitespace, clitics, moses or "
            "penn (default: as the data folder's text.json says, else whitespace)"
        },
    )
    lowercase: Optional[bool] = field(
        default=None, metadata={"help": "lower-case raw text when predicting (default: likewise)"}
    )
    seed: int = II("common.seed")
    save_dir: str = II("checkpoint.save_dir")
    no_save: bool = II("checkpoint.no_save")


@register_task("sentence_classification", dataclass=SentenceClassificationConfig)
class SentenceClassificationTask(FairseqTask):
    """Classes for sentences, or for pairs whose sentences are encoded each on its own.

    The data folder is that of fairseq's ``sentence_prediction``: ``input0/``, ``input1/`` (only for
    pairs) and ``label/``, each filled by ``fairseq-preprocess --only-source``; both inputs share
    the dictionary ``input0/dict.txt``. A class is one word of ``label/dict.txt``.

    Args:
        cfg: the options.
        dictionary: of the words.
        label_dictionary: of the classes.
    """

    resumes = True

    def __init__(self, cfg, dictionary, label_dictionary):
        super().__init__(cfg)
        self.dictionary, self.label_dictionary = dictionary, label_dictionary
        # What the folder says of its text is kept in the checkpoint, which may go elsewhere.
        text = {
            "pairs": os.path.isdir(os.path.join(cfg.data, "input1")),
            "tokenizer": "whitespace",
            "lowercase": False,
            **read_text_note(cfg.data),
        }
        self.state.merge_state_dict({"text": text})
        # So are the classes, in the order of the model's outputs, and what tells its words.
        self.state.merge_state_dict(
            {"classes": class_names(label_dictionary), "words": digest(dictionary)}
        )
        if len(self.classes) < 2:
            raise UserError(
                f"{os.path.join(cfg.data, 'label', 'dict.txt')} lists {len(self.classes)} "
                "class(es); training data of at least two classes is needed"
            )

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """The task for a data folder.

        Raises:
            UserError: the folder does not hold what it should.
        """
        words, labels = (load_dictionary(cfg.data, part) for part in ("input0", "label"))
        if cfg.tokenizer not in (None, *TOKENIZERS):
            raise UserError(f"--tokenizer is '{cfg.tokenizer}'; use {', '.join(TOKENIZERS)}")
        if cfg.truncate is not None and cfg.truncate < 1:
            raise UserError(f"--truncate is {cfg.truncate}; it must be at least 1")
        check_probabilities(cfg, ["forget_singletons"])
        task = cls(cfg, words, labels)
        logger.info("[input] dictionary: %d types", len(words))
        logger.info("[label] classes: %s", ", ".join(task.classes))
        return task

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the model's outputs."""
        return self.state.classes

    def check_words(self, state_dict) -> None:
        """Raise UserError if the weights of a checkpoint's model belong to other words."""
        if state_dict.get("words") not in (None, digest(self.dictionary)):
            raise UserError(
                f"{self.cfg.data}/input0/dict.txt is not the dictionary that the model was trained "
                "with; give the data folder of its training"
            )

    def load_state_dict(self, state_dict) -> None:
        """Take over a checkpoint's state.

        Raises:
            UserError: it was trained with other words or classes than those of the data.
        """
        self.check_words(state_dict)
        classes = state_dict.get("classes")
        ours = class_names(self.label_dictionary)
        if classes is not None and sorted(classes) != sorted(ours):
            raise UserError(
                f"the model's classes are {', '.join(classes)}, but {self.cfg.data}/label/dict.txt "
                f"lists {', '.join(ours)}; give the data folder of its training"
            )
        if classes not in (None, ours) and self.datasets:
            raise UserError(
                f"{self.cfg.data}/label/dict.txt lists the classes in another order than the model "
                f"has them, {', '.join(classes)}; training goes on only with the folder it began "
                "with"
            )
        super().load_state_dict(state_dict)

    @property
    def pairs(self) -> bool:
        """Whether there are two sentences."""
        return bool(self.state.text["pairs"])

    # --- data ----------------------------------------------------------------------------------

    def load_dataset(self, split: str, combine: bool = False, **kwargs):
        """Load ``split``, with a part of another corpus if ``--mix`` says so and it is train's.

        Raises:
            UserError: a file is missing, the parts differ in length, or a class is unknown.
        """
        train = split == "train"
        dataset = self._load(self.cfg.data, split, train)
        if self.cfg.mix and train:
            folder, fraction = parse_mix(self.cfg.mix)
            if os.path.isdir(os.path.join(folder, "input1")) and not self.pairs:
                raise UserError(
                    f"{folder} holds pairs of sentences and {self.cfg.data} single ones; --mix "
                    "needs another of the same kind"
                )
            extra = self._load(folder, split, train)
            dataset = MixedDataset(dataset, extra, fraction, self.cfg.seed)
            logger.info("mixing in %d of %d sentences of %s", dataset.count, len(extra), folder)
        self.datasets[split] = dataset
        return dataset

    def read(self, split: str) -> SentenceDataset:
        """``split`` as it stands, also that of training: in order, nothing mixed in or forgotten.

        Raises:
            UserError: as for :meth:`load_dataset`.
        """
        return self._load(self.cfg.data, split, train=False)

    def _load(self, folder: str, split: str, train: bool) -> SentenceDataset:
        parts = ("input0", "input1") if self.pairs else ("input0",)
        words = self.dictionary
        theirs = words if folder == self.cfg.data else load_dictionary(folder, "input0")
        if self.pairs:
            check_second_dictionary(folder, theirs)
        inputs = [load_part(folder, part, split, theirs) for part in parts]
        labels = self._labels(folder, split)
        for part, sentences in zip((*parts[1:], "label"), [*inputs[1:], labels], strict=True):
            if len(sentences) != len(inputs[0]):
                raise UserError(
                    f"{folder}/input0/{split} has {len(inputs[0])} sentences but "
                    f"{folder}/{part}/{split} has {len(sentences)}; run fairseq-preprocess again, "
                    "on files of equally many lines"
                )
        if theirs != words:
            inputs = [Recoded(sentences, theirs, words) for sentences in inputs]
        logger.info("%s: %d sentences%s", split, len(labels), " (pairs)" if self.pairs else "")
        forget = self._forget() if train else None
        return SentenceDataset(inputs, labels, words.pad(), train, self.cfg.truncate, forget)

    def _forget(self) -> Forget | None:
        if not self.cfg.forget_singletons:
            return None
        path = Path(self.cfg.data) / "input0" / "singletons.txt"
        if path.is_file():
            rare = torch.zeros(len(self.dictionary), dtype=torch.bool)
            words = path.read_text(encoding="utf-8").split("\n")
            rare[[self.dictionary.index(word) for word in words if word]] = True
        else:
            rare = torch.tensor(self.dictionary.count) == 1
        rare[: self.dictionary.nspecial] = False
        return Forget(rare, self.dictionary.unk(), self.cfg.forget_singletons, self.cfg.seed)

    def _labels(self, folder: str, split: str) -> numpy.ndarray:
        """The class numbers of a split, in the order of :attr:`classes`."""
        own = folder == self.cfg.data
        dictionary = self.label_dictionary if own else load_dictionary(folder, "label")
        dataset = load_part(folder, "label", split, dictionary)
        eos, classes = dictionary.eos(), {name: n for n, name in enumerate(self.classes)}
        numbers = numpy.array([classes.get(symbol, -1) for symbol in dictionary.symbols])
        labels = numpy.empty(len(dataset), dtype=numpy.int64)
        for i in range(len(dataset)):
            tokens = [int(token) for token in dataset[i] if token != eos]
            if len(tokens) != 1:
                raise UserError(
                    f"{folder}/label/{split}, sentence {i + 1} has {len(tokens)} words for a "
                    "label; write each label as one word"
                )
            labels[i] = numbers[tokens[0]]
            if labels[i] < 0:
                name = dictionary[tokens[0]] if tokens[0] != dictionary.unk() else "its label"
                raise UserError(
                    f"{folder}/label/{split}, sentence {i + 1}: {name} is none of the classes seen "
                    f"in training ({', '.join(self.classes)}); correct or remove it"
                )
        return labels

    def encode_text(self, line: str) -> torch.Tensor:
        """Raw text as tokens, split and lower-cased as the training text was."""
        text = self.state.text
        tokenizer = self.cfg.tokenizer or text["tokenizer"]
        lowercase = text["lowercase"] if self.cfg.lowercase is None else self.cfg.lowercase
        split = words(line, tokenizer, lowercase)
        tokens = [self.dictionary.index(word) for word in split] + [self.dictionary.eos()]
        if self.cfg.truncate and len(tokens) > self.cfg.truncate:
            tokens = [*tokens[: self.cfg.truncate - 1], tokens[-1]]
        return torch.tensor(tokens)

    def build_generator(self, *args, **kwargs):
        """Raises UserError: there is nothing to generate."""
        raise UserError(
            "a sentence classifier generates no text; use casrnn predict for its classes, "
            "fairseq-validate for its accuracy"
        )

    def build_dataset_for_inference(self, src_tokens, src_lengths, pair_tokens=None, **kwargs):
        """A data set without labels, of lists of token tensors."""
        inputs = [src_tokens] if pair_tokens is None else [src_tokens, pair_tokens]
        sets = [ListDataset(tokens, numpy.array([len(t) for t in tokens])) for tokens in inputs]
        return SentenceDataset(sets, None, self.dictionary.pad(), shuffle=False)

    # --- training ------------------------------------------------------------------------------

    def post_validate(self, model, stats, agg) -> None:
        """After a validation: log the confusion matrix and write it beside the checkpoints."""
        if "_confusion" not in agg:
            return
        result = summary(agg["_confusion"].sum.long().tolist(), self.classes)
        logger.info("confusion (rows: true class): %s", json.dumps(result["confusion"]))
        first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        if self.cfg.no_save or not first or not os.path.isdir(self.cfg.save_dir or ""):
            return
        result["num_updates"] = stats.get("num_updates")
        name = "" if self._validated in (None, "valid") else f".{self._validated}"
        write_json(Path(self.cfg.save_dir) / f"validation{name}.json", result)

    _validated: Optional[str] = None

    def get_batch_iterator(self, dataset, *args, **kwargs):
        """fairseq's; notes which split is looked at, for :meth:`post_validate` is not told."""
        names = [name for name, known in self.datasets.items() if known is dataset]
        self._validated = names[0] if names else None
        return super().get_batch_iterator(dataset, *args, **kwargs)

    def max_positions(self):
        """Longest sentence accepted."""
        return self.cfg.max_positions

    @property
    def source_dictionary(self):
        """Dictionary of the words."""
        return self.dictionary

    @property
    def target_dictionary(self):
        """None: classes are not words."""
        return None


def class_names(dictionary: Dictionary) -> list[str]:
    """The classes that a ``label/dict.txt`` lists."""
    symbols = dictionary.symbols[dictionary.nspecial :]
    return [symbol for symbol in symbols if not FILLER.fullmatch(symbol)]


def load_dictionary(folder: str, part: str) -> Dictionary:
    """``folder/part/dict.txt``. Raises UserError where it is missing."""
    path = os.path.join(folder, part, "dict.txt")
    if not os.path.isfile(path):
        raise UserError(
            f"{path} does not exist; fill {folder} with a recipe's prepare.sh, or its folders "
            "input0, input1 and label with fairseq-preprocess --only-source"
        )
    return Dictionary.load(path)


def check_second_dictionary(folder: str, first: Dictionary) -> None:
    """Raises UserError where ``input1`` was binarised with another dictionary than ``input0``."""
    path = os.path.join(folder, "input1", "dict.txt")
    if os.path.isfile(path) and Dictionary.load(path) != first:
        raise UserError(
            f"{path} is another dictionary than {folder}/input0/dict.txt, which both sentences "
            "share; run fairseq-preprocess again for input1, with --srcdict "
            f"{folder}/input0/dict.txt"
        )


def load_part(folder: str, part: str, split: str, dictionary: Dictionary):
    """The binarised ``folder/part/split``. Raises UserError where it is missing."""
    path = os.path.join(folder, part, split)
    dataset = data_utils.load_indexed_dataset(path, dictionary)
    if dataset is None:
        raise UserError(f"there is no {path}; check the data folder and the subset's name")
    return dataset


def read_text_note(folder: str) -> dict:
    """What ``text.json`` of a data folder says about its text, if it is there."""
    path = Path(folder) / "text.json"
    note = read_json(path) if path.is_file() else {}
    if not isinstance(note, dict):
        raise UserError(f"{path} is damaged; prepare again with --force")
    return note


def parse_mix(text: str) -> tuple[str, float]:
    """Folder and fraction of ``--mix``. Raises UserError when it is not DIR:FRACTION."""
    folder, _, share = text.rpartition(":")
    try:
        fraction = float(share)
    except ValueError:
        fraction = 0.0
    if not folder or not 0 < fraction <= 1:
        raise UserError(
            f"--mix is '{text}'; give a prepared folder and a part of it, as DIR:0.15, between 0 "
            "and 1"
        )
    return folder, fraction


def write_json(path: Path, content) -> None:
    """Write a JSON file whole or not at all."""
    with replacing(path) as draft:
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        Path(draft).write_text(text, encoding="utf-8")

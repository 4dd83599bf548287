"""What the tasks share whose data is sentences with classes: of the sentence, or of its words."""

# No "from __future__ import annotations" here: fairseq reads the fields' types.
# ruff: noqa: UP045
import json
import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import torch
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING

from ..data.classification import UnkDropout
from ..data.command import read_json
from ..data.dictionaries import digest, without_fillers
from ..data.words import TOKENIZERS
from ..errors import UserError, quoted
from ..files import replacing
from ..models.config import check_probabilities

logger = logging.getLogger(__name__)


@dataclass
class LabelledConfig(FairseqDataclass):
    """Options of these tasks."""

    data: str = field(
        default=MISSING,
        metadata={"help": "folder with input0/, label/ and, for pairs, input1/"},
    )
    max_positions: int = field(
        default=100000, metadata={"help": "maximum length of a sentence, in tokens"}
    )
    forget_singletons: float = field(
        default=0.0,
        metadata={
            "help": "probability with which a word that occurs once in the training set is <unk> "
            "in training, anew in each epoch; without it no text of training holds <unk> unless "
            "rare words were left out of the dictionary"
        },
    )
    raw_tokenizer: Optional[str] = field(
        default=None,
        metadata={
            "help": "how to split raw text when predicting: space, whitespace, clitics, moses, "
            "penn or character (default: as the data folder's text.json says, else whitespace)"
        },
    )
    lowercase: Optional[bool] = field(
        default=None, metadata={"help": "lower-case raw text when predicting (default: likewise)"}
    )
    seed: int = II("common.seed")
    save_dir: str = II("checkpoint.save_dir")
    no_save: bool = II("checkpoint.no_save")


class LabelledTask(FairseqTask):
    """Sentences of ``input0/`` with classes of ``label/``.

    Args:
        cfg: the options.
        dictionary: of the words.
        label_dictionary: of the classes.

    Attributes:
        unseen: for each split whose data has classes that training has not, a sentence about it.

    Raises:
        UserError: the data has fewer than two classes.
    """

    resumes = True

    def __init__(self, cfg, dictionary, label_dictionary):
        super().__init__(cfg)
        self._as_they_stand: dict[str, FairseqDataset] = {}
        self.unseen: dict[str, str] = {}
        self.dictionary, self.label_dictionary = dictionary, label_dictionary
        # What the folder says of its text is kept in the checkpoint, which may go elsewhere.
        self.state.merge_state_dict({"text": self.text_note()})
        # So are the classes, in the order of the model's outputs, and what tells its words.
        self.state.merge_state_dict(
            {"classes": class_names(label_dictionary), "words": digest(dictionary)}
        )
        if len(self.classes) < 2:
            raise UserError(
                f"{os.path.join(cfg.data, 'label', 'dict.txt')} lists {len(self.classes)} "
                "class(es); training data of at least two classes is needed"
            )

    def text_note(self) -> dict:
        """What is known of the text: the data folder's ``text.json`` over its defaults."""
        return {"tokenizer": "whitespace", "lowercase": False, **read_text_note(self.cfg.data)}

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """The task for a data folder.

        Raises:
            UserError: the folder does not hold what it should.
        """
        words, labels = (load_dictionary(cfg.data, part) for part in ("input0", "label"))
        if cfg.raw_tokenizer not in (None, *TOKENIZERS):
            raise UserError(
                f"--raw-tokenizer is '{cfg.raw_tokenizer}'; use {', '.join(TOKENIZERS)}"
            )
        check_probabilities(cfg, ["forget_singletons"])
        task = cls(cfg, words, labels)
        logger.info("[input] dictionary: %d types", len(words))
        logger.info("[label] classes: %s", ", ".join(task.classes))
        return task

    def build_criterion(self, cfg, from_checkpoint=False):
        """The criterion.

        Raises:
            UserError: it is one of fairseq's, which are for other models.
        """
        criterion = super().build_criterion(cfg, from_checkpoint)
        if type(criterion).__module__.startswith("fairseq."):
            ours = self.cfg._name
            raise UserError(
                f"--criterion {cfg._name} does not fit --task {ours}; give --criterion {ours}"
            )
        return criterion

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the model's outputs."""
        return self.state.classes

    @property
    def tokenizer(self) -> str:
        """How raw text is split."""
        return self.cfg.raw_tokenizer or self.state.text["tokenizer"]

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

    def is_unknown_word(self, text: str) -> bool:
        """Whether raw text is a single word, and that unknown."""
        unknown = [self.dictionary.unk(), self.dictionary.eos()]
        return self.encode_text(text).tolist() == unknown

    def index_of(self, word: str) -> int:
        """The index of a word of raw text."""
        return self.dictionary.index(word)

    def _note_unseen(self, split: str, kind: str, count: int, first: str) -> None:
        """Warn of ``count`` classes of a split, from ``first`` on, that training does not have.

        Raises:
            UserError: it is training itself, whose ``kind`` of class cannot be learnt.
        """
        if split == "train":
            raise UserError(
                f"{first}: its {kind} is none of those seen in training ({', '.join(self.classes)})"
                "; correct or remove it"
            )
        if split not in self.unseen:
            self.unseen[split] = (
                f"{count} {kind}(s) of {split} are none of those seen in training, from {first} "
                "on; each counts as a miss, and not in the loss"
            )
            logger.warning(self.unseen[split])

    def _unk_dropout(self) -> UnkDropout | None:
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
        return UnkDropout(rare, self.dictionary.unk(), self.cfg.forget_singletons, self.cfg.seed)

    def write_validation(self, result: dict, stats) -> None:
        """Keep the result of a validation beside the checkpoints, if this process writes them."""
        first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        if self.cfg.no_save or not first or not os.path.isdir(self.cfg.save_dir or ""):
            return
        result["num_updates"] = stats.get("num_updates")
        name = "" if self._validated in (None, "valid") else f".{self._validated}"
        write_json(Path(self.cfg.save_dir) / f"validation{name}.json", result)

    _validated: Optional[str] = None

    def get_batch_iterator(self, dataset, *args, **kwargs):
        """fairseq's, but a validation sees the training set as it stands, see ``read``.

        Notes which split is looked at, for ``post_validate`` is not told.
        """
        names = [name for name, known in self.datasets.items() if known is dataset]
        self._validated = names[0] if names else None
        # Of the two, fairseq's trainer gives this option to the training alone.
        if names and dataset.shuffle and "grouped_shuffling" not in kwargs:
            if self._validated not in self._as_they_stand:
                self._as_they_stand[self._validated] = self.read(self._validated)
            dataset = self._as_they_stand[self._validated]
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
    return without_fillers(dictionary)


def load_dictionary(folder: str, part: str) -> Dictionary:
    """``folder/part/dict.txt``. Raises UserError where it is missing."""
    path = os.path.join(folder, part, "dict.txt")
    if not os.path.isfile(path):
        raise UserError(
            f"{path} does not exist; fill {folder} with a recipe's prepare.sh, or its folders "
            "input0, input1 and label with fairseq-preprocess --only-source"
        )
    return Dictionary.load(path)


def load_part(folder: str, part: str, split: str, dictionary: Dictionary):
    """The binarised ``folder/part/split``. Raises UserError where it is missing."""
    path = os.path.join(folder, part, split)
    dataset = data_utils.load_indexed_dataset(path, dictionary)
    if dataset is None:
        raise UserError(f"there is no {path}; check the data folder and the subset's name")
    return dataset


def normalisation(cfg, text: dict) -> dict[str, bool]:
    """Whether words are looked up in ``lowercase``, and with ``zero_digits``.

    Args:
        cfg: options of a task, which decide where they are given.
        text: what is known of the text that it was trained on.
    """
    chosen = {name: getattr(cfg, name, None) for name in ("lowercase", "zero_digits")}
    return {
        name: bool(text.get(name) if value is None else value) for name, value in chosen.items()
    }


def read_text_note(folder: str) -> dict:
    """What ``text.json`` of a data folder says about its text, if it is there."""
    path = Path(folder) / "text.json"
    note = read_json(path) if path.is_file() else {}
    if note.get("tokenizer", "space") not in TOKENIZERS:
        raise UserError(
            f"{path} has the tokenizer {quoted(str(note['tokenizer']))}; write one of "
            f"{', '.join(TOKENIZERS)}"
        )
    if not re.fullmatch("[a-z]{2,3}", str(note.get("language", "en"))):
        raise UserError(f"{path} is damaged: language is no code such as en; write one")
    for name in ("lowercase", "zero_digits", "pairs"):
        if not isinstance(note.get(name, True), bool):
            raise UserError(f"{path} is damaged: {name} is not true or false; write one of these")
    return note


def write_json(path: Path, content) -> None:
    """Write a JSON file whole or not at all."""
    with replacing(path) as draft:
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        Path(draft).write_text(text, encoding="utf-8")

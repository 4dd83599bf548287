"""Base of the tasks for labelled sentences: sentence classification and sequence tagging."""

# No "from __future__ import annotations" here: fairseq reads the fields' types.
# ruff: noqa: UP045
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Self

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.data import Dictionary, EpochBatchIterator, FairseqDataset, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING

from ..data.datasets import UnkDropout
from ..data.dictionaries import digest, without_fillers
from ..data.words import TOKENIZERS
from ..errors import UserError
from ..files import write_json
from ..models.config import check_probabilities
from .data_folder import load_dictionary, read_text_json

logger = logging.getLogger(__name__)


@dataclass
class LabelledConfig(FairseqDataclass):
    """Options of both tasks."""

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
            "help": "probability of replacing a word that occurs once in the training set by <unk> "
            "in training, drawn anew in each epoch; otherwise training sees <unk> only if rare "
            "words are not in the dictionary"
        },
    )
    raw_tokenizer: Optional[str] = field(
        default=None,
        metadata={
            "help": "tokenizer of raw text when predicting: space, whitespace, clitics, moses, "
            "penn or character (default: that of the data folder's text.json, else whitespace)"
        },
    )
    lowercase: Optional[bool] = field(
        default=None,
        metadata={
            "help": "lower-case raw text when predicting (default: as in the data folder's "
            "text.json, else no)"
        },
    )
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")
    save_dir: str = II("checkpoint.save_dir")
    no_save: bool = II("checkpoint.no_save")


class LabelledTask(FairseqTask):
    """A task whose data folder has sentences in ``input0/`` and their classes in ``label/``.

    Args:
        cfg: the options.
        dictionary: dictionary of the words.
        label_dictionary: dictionary of the classes.

    Attributes:
        resumes: that checkpoints hold its state, which a resumed training loads; read in patches/.
        unseen: a warning for each split with classes that do not occur in training.

    Raises:
        UserError: the data has fewer than two classes.
    """

    resumes = True

    def __init__(self, cfg: LabelledConfig, dictionary: Dictionary, label_dictionary: Dictionary):
        super().__init__(cfg)
        self._combined: set[str] = set()  # splits that were loaded with combine
        self._unshuffled: dict[str, FairseqDataset] = {}
        self._validated_split: str | None = None  # split of the last batch iterator
        self.unseen: dict[str, str] = {}
        self.dictionary, self.label_dictionary = dictionary, label_dictionary
        # Checkpoints hold the settings of the text, the classes in the order of the model's
        # outputs and a digest of the dictionary, since they may be used without the data folder.
        self.state.merge_state_dict(
            {
                "text": self.text_settings(),
                "classes": without_fillers(label_dictionary),
                "words": digest(dictionary),
            }
        )
        if len(self.classes) < 2:
            raise UserError(
                f"{os.path.join(cfg.data, 'label', 'dict.txt')} lists {len(self.classes)} "
                "class(es); training data of at least two classes is needed"
            )

    def text_settings(self) -> dict:
        """Settings of the text: those of the data folder's ``text.json``, else the defaults."""
        return {"tokenizer": "whitespace", "lowercase": False, **read_text_json(self.cfg.data)}

    @classmethod
    def setup_task(cls, cfg: FairseqDataclass, **kwargs: Any) -> Self:
        """Make the task for a data folder.

        Raises:
            UserError: the folder or an option is invalid.
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

    def build_criterion(
        self, cfg: FairseqDataclass, from_checkpoint: bool = False
    ) -> FairseqCriterion:
        """Build the criterion.

        Raises:
            UserError: it is one of fairseq's, which do not fit these tasks.
        """
        criterion = super().build_criterion(cfg, from_checkpoint)
        if type(criterion).__module__.startswith("fairseq."):
            task = self.cfg._name
            raise UserError(
                f"--criterion {cfg._name} does not fit --task {task}; give --criterion {task}"
            )
        return criterion

    @property
    def training_set(self) -> FairseqDataset | None:
        """The data set of ``--train-subset``, if it has been loaded."""
        return self.datasets.get(self.cfg.train_subset)

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the model's outputs."""
        return self.state.classes

    @property
    def tokenizer(self) -> str:
        """The tokenizer of raw text, a key of ``TOKENIZERS``."""
        return self.cfg.raw_tokenizer or self.state.text["tokenizer"]

    @property
    def language(self) -> str:
        """The language of the text, for the tokenizer."""
        return self.state.text.get("language", "en")

    @property
    def normalisation(self) -> dict[str, bool]:
        """``lowercase`` and ``zero_digits`` for raw text, by the options, else as in training."""
        options = {name: getattr(self.cfg, name, None) for name in ("lowercase", "zero_digits")}
        return {
            name: bool(self.state.text.get(name) if value is None else value)
            for name, value in options.items()
        }

    def check_words(self, state_dict: dict[str, Any]) -> None:
        """Raise UserError if a checkpoint was trained with another dictionary."""
        if state_dict.get("words") not in (None, digest(self.dictionary)):
            raise UserError(
                f"{self.cfg.data}/input0/dict.txt is not the dictionary that the model was trained "
                "with; give the data folder of its training"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint's state.

        Raises:
            UserError: it was trained with another dictionary or other classes than the data's.
        """
        self.check_words(state_dict)
        classes = state_dict.get("classes")
        ours = without_fillers(self.label_dictionary)
        if classes is not None and sorted(classes) != sorted(ours):
            raise UserError(
                f"the model's classes are {', '.join(classes)}, but {self.cfg.data}/label/dict.txt "
                f"lists {', '.join(ours)}; give the data folder of its training"
            )
        if classes not in (None, ours) and self.datasets:
            raise UserError(
                f"{self.cfg.data}/label/dict.txt lists the classes in another order than the "
                f"model, {', '.join(classes)}; resume with the data folder of its training"
            )
        super().load_state_dict(state_dict)

    def is_single_unknown_word(self, text: str) -> bool:
        """Whether raw text is a single word that is not in the dictionary."""
        unknown = [self.dictionary.unk(), self.dictionary.eos()]
        return self.encode_text(text).tolist() == unknown

    def index_of(self, word: str) -> int:
        """The index of a word of raw text."""
        return self.dictionary.index(word)

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        """Load ``split``, for training or evaluation.

        Raises:
            UserError: a file is missing, the parts differ in length, or a label is unknown.
        """
        if combine:
            self._combined.add(split)
        # fairseq-validate passes task_cfg.
        train = split == self.cfg.train_subset and "task_cfg" not in kwargs
        dataset = self._load(self.cfg.data, split, train)
        self.datasets[split] = self._for_training(dataset, split) if train else dataset
        return self.datasets[split]

    def read(self, split: str) -> Any:
        """Load ``split`` in its order, without ``--mix`` and ``--forget-singletons``.

        Raises:
            UserError: as for :meth:`load_dataset`.
        """
        return self._load(self.cfg.data, split, train=False)

    def _load(self, folder: str, split: str, train: bool) -> FairseqDataset:
        """Load ``split`` of ``folder``; with ``train``, shuffled and with --forget-singletons."""
        raise NotImplementedError

    def _for_training(self, dataset: FairseqDataset, split: str) -> FairseqDataset:
        """The training set, made of ``dataset``."""
        raise NotImplementedError

    def _load_part(self, folder: str, part: str, split: str, dictionary: Dictionary) -> Any:
        """Load the binarised data ``folder/part/split``.

        If :meth:`load_dataset` combines the split, ``split1``, ``split2``, … follow, as
        ``fairseq-preprocess`` writes them for several files of a split.

        Raises:
            UserError: it does not exist.
        """
        path = os.path.join(folder, part, split)
        dataset = data_utils.load_indexed_dataset(path, dictionary, combine=split in self._combined)
        if dataset is None:
            raise UserError(f"there is no {path}; check the data folder and the subset's name")
        return dataset

    def _report_unseen(self, split: str, kind: str, count: int, first: str) -> None:
        """Warn of ``count`` labels of a split that do not occur in training.

        Args:
            split: name of the split.
            kind: "label" or "tag".
            count: how many there are.
            first: where the first of them is.

        Raises:
            UserError: the split is the training set, and the label is not in the dictionary.
        """
        if split == self.cfg.train_subset:
            raise UserError(
                f"{first}: its {kind} is not one of {', '.join(self.classes)}; correct or remove it"
            )
        if split not in self.unseen:
            self.unseen[split] = (
                f"{count} {kind}(s) of {split} do not occur in training, the first at {first}; "
                "each counts as an error and is left out of the loss"
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

    def write_validation(self, result: dict[str, Any], stats: dict[str, Any]) -> None:
        """Write a validation's result to ``--save-dir``, in the process that saves checkpoints."""
        first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        if self.cfg.no_save or not first or not os.path.isdir(self.cfg.save_dir or ""):
            return
        result["num_updates"] = stats.get("num_updates")
        name = "" if self._validated_split in (None, "valid") else f".{self._validated_split}"
        write_json(Path(self.cfg.save_dir) / f"validation{name}.json", result)

    def get_batch_iterator(
        self, dataset: FairseqDataset, *args: Any, **kwargs: Any
    ) -> EpochBatchIterator:
        """fairseq's iterator; validation on the training set uses :meth:`read`, without noise.

        Also notes the split for ``post_validate``, which is not told.
        """
        names = [name for name, known in self.datasets.items() if known is dataset]
        self._validated_split = split = names[0] if names else None
        # fairseq's trainer passes this option for training only.
        if split is not None and dataset.shuffle and "grouped_shuffling" not in kwargs:
            if split not in self._unshuffled:
                self._unshuffled[split] = self.read(split)
            dataset = self._unshuffled[split]
        return super().get_batch_iterator(dataset, *args, **kwargs)

    def max_positions(self) -> int:
        """The maximum length of a sentence, in tokens."""
        return self.cfg.max_positions

    @property
    def source_dictionary(self) -> Dictionary:
        """The dictionary of the words."""
        return self.dictionary

    @property
    def target_dictionary(self) -> None:
        """None: there is no target text."""
        return None

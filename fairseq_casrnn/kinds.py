"""The kinds of models: one table of their names, tasks and commands."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from fairseq_casrnn.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True)
class Kind:
    """A kind of models.

    Attributes:
        name: what messages call such a model.
        data: its data, KIND of ``casrnn prepare KIND`` and ``casrnn train KIND``.
        served: ``kind`` in the answers of ``casrnn serve``.
        tasks: its tasks in fairseq.
        architectures: patterns of the names of its architectures.
        base: the class in ``fairseq.models`` that its models are derived from.
        command: applies a model to text.
        evaluator: module in :mod:`fairseq_casrnn.evaluation` that evaluates a recipe's runs.
        option: the evaluator's option that only some kinds have.
        is_labelled: whether the data are sentences with labels: of sentences or of words.
    """

    name: str
    data: str
    served: str
    tasks: tuple[str, ...]
    architectures: tuple[str, ...]
    base: str
    command: str
    evaluator: str
    option: str
    is_labelled: bool = False

    def has_name(self, arch: str) -> bool:
        """Whether an architecture has a name of this kind."""
        return any(fnmatchcase(arch, pattern) for pattern in self.architectures)

    def takes(self, arch: str, model: type) -> bool:
        """Whether an architecture and its class are of this kind."""
        return self.has_name(arch) and self.has_class(model)

    def has_class(self, model: type) -> bool:
        """Whether a class of models is derived from that of this kind."""
        return self.base in [base.__name__ for base in model.__mro__]


CLASSIFIER = Kind(
    name="sentence classifier",
    data="classification",
    served="classifier",
    tasks=("sentence_classification",),
    architectures=("*_sentence_encoder*",),
    base="BaseFairseqModel",
    command="casrnn predict",
    evaluator="evaluate_classifier",
    option="subset",
    is_labelled=True,
)
TAGGER = Kind(
    name="tagger",
    data="tagging",
    served="tagger",
    tasks=("sequence_tagging",),
    architectures=("*_tagger*",),
    base="BaseFairseqModel",
    command="casrnn tag",
    evaluator="evaluate_tagger",
    option="subset",
    is_labelled=True,
)
TRANSLATION = Kind(
    name="translation model",
    data="translation",
    served="translator",
    tasks=("translation",),
    architectures=("*",),
    base="FairseqEncoderDecoderModel",
    command="casrnn translate",
    evaluator="evaluate_translation",
    option="beam",
)
LANGUAGE_MODEL = Kind(
    name="language model",
    data="language-model",
    served="language model",
    tasks=("language_modeling", "stateful_language_modeling"),
    architectures=("*_lm", "*_lm_*", "hf_gpt*"),
    base="FairseqLanguageModel",
    command="casrnn perplexity",
    evaluator="evaluate_lm",
    option="cache",
)
TRAINED_ON = {kind.data: kind for kind in (CLASSIFIER, TAGGER, TRANSLATION, LANGUAGE_MODEL)}
"""The kinds of models by their data."""


def kind_of_task(name: str) -> Kind | None:
    """The kind of the models of a task of fairseq or of this package, or None."""
    return next((kind for kind in TRAINED_ON.values() if name in kind.tasks), None)


def architecture(model_cfg: DictConfig | Namespace) -> tuple[str | None, type]:
    """Name and class of the model that a checkpoint's model options belong to."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    name = getattr(model_cfg, "_name", None) or getattr(model_cfg, "arch", None)
    return name, ARCH_MODEL_REGISTRY.get(name, object)


def kind_of(cfg: DictConfig) -> Kind | None:
    """The kind of a checkpoint with the options ``cfg``, or None if it is another one."""
    from fairseq.models import FairseqEncoderDecoderModel, FairseqLanguageModel

    kind = kind_of_task(cfg.task._name)
    if kind is not None and kind.is_labelled:
        return kind
    _, model = architecture(cfg.model)  # other tasks translate, too
    if issubclass(model, FairseqEncoderDecoderModel):
        return TRANSLATION
    return LANGUAGE_MODEL if issubclass(model, FairseqLanguageModel) else None


def check_registered(cfg: DictConfig | None, path: str | os.PathLike) -> None:
    """Raise UserError if a checkpoint's model is of a plugin that has not been imported."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    name = None if cfg is None else architecture(cfg.model)[0]
    if name is not None and name not in ARCH_MODEL_REGISTRY:
        raise UserError(
            f"{path} is of the model {name}, which is not one of this package; give its plugin, "
            "as with --user-dir in training"
        )


def check_kind(cfg: DictConfig | None, wanted: Kind, path: str | os.PathLike) -> None:
    """Raise UserError unless a checkpoint is of the ``wanted`` kind, and its model registered.

    Args:
        cfg: its options, or None if it has none.
        wanted: the kind.
        path: its file, for the message.
    """
    kind = None if cfg is None else kind_of(cfg)
    if kind is None:
        check_registered(cfg, path)
        raise UserError(f"{path} is not a {wanted.name}; check the path")
    if kind is not wanted:
        raise UserError(f"{path} is a {kind.name}, not a {wanted.name}; use {kind.command}")

"""The kinds of trained models, and the commands that apply them to text."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING

from fairseq_casrnn.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

CLASSIFIER, TAGGER = "sentence classifier", "tagger"
TRANSLATION, LANGUAGE_MODEL = "translation model", "language model"
COMMANDS = {
    CLASSIFIER: "casrnn predict",
    TAGGER: "casrnn tag",
    TRANSLATION: "casrnn translate",
    LANGUAGE_MODEL: "casrnn perplexity",
}
TRAINED_ON = {
    "classification": CLASSIFIER,
    "tagging": TAGGER,
    "translation": TRANSLATION,
    "language-model": LANGUAGE_MODEL,
}
"""KIND of ``casrnn prepare KIND``, and the kind of the models that are trained on such data."""


def architecture(model_cfg: DictConfig | Namespace) -> tuple[str | None, type]:
    """Name and class of the model that a checkpoint's model options belong to."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    name = getattr(model_cfg, "_name", None) or getattr(model_cfg, "arch", None)
    return name, ARCH_MODEL_REGISTRY.get(name, object)


def kind_of(cfg: DictConfig) -> str | None:
    """The kind of a checkpoint with the options ``cfg``, or None if it is another one."""
    from fairseq.models import FairseqEncoderDecoderModel, FairseqLanguageModel

    task = {"sentence_classification": CLASSIFIER, "sequence_tagging": TAGGER}.get(cfg.task._name)
    if task is not None:
        return task
    _, model = architecture(cfg.model)
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


def check_kind(cfg: DictConfig | None, wanted: str, path: str | os.PathLike) -> None:
    """Raise UserError unless a checkpoint is of the ``wanted`` kind, and its model registered.

    Args:
        cfg: its options, or None if it has none.
        wanted: the kind, a key of :data:`COMMANDS`.
        path: its file, for the message.
    """
    kind = None if cfg is None else kind_of(cfg)
    if kind is None:
        check_registered(cfg, path)
        raise UserError(f"{path} is not a {wanted}; check the path")
    if kind != wanted:
        raise UserError(f"{path} is a {kind}, not a {wanted}; use {COMMANDS[kind]}")

"""Loads trained models of any kind: from a checkpoint, a run's folder or a file of casrnn pack."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_casrnn import kinds
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.kinds import CLASSIFIER, LANGUAGE_MODEL, TAGGER, TRANSLATION, Kind
from fairseq_casrnn.runs.layout import find_checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has been read.

    Attributes:
        file: the checkpoint; that of a packed model is in a temporary folder.
        name: the file that messages name: the packed model, or the checkpoint.
        state: its content.
        kind: its kind, or None if it is another model.
    """

    file: Path
    name: Path
    state: dict[str, Any]
    kind: Kind | None

    @property
    def cfg(self):
        """All options of the training."""
        return self.state["cfg"]

    @property
    def is_packed(self) -> bool:
        """Whether it is of a packed model."""
        return self.name != self.file


Source = str | os.PathLike | Checkpoint
"""A checkpoint, its folder, or a file of ``casrnn pack``; or one of these that has been read."""


def checkpoint_file(path: Path) -> Path:
    """``path``, a checkpoint, or that of the run whose folder it is; packed models are unpacked.

    Raises:
        UserError: there is none.
    """
    from fairseq_casrnn.models.packed import unpacked

    if not path.exists():
        raise UserError(f"checkpoint {path} does not exist; check the path or train the model")
    return find_checkpoint(unpacked(path))


def read_checkpoint(path: Source, kind: Kind | None = None) -> Checkpoint:
    """Read a checkpoint, without building its model. One that has been read is returned.

    Args:
        path: see :data:`Source`.
        kind: the kind that the model must be of, or None for any model that is registered.

    Raises:
        UserError: it is missing, damaged, not a checkpoint, or of another kind.
    """
    from fairseq import checkpoint_utils

    import fairseq_casrnn
    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.models.packed import is_packed

    if isinstance(path, Checkpoint):
        return path
    fairseq_casrnn.register()
    path = Path(path)
    file = checkpoint_file(path)
    name = path if is_packed(path) else file
    with explained():
        state = checkpoint_utils.load_checkpoint_to_cpu(str(file))
        if kind is not None:
            kinds.check_kind(state.get("cfg"), kind, name)
        kinds.check_registered(state["cfg"], name)
        return Checkpoint(file, name, state, kinds.kind_of(state["cfg"]))


def load_model(path: Source, data: str | os.PathLike | None = None, kind: Kind | None = None):
    """A model in ``eval()`` on the CPU, and its task.

    Args:
        path: see :data:`Source`.
        data: folder of the dictionaries, or of ``casrnn prepare``; None for that of the training,
            or a packed model's own.
        kind: the kind that the model must be of, or None for any.

    Raises:
        UserError: not a checkpoint, another kind, no dictionaries, or other ones than those of the
            training.
    """
    model, _, task = _build(read_checkpoint(path, kind), data)
    return model, task


def _build(read: Checkpoint, data: str | os.PathLike | None, **options: str):
    """The model, all options and the task; ``options`` replace the checkpoint's."""
    from fairseq_casrnn.data.dictionaries import check_digest
    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.models.hub import build_model

    if data is not None and not Path(data).is_dir():
        raise UserError(f"{data} is not a folder; give the data-bin that the model was trained on")
    with explained():
        model, cfg, task = build_model(read.file, read.state, data, options, read.name)
        if read.kind is LANGUAGE_MODEL:  # also of an older version, which saved no task state
            check_digest(
                read.state["extra_state"].get("words"), task.source_dictionary, cfg.task.data
            )
    return model.eval(), cfg, task


def load_language_model(path: Source, data: str | os.PathLike | None = None):
    """:func:`load_model` of a language model, on the GPU if there is one. Raises UserError."""
    model, task = load_model(path, data, LANGUAGE_MODEL)
    return on_device(model), task


def load_translator(path: Source, data: str | os.PathLike | None = None):
    """fairseq's hub interface of a translation model, on the GPU if there is one.

    Args:
        path, data: as for :func:`load_model`.

    Raises:
        UserError: as for :func:`load_model`, or a file of subword units is missing.
    """
    from fairseq_casrnn.console.program import captured_log
    from fairseq_casrnn.diagnostics.explain import explained

    with captured_log(), explained():
        read = read_checkpoint(path, TRANSLATION)
        from fairseq_casrnn.models.text_files import text_files
        from fairseq_casrnn.models.translation import TranslationHub

        folder, options = text_files(read.file, read.cfg, data, read.is_packed)
        model, cfg, task = _build(read, folder, **options)
        return on_device(TranslationHub(cfg, task, [model]).eval())


def load_hub(kind: Kind, path: Source, data: str | os.PathLike | None = None, **options: Any):
    """The hub interface of a sentence classifier or tagger, on the GPU if there is one.

    Args:
        kind: :data:`.kinds.CLASSIFIER` or :data:`.kinds.TAGGER`.
        path, data: as for :func:`load_model`.
        options: options of model and task that replace the checkpoint's.

    Raises:
        UserError: as for :func:`load_model`, or an unknown option.
    """
    from fairseq_casrnn.console.program import captured_log
    from fairseq_casrnn.diagnostics.explain import explained

    with captured_log(), explained():
        read = read_checkpoint(path, kind)
        from fairseq_casrnn.models.sentence_hub import SentenceHub
        from fairseq_casrnn.models.tagger_hub import TaggerHub

        hub = {CLASSIFIER: SentenceHub, TAGGER: TaggerHub}[kind]
        return on_device(hub.of_checkpoint(read.file, read.state, data, name=read.name, **options))


def on_device(model):
    """``model`` on the GPU, if there is one."""
    import torch

    return model.to("cuda" if torch.cuda.is_available() else "cpu")

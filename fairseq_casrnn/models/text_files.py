"""The files of a trained model of text: its dictionaries, subword units and tokenizer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..data.bpe import BPE_CODES
from ..data.prepared import OPTIONS_FILE, read_json
from ..data.sentencepiece_units import SENTENCEPIECE, find_model
from ..errors import UserError
from ..runs.layout import find_checkpoint, find_data, languages
from .packed import MODEL, is_packed, task_options, unpacked


@dataclass(frozen=True)
class TranslationFiles:
    """The files and settings that a translation model needs.

    Args:
        data: folder of the dictionaries.
        source, target: language codes.
        tokenizer: name of a fairseq tokenizer, or "" for tokenised text.
        subwords: file of BPE codes or of a SentencePiece model, or None.
        bpe: ``subword_nmt``, ``sentencepiece`` or "".
    """

    data: Path
    source: str
    target: str
    tokenizer: str
    subwords: Path | None = None
    bpe: str = ""

    def options(self) -> dict[str, str]:
        """The options of task and text that are not file names."""
        found = {"source_lang": self.source, "target_lang": self.target}
        found |= {"tokenizer": self.tokenizer} if self.tokenizer else {}
        return found | ({"bpe": self.bpe} if self.bpe else {})

    def file_options(self) -> dict[str, str]:
        """The options that are file names."""
        name = {"subword_nmt": "bpe_codes", "sentencepiece": "sentencepiece_model"}.get(self.bpe)
        return {name: str(self.subwords)} if name else {}


def translation_files(
    checkpoint: Path, cfg: Any, data: str | os.PathLike | None = None
) -> TranslationFiles:
    """Find the files of a translation model, in the data folder of ``casrnn prepare`` or a recipe.

    Args:
        checkpoint: the file.
        cfg: its options.
        data: folder of the dictionaries (default: that of the training or, if that has moved with
            the checkpoint, the one beside the runs).

    Raises:
        UserError: the dictionaries or subword units are missing.
    """
    place = find_data(checkpoint.parent, data, cfg)
    source, target = languages(place, cfg)
    assert source is not None  # find_data has found its dictionary
    assert target is not None
    options = read_json(place / OPTIONS_FILE) if (place / OPTIONS_FILE).is_file() else None
    tokenizer = "" if options is None else options.get("tokenizer", "moses_lowercase")
    known = place, source, target, tokenizer
    if pieces := find_model(place):
        return TranslationFiles(*known, pieces, "sentencepiece")
    for folder in (place, place / ".." / "text"):
        if (folder / BPE_CODES).is_file():
            return TranslationFiles(*known, folder / BPE_CODES, "subword_nmt")
    for name, option in ((SENTENCEPIECE, "sentencepiece"), (BPE_CODES, "bpe_operations")):
        if options and options.get(option):
            raise UserError(
                f"{place / '..' / 'text' / name} of the training data does not exist; keep it "
                "beside data-bin"
            )
    return TranslationFiles(*known)


def text_files(
    checkpoint: Path, cfg: Any, data: str | os.PathLike | None = None, packed: bool = False
) -> tuple[Path, dict[str, str]]:
    """The folder of a model's dictionaries, and the options of its task that concern text.

    Args:
        checkpoint: the file.
        cfg: its options.
        data: folder of the dictionaries; None for that of the training, or a packed model's own.
        packed: whether the checkpoint is in the folder of an unpacked model.

    Raises:
        UserError: dictionaries or subword units are missing.
    """
    if not packed and "source_lang" in cfg["task"]:
        files = translation_files(checkpoint, cfg, data)
        return files.data, files.options() | files.file_options()
    folder = find_data(checkpoint.parent, data, cfg)
    return folder, task_options(checkpoint.parent) if packed else {}


class PretrainedArguments(NamedTuple):
    """Arguments of fairseq's ``from_pretrained``.

    Attributes:
        folder, checkpoint_file, data: its first three.
        options: options of the task, such as its tokenizer.
    """

    folder: Path
    checkpoint_file: str
    data: str
    options: dict[str, str]


def pretrained_arguments(
    path: str | Path, checkpoint_file: str, data: str | Path
) -> PretrainedArguments:
    """Complete the arguments of ``from_pretrained``.

    Args:
        path: folder of a checkpoint, a checkpoint, or a file of ``casrnn pack``.
        checkpoint_file: name of the checkpoint in the folder; if there is no ``model.pt``, it is
            ``checkpoint_best.pt`` or ``checkpoint_last.pt``.
        data: folder of the data, "." if it is not given.

    Raises:
        UserError: there is no checkpoint, or a file that it needs is missing.
    """
    from fairseq import checkpoint_utils

    packed, folder, data = is_packed(path), unpacked(path), str(data)
    if folder.is_file():
        folder, checkpoint_file = folder.parent, folder.name
    if not folder.is_dir():
        return PretrainedArguments(folder, checkpoint_file, data, {})
    if checkpoint_file == MODEL and not (folder / MODEL).is_file():
        checkpoint_file = find_checkpoint(folder).name
    if packed:
        return PretrainedArguments(folder, checkpoint_file, data, task_options(folder))
    if data != "." or any(folder.glob("dict*.txt")):
        return PretrainedArguments(folder, checkpoint_file, data, {})
    first = find_checkpoint(folder, checkpoint_file.split(":")[0])
    cfg = checkpoint_utils.load_checkpoint_to_cpu(str(first))["cfg"]
    found, options = text_files(first, cfg)
    return PretrainedArguments(folder, checkpoint_file, str(found.resolve()), options)

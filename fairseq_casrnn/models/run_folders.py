"""The files of a trained model of text: its checkpoint, dictionaries, tokenizer, subword units."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from .data_folders import find_data
from .hub import find_checkpoint
from .packed import is_packed, task_options, unpacked
from .translation_files import find_files

DEFAULT = "model.pt"  # fairseq's name of a checkpoint


class RunFolder(NamedTuple):
    """Arguments of fairseq's ``from_pretrained``.

    Attributes:
        folder, checkpoint_file, data: its first three.
        options: options of the task, such as its tokenizer.
    """

    folder: Path
    checkpoint_file: str
    data: str
    options: dict[str, str]


def run_folder(path: str | Path, checkpoint_file: str, data: str) -> RunFolder:
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

    packed, folder = is_packed(path), unpacked(path)
    if folder.is_file():
        folder, checkpoint_file = folder.parent, folder.name
    if not folder.is_dir():
        return RunFolder(folder, checkpoint_file, data, {})
    if checkpoint_file == DEFAULT and not (folder / DEFAULT).is_file():
        checkpoint_file = find_checkpoint(folder, None).name
    if packed:
        return RunFolder(folder, checkpoint_file, data, task_options(folder))
    if data != "." or any(folder.glob("dict*.txt")):
        return RunFolder(folder, checkpoint_file, data, {})
    first = find_checkpoint(folder, checkpoint_file.split(":")[0])
    cfg = checkpoint_utils.load_checkpoint_to_cpu(str(first))["cfg"]
    found, options = text_files(first, cfg)
    return RunFolder(folder, checkpoint_file, str(found.resolve()), options)


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
        files = find_files(checkpoint, cfg, data)
        return files.data, files.options() | files.file_options()
    folder = find_data(checkpoint.parent, data, cfg["task"], cfg["model"])
    return folder, task_options(checkpoint.parent) if packed else {}

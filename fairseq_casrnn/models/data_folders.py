"""Finds the folder with the dictionaries of a trained model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..data.prepared import binarised_folder, find_languages
from ..errors import UserError


def find_data(
    checkpoint_folder: Path,
    given: str | os.PathLike | None,
    task_cfg: Mapping[str, Any],
    model_cfg: Mapping[str, Any],
) -> Path:
    """The folder with the dictionaries of a training.

    Args:
        checkpoint_folder: folder of the checkpoint.
        given: the folder that the user names, or None to look for it; the folder of ``casrnn
            prepare`` stands for its ``data-bin``.
        task_cfg, model_cfg: the checkpoint's options of its task and model.

    Raises:
        UserError: no folder has all dictionaries.
    """
    folders = (
        [binarised_folder(given)] if given else candidates(checkpoint_folder, task_cfg["data"])
    )
    for folder in folders:
        if all((folder / name).is_file() for name in dictionaries(folder, task_cfg, model_cfg)):
            return folder
    names = ", ".join(dict.fromkeys(dictionaries(folders[0], task_cfg, model_cfg)))
    raise UserError(
        f"{names} not found in {' or '.join(map(str, folders))}; name the folder of the training "
        "data (--data), or copy such files to the checkpoint"
    )


def candidates(checkpoint_folder: Path, trained_on: str | None) -> list[Path]:
    """Folders that may have the data of a training.

    Args:
        checkpoint_folder: a packed model has its dictionaries there.
        trained_on: the data folder that the checkpoint names.
    """
    # casrnn train writes to DIR/out/NAME/seedN and reads DIR/data-bin; DIR may have been moved.
    relative = os.path.normpath(checkpoint_folder / ".." / ".." / ".." / "data-bin")
    return [checkpoint_folder, Path(trained_on or "."), Path(relative)]


def dictionaries(
    folder: Path, task_cfg: Mapping[str, Any], model_cfg: Mapping[str, Any]
) -> list[str]:
    """The file names, within ``folder``, of the dictionaries that a model needs."""
    task = task_cfg["_name"]
    if task in ("sentence_classification", "sequence_tagging"):
        parts = ["input0", "label"]
        if task == "sequence_tagging" and model_cfg.get("char_filters"):
            parts.append("spelling")
        return [f"{part}/dict.txt" for part in parts]
    if "source_lang" in task_cfg:
        return [f"dict.{language or '*'}.txt" for language in languages(folder, task_cfg)]
    return ["dict.txt"]


def languages(data: Path, task_cfg: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Source and target language, from the options or, as in fairseq, from file names."""
    source, target = task_cfg["source_lang"], task_cfg["target_lang"]
    found = find_languages(data) if None in (source, target) else None
    return found or (source, target)

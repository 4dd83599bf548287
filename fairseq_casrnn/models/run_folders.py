"""``from_pretrained`` of a run's folder, which lacks the dictionaries that fairseq looks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from .hub import find_checkpoint
from .packed import is_packed, unpacked

DEFAULT = "model.pt"  # fairseq's name of a checkpoint


class RunFolder(NamedTuple):
    """Arguments of fairseq's ``from_pretrained``, and the options of the checkpoint.

    Attributes:
        folder, checkpoint_file: the folder and the name of the checkpoint in it.
        cfg: all options of the training, if the folder has no dictionaries; else None.
    """

    folder: Path
    checkpoint_file: str
    cfg: Any = None


def run_folder(path: str | Path, checkpoint_file: str, data: str) -> RunFolder:
    """Complete the arguments of ``from_pretrained``.

    Args:
        path: folder of a checkpoint, a checkpoint, or a file of ``casrnn pack``.
        checkpoint_file: name of the checkpoint in the folder; if there is no ``model.pt``, it is
            ``checkpoint_best.pt`` or ``checkpoint_last.pt``.
        data: folder of the data, "." if it is not given.

    Raises:
        UserError: there is no checkpoint.
    """
    from fairseq import checkpoint_utils

    packed, folder = is_packed(path), unpacked(path)
    if folder.is_file():
        folder, checkpoint_file = folder.parent, folder.name
    if not folder.is_dir():
        return RunFolder(folder, checkpoint_file)
    if checkpoint_file == DEFAULT and not (folder / DEFAULT).is_file():
        checkpoint_file = find_checkpoint(folder, None).name
    if packed or data != "." or any(folder.glob("dict*.txt")):
        return RunFolder(folder, checkpoint_file)
    first = find_checkpoint(folder, checkpoint_file.split(":")[0])
    return RunFolder(
        folder, checkpoint_file, checkpoint_utils.load_checkpoint_to_cpu(str(first))["cfg"]
    )

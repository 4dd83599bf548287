"""The base of the models that generate text: loading them for use from Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fairseq.hub_utils import GeneratorHubInterface

from ..diagnostics.explain import explained
from ..errors import UserError
from ..kinds import Kind
from ..runs.layout import find_checkpoint
from .packed import MODEL, is_packed, task_options, unpacked
from .registration import PicklableModel
from .text_files import text_files


class GeneratorModel(PicklableModel):
    """A mixin of translation and language models, before fairseq's class in the bases."""

    kind: Kind

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str | Path,
        checkpoint_file: str = MODEL,
        data_name_or_path: str | Path = ".",
        **kwargs: Any,
    ) -> GeneratorHubInterface:
        """As in fairseq; also takes a file of ``casrnn pack``, or a run's folder alone.

        Args:
            model_name_or_path: a file of ``casrnn pack``, a run's folder or a checkpoint. A packed
                model needs no further arguments, nor does a run on data from ``casrnn prepare`` or
                a recipe: its tokenizer and subword units are used.
            checkpoint_file: the checkpoint's name (default: model.pt, else checkpoint_best.pt, else
                checkpoint_last.pt).
            data_name_or_path: folder of the dictionaries; with a leading dot, relative to the
                checkpoint's folder. If it is given, give ``tokenizer`` and ``bpe`` as well.
            kwargs: further options of the task or of generation.

        Raises:
            UserError: a folder does not exist, or the checkpoint cannot be loaded or is of a model
                of another kind.
        """
        with explained():
            folder, file, data, options = pretrained_arguments(
                model_name_or_path, checkpoint_file, str(data_name_or_path)
            )
            found = os.path.join(folder, data) if data.startswith(".") else data
            for path, what in ((folder, "the model"), (found, "data_name_or_path")):
                if not os.path.exists(path):
                    raise UserError(f"{path} does not exist; check the path of {what}")
            hub = super().from_pretrained(  # type: ignore[misc]
                str(folder), file, data, **(options | kwargs)
            )
        for model in hub.models:
            if not cls.kind.has_class(type(model)):
                raise UserError(
                    f"the checkpoint in {model_name_or_path} is of a {type(model).__name__}, not "
                    f"of a {cls.kind.name}; load it with its own architecture, "
                    "MODEL_REGISTRY[…].from_pretrained"
                )
        return hub


def pretrained_arguments(
    path: str | Path, checkpoint_file: str, data: str
) -> tuple[Path, str, str, dict[str, str]]:
    """Folder, checkpoint, data and options of the task for fairseq's ``from_pretrained``.

    Args:
        path, checkpoint_file, data: see :meth:`GeneratorModel.from_pretrained`.

    Raises:
        UserError: there is no checkpoint, or a file that it needs is missing.
    """
    from fairseq import checkpoint_utils

    packed, folder = is_packed(path), unpacked(path)
    if folder.is_file():
        folder, checkpoint_file = folder.parent, folder.name
    if not folder.is_dir():
        return folder, checkpoint_file, data, {}
    if checkpoint_file == MODEL and not (folder / MODEL).is_file():
        checkpoint_file = find_checkpoint(folder).name
    if packed:
        return folder, checkpoint_file, data, task_options(folder)
    if data != "." or any(folder.glob("dict*.txt")):
        return folder, checkpoint_file, data, {}
    first = find_checkpoint(folder, checkpoint_file.split(":")[0])
    cfg = checkpoint_utils.load_checkpoint_to_cpu(str(first))["cfg"]
    place, options = text_files(first, cfg)
    return folder, checkpoint_file, str(place.resolve()), options

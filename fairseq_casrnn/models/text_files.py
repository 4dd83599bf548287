"""The files of a trained model of text: its dictionaries, subword units and tokenizer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.prepared import OPTIONS_FILE, read_json
from ..data.subwords import BPE_CODES, SENTENCEPIECE, UNITS, find_units
from ..errors import UserError
from ..runs.layout import find_data, languages
from .packed import task_options


@dataclass(frozen=True)
class TranslationFiles:
    """The files and settings that a translation model needs.

    Args:
        data: folder of the dictionaries.
        source, target: language codes.
        tokenizer: name of a fairseq tokenizer, or "" for tokenised text.
        bpe: name of the subword units in :data:`.subwords.UNITS`, or "" for words.
        subwords: their model.
    """

    data: Path
    source: str
    target: str
    tokenizer: str
    bpe: str
    subwords: Path

    def options(self) -> dict[str, str]:
        """The options of task and text that are not file names."""
        found = {"source_lang": self.source, "target_lang": self.target}
        found |= {"tokenizer": self.tokenizer} if self.tokenizer else {}
        return found | ({"bpe": self.bpe} if self.bpe else {})

    def file_options(self) -> dict[str, str]:
        """The options that are file names."""
        return {UNITS[self.bpe][1]: str(self.subwords)} if self.bpe else {}


def translation_files(
    checkpoint: Path, cfg: Any, data: str | os.PathLike | None
) -> TranslationFiles:
    """Find the files of a translation model, in the data folder of ``casrnn prepare`` or a recipe.

    Args:
        checkpoint: the file.
        cfg: its options.
        data: folder of the dictionaries; None for that of the training or, if that has moved with
            the checkpoint, the one beside the runs.

    Raises:
        UserError: the dictionaries or subword units are missing.
    """
    place = find_data(checkpoint.parent, data, cfg)
    source, target = languages(place, cfg)
    assert source is not None  # find_data has found its dictionary
    assert target is not None
    options = read_json(place / OPTIONS_FILE) if (place / OPTIONS_FILE).is_file() else None
    tokenizer = "" if options is None else options.get("tokenizer", "moses_lowercase")
    bpe, subwords = find_units(place)
    for name, option in ((SENTENCEPIECE, "sentencepiece"), (BPE_CODES, "bpe_operations")):
        if options and options.get(option) and not bpe:
            raise UserError(
                f"{place / '..' / 'text' / name} of the training data does not exist; keep it "
                "beside data-bin"
            )
    return TranslationFiles(place, source, target, tokenizer, bpe, subwords)


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

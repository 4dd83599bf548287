"""Reading a data folder with ``input0/``, ``label/`` and ``text.json``."""

import os
from collections.abc import Sized
from pathlib import Path

from fairseq.data import Dictionary

from ..data.prepared import read_json
from ..data.text import LANGUAGE
from ..data.words import TOKENIZERS
from ..errors import UserError, quoted


def load_dictionary(folder: str, part: str) -> Dictionary:
    """Load ``folder/part/dict.txt``.

    Raises:
        UserError: it does not exist.
    """
    path = os.path.join(folder, part, "dict.txt")
    if not os.path.isfile(path):
        if any(Path(folder).glob("dict*.txt")):
            raise UserError(
                f"{folder} has the data of a translation or language model, but a classifier or "
                f"tagger reads {path}; give data of the model's kind"
            )
        raise UserError(
            f"{path} does not exist; fill {folder} with a recipe's prepare.sh, or its folders "
            "input0, input1 and label with fairseq-preprocess --only-source"
        )
    return Dictionary.load(path)


def check_equally_many(folder: str, split: str, part: str, sentences: Sized, other: Sized) -> None:
    """Raise UserError unless ``folder/part/split`` has as many sentences as ``input0``."""
    if len(other) != len(sentences):
        raise UserError(
            f"{folder}/input0/{split} has {len(sentences)} sentences but {folder}/{part}/{split} "
            f"has {len(other)}; run fairseq-preprocess again, on files of equally many lines"
        )


def read_text_json(folder: str) -> dict:
    """The settings in ``text.json`` of a data folder; empty if there is no such file.

    Raises:
        UserError: a setting is invalid.
    """
    path = Path(folder) / "text.json"
    settings = read_json(path) if path.is_file() else {}
    if settings.get("tokenizer", "space") not in TOKENIZERS:
        raise UserError(
            f"{path} has the tokenizer {quoted(str(settings['tokenizer']))}; write one of "
            f"{', '.join(TOKENIZERS)}"
        )
    if not LANGUAGE.fullmatch(str(settings.get("language", "en"))):
        raise UserError(f"{path} is damaged: language is not a code such as en; write one")
    for name in ("lowercase", "zero_digits", "pairs"):
        if not isinstance(settings.get(name, True), bool):
            raise UserError(f"{path} is damaged: {name} is not true or false; write one of these")
    return settings

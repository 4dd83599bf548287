"""Telling dictionaries apart."""

import os
import re
import zlib
from collections.abc import Iterable

from fairseq.data import Dictionary

from fairseq_casrnn.errors import UserError, quoted

FILLER = re.compile(r"madeupword\d{4}")  # with these fairseq-preprocess pads a dictionary


def without_fillers(dictionary: Dictionary) -> list[str]:
    """Its symbols, without fairseq's own."""
    symbols = dictionary.symbols[dictionary.nspecial :]
    return [symbol for symbol in symbols if not FILLER.fullmatch(symbol)]


def has_words(path: str | os.PathLike) -> bool:
    """Whether a dictionary's file has words, and not fillers alone."""
    with open(path, encoding="utf-8") as file:
        entries = (line.strip().partition(" ")[0] for line in file)
        return any(entry and not FILLER.fullmatch(entry) for entry in entries)


def digest(dictionary: Dictionary) -> int:
    """A number that differs between dictionaries."""
    return zlib.crc32("\n".join(dictionary.symbols).encode())


def check_digest(
    trained: int | dict | None, dictionary: Dictionary, folder: object, language: str | None = None
) -> None:
    """Raise UserError unless ``dictionary``, of ``folder``, has that digest; None fits all.

    A translation model has several, in a dict.
    """
    if isinstance(trained, dict):
        raise UserError(
            "the checkpoint is of a translation model, and this data and task are not; check the "
            "checkpoint's path"
        )
    if trained not in (None, digest(dictionary)):
        name = f"dict.{language}.txt" if language else "dict.txt"
        options = "--srcdict, --tgtdict" if language else "--srcdict"
        raise UserError(
            f"the {name} of {folder} has other words, or the same in another order, than the "
            "model was trained with; give data binarised with the dictionary of its training "
            f"(fairseq-preprocess {options})"
        )


def check_known(
    texts: Iterable[str], dictionary: Dictionary, folder: object, hint: str = ""
) -> None:
    """Raise UserError if most words of ``texts`` are not in ``dictionary``, of ``folder``."""
    words = [word for text in texts for word in text.split() if word != dictionary.unk_word]
    unknown = [word for word in words if dictionary.index(word) == dictionary.unk()]
    if 2 * len(unknown) > len(words):
        raise UserError(
            f"{len(unknown)} of {len(words)} words are not in the dictionary of {folder}, such as "
            f"{quoted(unknown[0])}: it belongs to another model or language; check --data{hint}"
        )

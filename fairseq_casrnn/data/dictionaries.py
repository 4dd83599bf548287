"""Comparing dictionaries."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairseq_casrnn.errors import UserError, quoted

if TYPE_CHECKING:
    from fairseq.data import Dictionary

FILLER = re.compile(r"madeupword\d{4}")  # fairseq-preprocess pads dictionaries with these


def without_fillers(dictionary: Dictionary) -> list[str]:
    """The words of a dictionary, without fairseq's symbols and fillers."""
    symbols = dictionary.symbols[dictionary.nspecial :]
    return [symbol for symbol in symbols if not FILLER.fullmatch(symbol)]


def has_words(path: str | os.PathLike) -> bool:
    """Whether a dictionary's file has words other than fillers."""
    with open(path, encoding="utf-8") as file:
        entries = (line.strip().partition(" ")[0] for line in file)
        return any(entry and not FILLER.fullmatch(entry) for entry in entries)


def digest(dictionary: Dictionary) -> int:
    """A checksum of a dictionary's symbols and their order."""
    return zlib.crc32("\n".join(dictionary.symbols).encode())


def check_digest(
    trained: int | dict | None, dictionary: Dictionary, folder: object, language: str | None = None
) -> None:
    """Raise UserError unless a dictionary has the digest stored in a checkpoint.

    Args:
        trained: the stored digest; None matches any dictionary. A dict has the digests of a
            translation model.
        dictionary: the dictionary to check.
        folder: its folder, for the message.
        language: the dictionary's language in a translation task.
    """
    if isinstance(trained, dict):
        raise UserError(
            "the checkpoint holds a translation model, but the task and its data are not for "
            "translation; check the checkpoint's path"
        )
    if trained not in (None, digest(dictionary)):
        name = f"dict.{language}.txt" if language else "dict.txt"
        options = "--srcdict, --tgtdict" if language else "--srcdict"
        raise UserError(
            f"the {name} of {folder} is not the dictionary that the model was trained with; give "
            f"data binarised with that dictionary (fairseq-preprocess {options})"
        )


def check_known(
    texts: Iterable[str], dictionary: Dictionary, folder: object, hint: str = ""
) -> None:
    """Raise UserError if most words of ``texts`` are not in ``dictionary``.

    ``folder`` is the dictionary's folder, and ``hint`` ends the message.
    """
    words = [word for text in texts for word in text.split() if word != dictionary.unk_word]
    unknown = [word for word in words if dictionary.index(word) == dictionary.unk()]
    if 2 * len(unknown) > len(words):
        raise UserError(
            f"{len(unknown)} of {len(words)} words are not in the dictionary of {folder}, such as "
            f"{quoted(unknown[0])}: it belongs to another model or language; check --data{hint}"
        )

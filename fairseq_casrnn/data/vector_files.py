"""Files of word vectors: GloVe's format, or word2vec's text format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.data.values import natural
from fairseq_casrnn.errors import UserError


def is_header(pieces: Sequence[str]) -> bool:
    """Whether the first line is word2vec's "count dimension"."""
    return len(pieces) == 2 and None not in map(natural, pieces)


def is_number(piece: str) -> bool:
    """Whether ``piece`` can be parsed as a float."""
    try:
        float(piece)
    except ValueError:
        return False
    return True


def vector_dimension(path: Path) -> int:
    """The dimension of the vectors in a file, by its first line.

    Raises:
        UserError: the file cannot be read, or its first line is no word and numbers.
    """
    try:
        with open(path, "rb") as stream:
            first = stream.readline()
    except OSError as error:
        raise UserError(f"cannot read the word vectors {path}: {error.strerror}") from None
    pieces = first.decode("utf-8", "replace").rstrip("\r\n ").split(" ")
    if is_header(pieces):
        return int(pieces[1])
    if len(pieces) < 2 or not all(map(is_number, pieces[1:])):
        raise UserError(
            f"{path}, line 1 is not a word and numbers; give a file of word vectors in GloVe's or "
            "word2vec's text format"
        )
    return len(pieces) - 1

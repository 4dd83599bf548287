"""Files of word vectors: GloVe's format, or word2vec's text format."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fairseq_casrnn.data.symbols import ESCAPED
from fairseq_casrnn.data.text import text_lines
from fairseq_casrnn.data.values import natural
from fairseq_casrnn.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


def is_header(pieces: Sequence[str]) -> bool:
    """Whether the first line is word2vec's "count dimension"."""
    return len(pieces) == 2 and None not in map(natural, pieces)


def is_number(piece: str | bytes) -> bool:
    """Whether ``piece`` can be parsed as a float."""
    try:
        float(piece)
    except ValueError:
        return False
    return True


def vector_dimension(path: Path) -> int:
    """The dimension of the vectors in a file, by its first line.

    Raises:
        UserError: the file cannot be read, or its first line is not a word and numbers.
    """
    return read_first_line(path)[1]


def read_first_line(path: Path) -> tuple[int | None, int]:
    """The number of vectors by word2vec's header, or None, and their dimension.

    Raises:
        UserError: the file cannot be read, or its first line is not a word and numbers.
    """
    try:
        with open(path, "rb") as stream:
            first = stream.readline()
    except OSError as error:
        raise UserError(f"cannot read the word vectors {path}: {error.strerror}") from None
    pieces = first.removeprefix(BOM_UTF8).decode("utf-8", "replace").rstrip("\r\n ").split(" ")
    if is_header(pieces):
        return int(pieces[0]), int(pieces[1])
    if len(pieces) < 2 or not all(map(is_number, pieces[1:])):
        raise UserError(
            f"{path}, line 1 is not a word and numbers; give a file of word vectors in GloVe's or "
            "word2vec's text format"
        )
    return None, len(pieces) - 1


def vector_lines(stream: BinaryIO, path: str | Path, dim: int) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, pieces) of each line with a vector.

    The last ``dim`` pieces are the numbers. The pieces before are the word; GloVe 840B has words
    with spaces.

    Raises:
        UserError: naming the file and line.
    """
    for number, line in enumerate(text_lines(stream, path), 1):
        pieces = line.rstrip("\r ").split(" ")
        if pieces == [""]:
            continue
        if number == 1 and is_header(pieces):
            check_dim(int(pieces[1]), dim, path, number)
            continue
        if len(pieces) < dim + 1 or (number == 1 and is_number(pieces[1])):
            check_dim(len(pieces) - 1, dim, path, number)
        yield number, pieces


def check_dim(got: int, expected: int, path: str | Path, line: int) -> None:
    """Raise UserError if a vector has another dimension than the model's embedding."""
    if got == expected:
        return
    if line > 1:
        raise UserError(
            f"{path}, line {line}: {got} numbers, separated by spaces, instead of {expected}; the "
            "file is damaged, or not a file of word vectors"
        )
    if not got:
        raise UserError(
            f"{path}, line {line} has no numbers separated by spaces; give a file of word vectors "
            "in GloVe's or word2vec's text format"
        )
    raise UserError(
        f"{path}, line {line}: vectors of dimension {got}, but the embedding has {expected}; "
        "set the embedding dimension of the model to that of the file"
    )


def parse_vector(numbers: Sequence[str], path: str | Path, line: int | str) -> Tensor:
    """A vector from strings. Raises UserError if they are not finite numbers."""
    import torch

    remedy = "correct or drop the line"
    try:
        values = torch.tensor([float(value) for value in numbers])
    except ValueError:
        raise UserError(
            f"{path}, line {line}: not a word and {len(numbers)} numbers; {remedy}"
        ) from None
    if not values.isfinite().all():
        raise UserError(f"{path}, line {line}: a number is not finite (NaN or infinite); {remedy}")
    return values


def words_with_vectors(path: Path, words: Iterable[str]) -> set[str]:
    """Those of ``words`` that get a vector from a file.

    These are the words in the file and, if all words of the file are in lower case, those whose
    lower case it has. The numbers are checked only of vectors that training will read. Warns on
    standard error of words with more numbers than the dimension, which training skips, and if the
    file has more or fewer vectors than its header says.

    Raises:
        UserError: the file cannot be read, is not a file of word vectors, or a vector of these
            words has something other than finite numbers.
    """
    count, dim = read_first_line(path)
    wanted = set(words)
    unchecked = {*wanted, *ESCAPED, "<unk>"}
    lower = {word.lower() for word in wanted} - unchecked
    known, is_cased, lines, too_long = set(), False, 0, []
    with open(path, "rb") as stream:
        for number, pieces in vector_lines(stream, path, dim):
            word = " ".join(pieces[:-dim])
            lines += 1
            known.add(word)
            is_cased = is_cased or word != word.lower()
            if word in unchecked or (not is_cased and word in lower):
                parse_vector(pieces[-dim:], path, number)
                unchecked.discard(word)  # the first of equal words counts
                lower.discard(word)
            elif len(pieces) > dim + 1 and pieces[0] in wanted and all(map(is_number, pieces[1:])):
                too_long.append(number)
    if too_long:
        more = f" and {len(too_long) - 1} more" if too_long[1:] else ""
        print(
            f"warning: {path}, line {too_long[0]}{more}: more than {dim} numbers, so training "
            "will skip the vector; correct or drop the line",
            file=sys.stderr,
        )
    if count not in (None, lines):
        print(
            f"warning: {path} has {lines} vectors, but {count} by its first line; if it is cut "
            "off, copy or download it again",
            file=sys.stderr,
        )
    return {word for word in wanted if word in known or (not is_cased and word.lower() in known)}

"""Files of word vectors: GloVe's format, or word2vec's text format."""

from __future__ import annotations

import contextlib
import sys
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fairseq_casrnn.data.symbols import SPECIAL
from fairseq_casrnn.data.text import text_lines
from fairseq_casrnn.data.values import natural
from fairseq_casrnn.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

FORMATS = "give a file of word vectors in GloVe's or word2vec's text format"


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


def pieces_of(line: bytes) -> list[str]:
    """A word, or the words of one with spaces, and its numbers; the line may be damaged."""
    return line.decode("utf-8", "replace").rstrip("\r\n ").split(" ")


class VectorFile:
    """A file of word vectors, opened whenever it is read.

    Each line has a word and its numbers, separated by spaces: GloVe's format (no header; some
    tokens of 840B contain spaces) or word2vec's text format (a first line "count dimension").

    Args:
        path: the file.
        dim: dimension of the embedding, or None for that of the first line.

    Attributes:
        count: the number of vectors by word2vec's header, or None.
        dim: dimension of the vectors.
        is_cased: whether one of the words read so far has capitals.
        lines: the number of vectors read so far.

    Raises:
        UserError: the file cannot be read, or its first line is not a word and ``dim`` numbers.
    """

    def __init__(self, path: str | Path, dim: int | None = None):
        self.path, self.is_cased, self.lines = path, False, 0
        self.count: int | None = None
        self._long: list[int] = []
        with self._opened() as stream:
            first = stream.readline()
        pieces = pieces_of(first.removeprefix(BOM_UTF8))
        self._start = len(BOM_UTF8) if first.startswith(BOM_UTF8) else 0
        found = len(pieces) - 1
        if is_header(pieces):
            self.count, found = map(int, pieces)
            self._start = len(first)
        elif dim is None:
            if not found or not all(map(is_number, pieces[1:])):
                raise UserError(f"{path}, line 1 is not a word and numbers; {FORMATS}")
        elif pieces == [""] or (found > dim and not is_number(pieces[1])):
            found = dim  # a blank line, which is skipped, or a word with spaces, such as ". . ."
        self.dim = found if dim is None else dim
        if found == self.dim:
            return
        if not found:
            raise UserError(f"{path}, line 1 has no numbers separated by spaces; {FORMATS}")
        raise UserError(
            f"{path}, line 1: vectors of dimension {found}, but the embedding has {dim}; set the "
            "embedding dimension of the model to that of the file"
        )

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with open(self.path, "rb") as stream:
                yield stream
        except OSError as error:
            why = error.strerror
            raise UserError(f"cannot read the word vectors {self.path}: {why}") from None

    def __iter__(self) -> Iterator[tuple[int, str, str]]:
        """Yield (line number, word, numbers) of each vector.

        Raises:
            UserError: the file cannot be read, or a line has too few numbers or is not UTF-8.
        """
        dim = self.dim
        with self._opened() as stream:
            for number, line in enumerate(text_lines(stream, self.path), 1):
                line = line.rstrip("\r ")
                if not line or (number == 1 and self.count is not None):
                    continue
                spaces = line.count(" ")
                if spaces < dim:
                    raise UserError(
                        f"{self.path}, line {number}: {spaces} numbers, separated by spaces, "
                        f"instead of {dim}; the file is damaged, or not a file of word vectors"
                    )
                # Not split into all numbers: few lines are needed.
                word = line.partition(" ")[0] if spaces == dim else line.rsplit(" ", dim)[0]
                self.is_cased = self.is_cased or word != word.lower()
                self.lines += 1
                yield number, word, line[len(word) + 1 :]

    def offsets(self) -> dict[bytes, int]:
        """The byte offset of the first line of each word, for :meth:`at`.

        Faster than iterating, because the lines are not checked. Words with spaces, such as
        ". . .", are skipped: no tokenizer makes them.

        Raises:
            UserError: the file cannot be read.
        """
        offsets: dict[bytes, int] = {}
        is_cased = False
        with self._opened() as stream:
            offset = stream.seek(self._start)
            for line in stream:
                word, _, rest = line.partition(b" ")
                if is_number(rest.partition(b" ")[0]):
                    offsets.setdefault(word, offset)
                if not is_cased:
                    text = word.decode("utf-8", "replace")
                    is_cased = text != text.lower()
                offset += len(line)
        self.is_cased = is_cased
        return offsets

    def at(self, offset: int) -> Tensor | None:
        """The vector of the line at a byte offset; None if it has another dimension.

        Raises:
            UserError: the file cannot be read, or the numbers are not finite numbers.
        """
        with self._opened() as stream:
            stream.seek(offset)
            word, *numbers = pieces_of(stream.readline())
        return self.parse(" ".join(numbers), f"of {word}") if len(numbers) == self.dim else None

    def parse(self, numbers: str, line: int | str) -> Tensor:
        """The vector of a line. Raises UserError if its numbers are not finite numbers."""
        import torch

        where, remedy = f"{self.path}, line {line}", "correct or drop the line"
        try:
            values = torch.tensor([float(value) for value in numbers.split(" ")])
        except ValueError:
            raise UserError(f"{where}: not a word and {self.dim} numbers; {remedy}") from None
        if not values.isfinite().all():
            raise UserError(f"{where}: a number is not finite (NaN or infinite); {remedy}")
        return values

    def vectors_of(self, words: Collection[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield each of ``words`` that has a vector, and the vector.

        If a word has several lines, the first counts. If all words of the file are in lower case, a
        word that the file lacks gets the vector of its lower case. Lines with more numbers than the
        dimension are skipped, see :meth:`too_long`.

        Raises:
            UserError: the file cannot be read, or one of these lines is malformed.
        """
        capitals: dict[str, list[str]] = {}  # words that have some, by their lower case
        for word in words:
            if word != word.lower():
                capitals.setdefault(word.lower(), []).append(word)
        found: set[str] = set()
        lower: dict[str, Tensor] = {}
        for number, word, numbers in self:
            if not self.is_cased and word in capitals and word not in lower:
                lower[word] = self.parse(numbers, number)
            if word not in words:
                self._check_length(number, word, numbers, words)
            elif word not in found:
                found.add(word)
                yield word, self.parse(numbers, number)
        for form, vector in ({} if self.is_cased else lower).items():
            for word in capitals[form]:
                if word not in found:
                    yield word, vector

    def _check_length(self, number: int, word: str, numbers: str, words: Collection[str]) -> None:
        """Note the line if it is of one of ``words``, with more numbers than the dimension.

        Otherwise ``word`` is a word with spaces.
        """
        first, *more = word.split(" ")
        if more and first in words and all(map(is_number, [*more, *numbers.split(" ")])):
            self._long.append(number)

    def too_long(self) -> str:
        """A description of the lines that :meth:`vectors_of` skipped; empty if there are none."""
        if not self._long:
            return ""
        more = f" and {len(self._long) - 1} more" if self._long[1:] else ""
        return f"{self.path}, line {self._long[0]}{more}: more than {self.dim} numbers"


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
    file, wanted = VectorFile(path), set(words)
    found = {word for word, _ in file.vectors_of(wanted | SPECIAL)}
    if too_long := file.too_long():
        print(
            f"warning: {too_long}, so training will skip the vector; correct or drop the line",
            file=sys.stderr,
        )
    if file.count not in (None, file.lines):
        print(
            f"warning: {path} has {file.lines} vectors, but {file.count} by its first line; if it "
            "is cut off, copy or download it again",
            file=sys.stderr,
        )
    return found & wanted

"""Pretrained vectors for words that are not in a trained model's dictionary."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import BinaryIO

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from ..data.vector_files import check_dim, is_header, is_number, parse_vector
from ..errors import UserError


class WordVectors:
    """A file of word vectors; only the words and their offsets are kept in memory.

    Args:
        path: GloVe's format or word2vec's text format, see :func:`.embedding.load_vectors`.
        dim: dimension of the vectors.

    Raises:
        UserError: the file cannot be read, or has vectors of another dimension.
    """

    def __init__(self, path: str, dim: int):
        self.path, self.dim = path, dim
        self.offsets: dict[bytes, int] = {}
        self.is_cased = False
        try:
            with open(path, "rb") as stream:
                self._check(stream.readline(), stream.readline())
                stream.seek(0)
                self._index(stream)
        except OSError as error:
            raise UserError(f"cannot read the word vectors {path}: {error.strerror}") from None

    def _check(self, first: bytes, second: bytes) -> None:
        pieces = first.removeprefix(BOM_UTF8).decode("utf-8", "replace").rstrip("\r\n ").split(" ")
        if is_header(pieces):
            check_dim(int(pieces[1]), self.dim, self.path, 1)
            pieces = second.decode("utf-8", "replace").rstrip("\r\n ").split(" ")
        if len(pieces) < self.dim + 1:
            check_dim(len(pieces) - 1, self.dim, self.path, 1)

    def _index(self, stream: BinaryIO) -> None:
        end = 0
        for line in stream:
            offset, end = end, end + len(line)
            if offset == 0:
                if line.startswith(BOM_UTF8):
                    offset, line = len(BOM_UTF8), line.removeprefix(BOM_UTF8)
                if is_header(line.decode("utf-8", "replace").split()):
                    continue
            word, _, rest = line.partition(b" ")
            # Skips words with spaces, such as ". . .": no tokenizer makes them.
            if is_number(rest.partition(b" ")[0]):
                self.offsets.setdefault(word, offset)
            if not self.is_cased:
                text = word.decode("utf-8", "replace")
                self.is_cased = text != text.lower()

    def find(self, word: str) -> Tensor | None:
        """The vector ``(dim,)`` of a word, or None.

        If the file has only lower-case words, the word in lower case counts, too.

        Raises:
            UserError: the word's line is malformed.
        """
        for form in (word,) if self.is_cased else (word, word.lower()):
            offset = self.offsets.get(form.encode())
            if offset is None:
                continue
            with open(self.path, "rb") as stream:
                stream.seek(offset)
                pieces = stream.readline().decode("utf-8", "replace").rstrip("\r\n ").split(" ")
            if len(pieces) == self.dim + 1:
                return parse_vector(pieces[1:], self.path, f"of {form}")
        return None


class GrowingVocabulary:
    """Adds words that have a pretrained vector to a dictionary and an embedding.

    Args:
        dictionary: of the model; :meth:`index` adds words to it.
        table: the model's embedding; :meth:`grow` appends the vectors of the new words.
        vectors: the file.
    """

    def __init__(self, dictionary: Dictionary, table: nn.Embedding, vectors: WordVectors):
        self.dictionary, self.table, self.vectors = dictionary, table, vectors
        self.pending: list[Tensor] = []
        self.unknown: set[str] = set()

    def index(self, word: str) -> int:
        """The index of a word; that of <unk> if neither the dictionary nor the file has it."""
        if word not in self.dictionary.indices and word not in self.unknown:
            found = self.vectors.find(word)
            if found is None:
                self.unknown.add(word)
            else:
                self.pending.append(found)
                self.dictionary.add_symbol(word)
        return self.dictionary.index(word)

    @torch.no_grad()
    def grow(self) -> None:
        """Append the vectors of the new words to the embedding."""
        if not self.pending:
            return
        weight = self.table.weight
        rows = torch.stack(self.pending).to(weight)
        self.table.weight = nn.Parameter(torch.cat([weight, rows]), weight.requires_grad)
        self.table.num_embeddings = len(self.table.weight)
        self.pending = []

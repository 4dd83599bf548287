"""Pretrained vectors for words that are not in a trained model's dictionary."""

from __future__ import annotations

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from ..data.vector_files import FORMATS, VectorFile
from ..errors import UserError


class WordVectors:
    """A file of word vectors; only the words and their offsets are kept in memory.

    Args:
        path: GloVe's format or word2vec's text format.
        dim: dimension of the vectors.

    Raises:
        UserError: the file cannot be read, has no vectors, or has some of another dimension.
    """

    def __init__(self, path: str, dim: int):
        self.file = VectorFile(path, dim)
        self.offsets = self.file.offsets()
        if not self.offsets:
            raise UserError(f"{path} has no vector of dimension {dim}; {FORMATS}")

    def find(self, word: str) -> Tensor | None:
        """The vector ``(dim,)`` of a word, or None.

        If the file has only lower-case words, the word in lower case counts, too.

        Raises:
            UserError: the word's line is malformed.
        """
        for form in (word,) if self.file.is_cased else (word, word.lower()):
            offset = self.offsets.get(form.encode())
            if offset is not None and (found := self.file.at(offset)) is not None:
                return found
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

"""Embedding tables, initialised at random or from pretrained word vectors."""

from __future__ import annotations

import logging

import torch
from fairseq.data import Dictionary
from torch import nn

from ..data.dictionaries import without_fillers
from ..data.vector_files import VectorFile
from ..errors import UserError
from .loading_checkpoint import is_loading_checkpoint

logger = logging.getLogger(__name__)


def uniform_embedding(
    num_embeddings: int, dim: int, padding_idx: int, bound: float
) -> nn.Embedding:
    """An embedding table uniform in ±bound, zero at padding."""
    table = nn.Embedding(num_embeddings, dim, padding_idx=padding_idx)
    nn.init.uniform_(table.weight, -bound, bound)
    nn.init.zeros_(table.weight[padding_idx])
    return table


def build_embedding(
    dictionary: Dictionary,
    dim: int,
    path: str | None = None,
    freeze: bool = False,
    bound: float = 0.1,
) -> nn.Embedding:
    """An embedding table for ``dictionary``, with the vectors of ``path`` for the words it has.

    Raises:
        UserError: the file is missing or malformed, or has vectors of another dimension.
    """
    table = uniform_embedding(len(dictionary), dim, dictionary.pad(), bound)
    if path and not is_loading_checkpoint():
        load_vectors(table, dictionary, path)
    table.weight.requires_grad_(not freeze)
    return table


def load_vectors(table: nn.Embedding, dictionary: Dictionary, path: str) -> None:
    """Copy the vectors of ``path`` into ``table`` for the words of ``dictionary``.

    :meth:`.VectorFile.vectors_of` says which these are. Logs how many words have one.

    Raises:
        UserError: a line is malformed, or no word has a vector.
    """
    file, found = VectorFile(path, table.embedding_dim), set()
    with torch.no_grad():
        for word, vector in file.vectors_of(dictionary.indices):
            table.weight[dictionary.indices[word]] = vector
            found.add(word)
    if too_long := file.too_long():
        logger.warning("%s; skipped", too_long)
    words = set(without_fillers(dictionary))
    count = len(found & words)
    if not count:
        raise UserError(
            f"{path} has no vector of dimension {file.dim} for any of the dictionary's "
            f"{len(words)} words; check the file, its dimension, its language and its letter case"
        )
    share = 100 * count / len(words)
    logger.info("%s: vectors for %d of %d types (%.1f %%)", path, count, len(words), share)

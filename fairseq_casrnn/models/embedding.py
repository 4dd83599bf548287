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
    num_embeddings: int, dim: int, padding_idx: int, bound: float = 0.1
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


def load_vectors(table: nn.Embedding, dictionary: Dictionary, path: str) -> int:
    """Copy the vectors of ``path`` into ``table`` for the words of ``dictionary``.

    If a word has several lines, the first counts. Lines with more numbers than the dimension are
    skipped with a warning. If all words of the file are in lower case, a word that the file lacks
    gets the vector of its lower case.

    Returns:
        The number of words found. fairseq's special symbols, such as </s>, get their vectors, too,
        but are not counted.

    Raises:
        UserError: naming the file and line.
    """
    file, found = VectorFile(path, table.embedding_dim), set()
    by_lower_case, lower_case_vectors = words_with_capitals(dictionary), {}
    with torch.no_grad():
        for number, word, numbers in file:
            index = dictionary.indices.get(word)
            if not file.is_cased and word in by_lower_case and word not in lower_case_vectors:
                lower_case_vectors[word] = file.parse(numbers, number)
            if index is None:
                file.check_length(number, word, numbers, dictionary.indices)
            elif index not in found:
                table.weight[index] = file.parse(numbers, number)
                found.add(index)
        for word, row in ({} if file.is_cased else lower_case_vectors).items():
            for index in by_lower_case[word] - found:
                table.weight[index] = row
                found.add(index)
    if too_long := file.too_long():
        logger.warning("%s; skipped", too_long)
    return report_coverage(found, dictionary, file)


def words_with_capitals(dictionary: Dictionary) -> dict[str, set[int]]:
    """Indices of the words that have capitals, by the word in lower case."""
    found: dict[str, set[int]] = {}
    for index in range(dictionary.nspecial, len(dictionary)):
        if (word := dictionary[index]) != word.lower():
            found.setdefault(word.lower(), set()).add(index)
    return found


def report_coverage(found: set[int], dictionary: Dictionary, file: VectorFile) -> int:
    """Log and return how many of the dictionary's words are among the indices ``found``.

    Raises:
        UserError: none of the words has a vector.
    """
    words = {dictionary.indices[word] for word in without_fillers(dictionary)}
    found, types = found & words, len(words)
    if not found:
        raise UserError(
            f"{file.path} has no vector of dimension {file.dim} for any of the dictionary's "
            f"{types} words; check the file, its dimension, its language and its letter case"
        )
    share = 100 * len(found) / types
    logger.info("%s: vectors for %d of %d types (%.1f %%)", file.path, len(found), types, share)
    return len(found)

"""Embedding tables, initialized at random or from pretrained word vectors."""

from __future__ import annotations

import logging

import torch
from fairseq.data import Dictionary
from torch import nn

from ..data.vector_files import is_number, parse_vector, vector_lines
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

    Each line has a word and its numbers, separated by spaces: GloVe's format (no header; some
    tokens of 840B contain spaces) or word2vec's text format (a first line "count dimension"). If a
    word has several lines, the first counts.

    Lines with more numbers than the dimension are skipped with a warning. If all words of the file
    are in lower case, a word that the file lacks gets the vector of its lower case.

    Returns:
        The number of words found. fairseq's special symbols, such as </s>, get their vectors, too,
        but are not counted.

    Raises:
        UserError: naming the file and line.
    """
    dim, found, too_long = table.embedding_dim, set(), []
    by_lower_case, lower_case_vectors, is_cased = words_with_capitals(dictionary), {}, False
    try:
        stream = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"cannot read the word vectors {path}: {error.strerror}") from None
    with stream, torch.no_grad():
        for number, pieces in vector_lines(stream, path, dim):
            word = " ".join(pieces[:-dim])
            index, is_cased = dictionary.indices.get(word), is_cased or word != word.lower()
            if not is_cased and word in by_lower_case and word not in lower_case_vectors:
                lower_case_vectors[word] = parse_vector(pieces[-dim:], path, number)
            if index is None:
                if pieces[0] in dictionary.indices and all(map(is_number, pieces[1:])):
                    too_long.append(number)
            elif index not in found:
                table.weight[index] = parse_vector(pieces[-dim:], path, number)
                found.add(index)
        for word, row in ({} if is_cased else lower_case_vectors).items():
            for index in by_lower_case[word] - found:
                table.weight[index] = row
                found.add(index)
    if too_long:
        more = f" and {len(too_long) - 1} more" if too_long[1:] else ""
        logger.warning("%s, line %d%s: more than %d numbers; skipped", path, too_long[0], more, dim)
    return report_coverage(found, dictionary, path, dim)


def words_with_capitals(dictionary: Dictionary) -> dict[str, set[int]]:
    """Indices of the words that have capitals, by the word in lower case."""
    found: dict[str, set[int]] = {}
    for index in range(dictionary.nspecial, len(dictionary)):
        if (word := dictionary[index]) != word.lower():
            found.setdefault(word.lower(), set()).add(index)
    return found


def report_coverage(found: set[int], dictionary: Dictionary, path: str, dim: int) -> int:
    """Log and return how many of the dictionary's words are among the indices ``found``.

    Raises:
        UserError: none of the words has a vector.
    """
    # fairseq-preprocess pads its dictionaries with made-up words.
    words = {
        index
        for index in range(dictionary.nspecial, len(dictionary))
        if not dictionary[index].startswith("madeupword")
    }
    found, types = found & words, len(words)
    if not found:
        raise UserError(
            f"{path} has no vector of dimension {dim} for any of the dictionary's {types} words; "
            "check the file, its dimension, its language and its letter case"
        )
    share = 100 * len(found) / types
    logger.info("%s: vectors for %d of %d types (%.1f %%)", path, len(found), types, share)
    return len(found)

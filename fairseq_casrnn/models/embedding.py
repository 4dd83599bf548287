"""Embedding tables, random or read from word vectors as distributed (GloVe, word2vec text)."""

from __future__ import annotations

import logging

import torch
from torch import nn

from ..data.text import text_lines
from ..data.values import natural
from ..errors import UserError
from .restoring import restoring

logger = logging.getLogger(__name__)


def embedding(num_embeddings: int, dim: int, padding_idx: int, bound: float = 0.1) -> nn.Embedding:
    """A table uniform in ±bound, zero at padding."""
    table = nn.Embedding(num_embeddings, dim, padding_idx=padding_idx)
    nn.init.uniform_(table.weight, -bound, bound)
    nn.init.zeros_(table.weight[padding_idx])
    return table


def check_embed_range(cfg) -> None:
    """Raises UserError for an ``--encoder-embed-range`` that is not positive."""
    if cfg.encoder_embed_range <= 0:
        raise UserError(
            f"--encoder-embed-range is {cfg.encoder_embed_range}; it must be greater than 0"
        )


def build_embedding(
    dictionary, dim: int, path: str | None = None, freeze: bool = False, bound: float = 0.1
) -> nn.Embedding:
    """An embedding table for ``dictionary``; words found in ``path`` start with their vectors.

    Raises:
        UserError: the file is missing, malformed, or of another dimension.
    """
    table = embedding(len(dictionary), dim, dictionary.pad(), bound)
    if path and not restoring():
        load_vectors(table, dictionary, path)
    table.weight.requires_grad_(not freeze)
    return table


def load_vectors(table: nn.Embedding, dictionary, path: str) -> int:
    """Copy the vectors of ``path`` into ``table`` for the words of ``dictionary``.

    The format is one word and its numbers a line, separated by spaces: GloVe as distributed (no
    header; some tokens of 840B contain spaces), or word2vec's text format (a first line "count
    dimension"). Of several lines for one word the first counts.

    A line with more numbers than the dimension is left out with a warning. Where all words of the
    file are in lower case, a word that it lacks gets the vector of its lower case.

    Returns:
        How many words were found; of fairseq's own symbols, such as </s>, the vectors are taken,
        too, but not counted.

    Raises:
        UserError: naming the file and line.
    """
    dim, found, too_long = table.embedding_dim, set(), []
    capitals, lowered, is_cased = capitalised(dictionary), {}, False
    try:
        stream = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"cannot read the word vectors {path}: {error.strerror}") from None
    with stream, torch.no_grad():
        for number, pieces in entries(stream, path, dim):
            word = " ".join(pieces[:-dim])
            index, is_cased = dictionary.indices.get(word), is_cased or word != word.lower()
            if not is_cased and word in capitals and word not in lowered:
                lowered[word] = vector(pieces[-dim:], path, number)
            if index is None:
                if pieces[0] in dictionary.indices and all(map(is_number, pieces[1:])):
                    too_long.append(number)
            elif index not in found:
                table.weight[index] = vector(pieces[-dim:], path, number)
                found.add(index)
        for word, row in ({} if is_cased else lowered).items():
            for index in capitals[word] - found:
                table.weight[index] = row
                found.add(index)
    if too_long:
        more = f" and {len(too_long) - 1} more" if too_long[1:] else ""
        logger.warning(
            "%s, line %d%s: more than %d numbers; left out", path, too_long[0], more, dim
        )
    return report_coverage(found, dictionary, path, dim)


def capitalised(dictionary) -> dict[str, set[int]]:
    """The indices of the words with capitals, by their lower case."""
    found: dict[str, set[int]] = {}
    for index in range(dictionary.nspecial, len(dictionary)):
        if (word := dictionary[index]) != word.lower():
            found.setdefault(word.lower(), set()).add(index)
    return found


def entries(stream, path, dim):
    """Yields (number, pieces) of each line: a word, of several where it has spaces, and numbers.

    GloVe 840B has tokens with spaces.
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


def vector(numbers, path, line) -> torch.Tensor:
    """The vector that ``numbers``, strings, are. Raises UserError where they are none."""
    try:
        values = torch.tensor([float(value) for value in numbers])
    except ValueError:
        raise UserError(f"{path}, line {line}: not a word and {len(numbers)} numbers") from None
    if not values.isfinite().all():
        raise UserError(
            f"{path}, line {line}: a number is not finite (NaN or infinite); correct or "
            "drop the line"
        )
    return values


def report_coverage(found, dictionary, path, dim) -> int:
    """Log, and return, how many of the dictionary's words are among the indices ``found``.

    Raises:
        UserError: none is.
    """
    # fairseq-preprocess fills its dictionaries up with words that it makes up.
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


def is_header(pieces) -> bool:
    """Whether the first line is word2vec's "count dimension"."""
    return len(pieces) == 2 and None not in map(natural, pieces)


def is_number(piece: str) -> bool:
    """Whether ``piece`` reads as a float."""
    try:
        float(piece)
    except ValueError:
        return False
    return True


def check_dim(got: int, expected: int, path: str, line: int) -> None:
    """Raises UserError when a vector has another dimension than the model's embedding."""
    if got == expected:
        return
    if line > 1:
        raise UserError(
            f"{path}, line {line}: {got} numbers, separated by spaces, instead of {expected}; the "
            "file is damaged, or none of word vectors"
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

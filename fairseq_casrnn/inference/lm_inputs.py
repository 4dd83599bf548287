"""The sentences that a language model reads."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fairseq_casrnn.data.prepared import binarised_folder
from fairseq_casrnn.errors import UserError


def reads_bos(model) -> bool:
    """Whether a language model was trained with --add-bos-token and reads <s> first."""
    return getattr(model, "reads_bos", False)


def padded(sentences: Iterable, dictionary, bos: bool):
    """Inputs </s> w₁ … wₙ and targets w₁ … wₙ </s>, ``(B, T)`` each, padded on the right.

    With ``bos``, ``(B, 1+T)``: <s> before the inputs, and padding before the targets.
    """
    from torch.nn.functional import pad
    from torch.nn.utils.rnn import pad_sequence

    target = pad_sequence(list(sentences), batch_first=True, padding_value=dictionary.pad())
    source = target.roll(1, 1)
    source[:, 0] = dictionary.eos()
    if bos:
        source = pad(source, (1, 0), value=dictionary.bos())
        target = pad(target, (1, 0), value=dictionary.pad())
    return source, target


def read_sentences(
    data: str | os.PathLike, subset: str, dictionary, remedy: str = "check the folder and --subset"
) -> list:
    """The sentences of a binarised split, each a tensor that ends with ``</s>``.

    Args:
        data: the folder, or that of ``casrnn prepare``.
        subset: the split.
        dictionary: the folder's dictionary.
        remedy: the end of the error message.

    Raises:
        UserError: there is no such split.
    """
    from fairseq.data import data_utils

    sentences = data_utils.load_indexed_dataset(str(binarised_folder(data) / subset), dictionary)
    if sentences is None:
        raise UserError(f"there is no '{subset}' in {data}; {remedy}")
    return [sentence.long().clone() for sentence in sentences]  # not views of the mapped file

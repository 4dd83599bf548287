"""Subword units by SentencePiece: fairseq's ``--bpe sentencepiece`` reads the model."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_casrnn.errors import UserError

NAME = "sentencepiece.model"  # in the folder of the text


def learn_pieces(lines: Iterable[str], size: int) -> bytes:
    """A unigram model (Kudo 2018) of ``size`` pieces, fewer where the text is too small for them.

    Text is taken as it is: no normalisation, and every character is covered.

    Raises:
        UserError: there are more different characters.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            normalization_rule_name="identity",
            num_threads=1,  # the result shall not depend on it
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).rpartition("] ")[2] or str(error)
        raise UserError(
            f"SentencePiece finds no {size} pieces in the training text ({reason}); give "
            "--sentencepiece another number"
        ) from None
    return model.getvalue()


def apply_pieces(lines: Sequence[str], model: bytes) -> list[str]:
    """The pieces of each line, with a space between two; ▁ begins a word."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [" ".join(pieces) for pieces in processor.encode(list(lines), out_type=str)]


def find_model(data_bin: Path) -> Path | None:
    """The model that belongs to a folder of binarised data: in it, or in ``text`` beside it."""
    for folder in (data_bin, data_bin / ".." / "text"):
        if (folder / NAME).is_file():
            return folder / NAME
    return None

"""Subword units by SentencePiece, for fairseq's ``--bpe sentencepiece``."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_casrnn.errors import UserError

SENTENCEPIECE = "sentencepiece.model"  # in the folder of the text


def learn_pieces(lines: Iterable[str], size: int) -> bytes:
    """Train a unigram model (Kudo 2018) with at most ``size`` pieces.

    The text is not normalised, and every character is covered. Prints how many pieces were found if
    there are fewer.

    Raises:
        UserError: the text has more than ``size`` different characters.
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
            num_threads=1,  # the result depends on it
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).rpartition("] ")[2] or str(error)
        raise UserError(
            f"SentencePiece cannot find {size} pieces in the training text ({reason}); give "
            "--sentencepiece another number"
        ) from None
    learnt = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).get_piece_size()
    if learnt < size:
        print(f"learnt {learnt} pieces of SentencePiece; the training text is too small for {size}")
    return model.getvalue()


def apply_pieces(lines: Sequence[str], model: bytes) -> list[str]:
    """The pieces of each line, separated by spaces; ▁ marks the start of a word."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [" ".join(pieces) for pieces in processor.encode(list(lines), out_type=str)]


def find_model(data_bin: Path) -> Path | None:
    """The model of a folder of binarised data, in it or in ``text`` beside it; None if missing."""
    for folder in (data_bin, data_bin / ".." / "text"):
        if (folder / SENTENCEPIECE).is_file():
            return folder / SENTENCEPIECE
    return None

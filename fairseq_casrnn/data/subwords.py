"""Subword units: byte-pair encoding by subword-nmt, and SentencePiece."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_casrnn.data.prepared import MANIFEST
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError

# The files of the models, in the folder of the text.
BPE_CODES = "bpe.codes"
SENTENCEPIECE = "sentencepiece.model"
# The model's file, and fairseq's option for it, by fairseq's name of the units (--bpe).
UNITS = {
    "sentencepiece": (SENTENCEPIECE, "sentencepiece_model"),
    "subword_nmt": (BPE_CODES, "bpe_codes"),
}


def learn_joint_bpe(sides: Sequence[Iterable[str]], operations: int, codes_path: Path) -> None:
    """Learn at most ``operations`` merges on the concatenated sides of the training set.

    ``codes_path`` receives the merges in subword-nmt's format (fairseq's ``--bpe-codes``). Prints
    how many there are if there are fewer.

    Raises:
        UserError: the text has no word of two characters, so there is nothing to merge.
    """
    from subword_nmt.learn_bpe import learn_bpe

    text = [line + "\n" for side in sides for line in side]
    # Hide its progress bar and its note that it stopped early.
    quiet = contextlib.redirect_stderr(io.StringIO())
    with quiet, open(codes_path, "w", encoding="utf-8") as codes:
        try:
            learn_bpe(text, codes, operations)
        except ValueError:
            raise UserError("the training text is too small for byte-pair encoding") from None
    learnt = len(read_lines(codes_path)) - 1  # the first line is the version
    if learnt < operations:
        print(f"learnt {learnt} BPE merges; the training text is too small for {operations}")


def apply_bpe(lines: Iterable[str], codes_path: str | Path) -> list[str]:
    """Split the words of each line into subword units; all but a word's last end in ``@@``."""
    merges = load_bpe_codes(codes_path)
    return [merges.process_line(line) for line in lines]


def load_bpe_codes(codes: str | os.PathLike):
    """Load subword-nmt's merges from the file ``codes``.

    Raises:
        UserError: the file does not exist or holds no merges.
    """
    from subword_nmt.apply_bpe import BPE

    try:
        with (
            open(codes, encoding="utf-8-sig") as merges,
            contextlib.redirect_stderr(io.StringIO()),
        ):
            return BPE(merges)
    except OSError as error:
        raise UserError(f"cannot read the BPE codes {codes}: {error.strerror}") from error
    except (ValueError, SystemExit):  # subword-nmt exits at a malformed line
        raise UserError(f"{codes} holds no merges of subword-nmt; check --bpe-codes") from None


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


def find_units(data_bin: Path) -> tuple[str, Path]:
    """The name in UNITS of binarised data's subword units, and the model, there or in ``../text``.

    For data in words, the name is empty. A packed model has all its files in its own folder, which
    is a temporary one, so ``../text`` is not its own.
    """
    packed = (data_bin / MANIFEST).is_file()
    folders = [data_bin] if packed else [data_bin, data_bin / ".." / "text"]
    for units, (name, _) in UNITS.items():
        for folder in folders:
            if (folder / name).is_file():
                return units, folder / name
    return "", data_bin

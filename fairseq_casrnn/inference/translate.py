"""``casrnn translate``: translate lines of text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_casrnn.console.program import captured_log
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.inference.deferred_imports import deferred_imports
from fairseq_casrnn.inference.line_command import (
    add_input_arguments,
    check_input,
    chunks,
    input_name,
    numbered_lines,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Translate lines of raw text. It is tokenised and split into subword units like the "
        "training text, and the translation is detokenised. Empty lines stay empty."
    )
    add_input_arguments(parser)
    parser.add_argument(
        "--data", type=Path, help="folder with dict.LANG.txt (default: the training data)"
    )
    parser.add_argument("--beam", type=int, default=10, help="beam size (default: 10)")


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if the checkpoint, an option or the file is invalid."""
    check_input(args)
    check_at_least(1, beam=args.beam)
    with deferred_imports():
        from fairseq_casrnn.inference.loading import load_translator

        hub = load_translator(args.path, args.data)
    hub.cfg.dataset.batch_size = args.batch_size
    for chunk in chunks(numbered_lines(args.input), args):
        texts = [line.strip() for _, line in chunk]
        long = first_too_long(hub, texts)
        with captured_log():
            found = hub.translate(texts[:long], beam=args.beam)
        sys.stdout.writelines(f"{text}\n" for text in found)
        sys.stdout.flush()
        if long is not None:
            raise UserError(
                f"{input_name(args.input)}, line {chunk[long][0]} has more than the "
                f"{hub.max_positions[0]} tokens that the model accepts; split it"
            )


def first_too_long(hub: Any, texts: Sequence[str]) -> int | None:
    """The first text with more tokens than the model accepts, or None."""
    most = hub.max_positions[0]
    for place, text in enumerate(texts):
        # Each token but </s> has at least one character.
        if len(text) >= most and len(hub.encode(text)) > most:
            return place
    return None

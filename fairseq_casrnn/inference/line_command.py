"""Shared parts of the commands that process lines of text: predict, tag, translate."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from fairseq_casrnn.data.text import text_lines
from fairseq_casrnn.data.words import TOKENIZERS, words
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.inference.deferred_imports import deferred_imports
from fairseq_casrnn.inference.loading import load_hub
from fairseq_casrnn.kinds import Kind

CHUNK = 1000  # default number of lines that are read before the first output
T = TypeVar("T")


LINES = "file with one text per line, not a table"  # help of --input


def add_model_arguments(
    parser: argparse.ArgumentParser, description: str, form: str = LINES
) -> None:
    """Add the options of ``predict`` and ``tag``; ``form`` is the format of the input file."""
    parser.description = description
    add_input_arguments(parser, form)
    parser.add_argument("--data", help="folder with input0/dict.txt and label/dict.txt")
    parser.add_argument(
        "--encoder-embed-path",
        metavar="FILE",
        help="the word vectors used in training, for words that the training data does not have",
    )
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        help="tokenizer for the text (default: as for the training data)",
    )


def add_input_arguments(parser: argparse.ArgumentParser, form: str = LINES) -> None:
    """Add the options for the model, its input and the sizes of batches.

    Args:
        parser: the command's parser.
        form: format of the input file, for the help.
    """
    parser.add_argument(
        "--path",
        required=True,
        type=Path,
        help="file from casrnn pack, checkpoint, or run folder",
    )
    parser.add_argument("--input", default="-", help=f"{form} (default: standard input)")
    parser.add_argument(
        "--batch-size", type=int, default=32, help="number of sentences in a batch (32)"
    )
    parser.add_argument(
        "--buffer-size",
        type=int,
        metavar="N",
        help="number of sentences to read before processing them; 1 for interactive use "
        f"({CHUNK}, or 1 from a terminal)",
    )


def check_input(args: argparse.Namespace) -> None:
    """Raise UserError if a size is not positive or standard input is closed."""
    check_at_least(1, batch_size=args.batch_size, buffer_size=args.buffer_size)
    if args.input == "-" and sys.stdin is None:
        raise UserError("standard input is closed; name a file with --input")


def load_from_arguments(kind: Kind, args: argparse.Namespace, **options):
    """Load the model that a command line asks for.

    Args:
        kind: :data:`.kinds.CLASSIFIER` or :data:`.kinds.TAGGER`.
        args: options of :func:`add_model_arguments`.
        options: options of the task that replace the checkpoint's.

    Raises:
        UserError: an option or the checkpoint is invalid.
    """
    check_input(args)
    if args.tokenizer is not None:
        options["raw_tokenizer"] = args.tokenizer
    if args.encoder_embed_path is not None:
        options["encoder_embed_path"] = args.encoder_embed_path
    with deferred_imports():
        hub = load_hub(kind, args.path, args.data, **options)
        words("", hub.task.tokenizer)  # import the tokenizer
    return hub


def chunks(items: Iterable[T], args: argparse.Namespace) -> Iterator[list[T]]:
    """Chunks of ``--buffer-size`` items, to be processed together.

    If reading an item fails, the items before it are yielded before the error is raised.
    """
    terminal = args.input == "-" and sys.stdin.isatty()
    size = args.buffer_size or (1 if terminal else CHUNK)
    chunk: list[T] = []
    try:
        for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except UserError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def numbered_lines(name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines of a file or of standard input, without their ends. Raises UserError."""
    try:
        stream = sys.stdin.buffer if name == "-" else open(name, "rb")  # noqa: SIM115
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}); check --input") from None
    with stream:
        yield from enumerate(text_lines(stream, input_name(name)), start=1)


class UnknownWordWarning:
    """Warns once, on standard error, if a line is a single unknown word.

    Args:
        task: the model's task.
        name: name of the input.
    """

    def __init__(self, task, name: str):
        self.task, self.name = task, input_name(name)
        self.done = task.tokenizer == "character"  # then such a line is a single character

    def check(self, number: int, texts: Iterable[str]) -> None:
        """Check the texts of a line."""
        for text in () if self.done else texts:
            if len(text.split()) == 1 and self.task.is_single_unknown_word(text):
                print(
                    f"warning: {self.name}, line {number} is a single word that the model does not "
                    "know, and others may be, too; text without spaces, such as Chinese, needs "
                    "--tokenizer character, here and in casrnn prepare",
                    file=sys.stderr,
                )
                self.done = True
                return


def input_name(name: str) -> str:
    """The name of the input, for messages."""
    return "standard input" if name == "-" else name

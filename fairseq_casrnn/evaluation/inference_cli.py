"""What the commands share that put lines of text to a model: predict, tag, translate."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from fairseq_casrnn.data.command import captured_log
from fairseq_casrnn.data.text import text_lines
from fairseq_casrnn.data.words import TOKENIZERS, words
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.deferred_imports import deferred_imports

CHUNK = 1000  # lines that are read before the first answer
T = TypeVar("T")


def add_asking_arguments(parser: argparse.ArgumentParser, answers: str) -> None:
    """Options of both, and a description of what the ``answers`` are."""
    parser.description = answers
    add_input_arguments(parser)
    parser.add_argument("--data", help="folder with input0/dict.txt and label/dict.txt")
    parser.add_argument(
        "--encoder-embed-path",
        metavar="FILE",
        help="word vectors, those of the training: words that the training data lacks get theirs",
    )
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        help="how to split the text into words (default: as the data of the training says)",
    )


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model reads what, and how much of it at once."""
    parser.add_argument(
        "--path",
        required=True,
        type=Path,
        help="file from casrnn pack, checkpoint, or run folder",
    )
    parser.add_argument("--input", default="-", help="input file (default: standard input)")
    parser.add_argument(
        "--batch-size", type=int, default=32, help="sentences that are computed at once (32)"
    )
    parser.add_argument(
        "--buffer-size",
        type=int,
        metavar="N",
        help="sentences that are read before they are answered; 1 answers a program that waits "
        f"({CHUNK}, from a terminal 1)",
    )


def check_input(args: argparse.Namespace) -> None:
    """Raise UserError for sizes that are not positive, or where there is nothing to read."""
    for name in ("batch_size", "buffer_size"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} is {value}; it must be at least 1")
    if args.input == "-" and sys.stdin is None:
        raise UserError("standard input is closed; name a file with --input")


def asked(kind: str, args: argparse.Namespace, **options):
    """The model of a command line, with ``options`` of its task.

    Raises:
        UserError: a batch without lines, nothing to read, or a bad checkpoint.
    """
    check_input(args)
    if args.tokenizer is not None:
        options["raw_tokenizer"] = args.tokenizer
    if args.encoder_embed_path is not None:
        options["encoder_embed_path"] = args.encoder_embed_path
    with deferred_imports():
        hub = load(kind, args.path, args.data, **options)
        words("", hub.task.tokenizer)  # imports it
    return hub


def load(kind: str, path: Path, data: str | None, **options):
    """The model, for use from Python.

    Args:
        kind: "classifier" or "tagger".
        path: the checkpoint, or its folder.
        data: folder of the dictionaries, where it is not beside the checkpoint.
        options: those of the model's task to be replaced.

    Raises:
        UserError: where what goes wrong can be explained.
    """
    from fairseq_casrnn import register

    register()
    from fairseq_casrnn.models.sentence_hub import SentenceHub
    from fairseq_casrnn.models.tagger_hub import TaggerHub

    hub = {"classifier": SentenceHub, "tagger": TaggerHub}[kind]
    with captured_log():
        return hub.load(path, data=data, **options)


def chunks(items: Iterable[T], args: argparse.Namespace) -> Iterator[list[T]]:
    """Items to be answered together: ``--buffer-size``, by default one where a terminal asks."""
    terminal = args.input == "-" and sys.stdin.isatty()
    size = args.buffer_size or (1 if terminal else CHUNK)
    items = iter(items)
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def lines(name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines of a file or of standard input. Raises UserError, see :func:`read`."""
    return enumerate(read(name), start=1)


def read(name: str) -> Iterator[str]:
    """Lines of a file or of standard input, without their ends. Raises UserError."""
    try:
        stream = sys.stdin.buffer if name == "-" else open(name, "rb")  # noqa: SIM115
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}); check --input") from None
    with stream:
        yield from text_lines(stream, input_name(name))


class UnknownLines:
    """Says once, on standard error, where a line is a single word that the model does not know.

    Args:
        task: of the model.
        name: of the input.
    """

    def __init__(self, task, name: str):
        self.task, self.name = task, input_name(name)
        self.said = task.tokenizer == "character"  # then such a line is a single character

    def check(self, number: int, texts: Iterable[str]) -> None:
        """Look at the texts of a line."""
        for text in () if self.said else texts:
            if len(text.split()) == 1 and self.task.is_single_unknown_word(text):
                print(
                    f"warning: {self.name}, line {number} is a single word that the model does not "
                    "know, and others may be; text without spaces between words, such as Chinese, "
                    "is split by --tokenizer character, here and in casrnn prepare",
                    file=sys.stderr,
                )
                self.said = True
                return


def input_name(name: str) -> str:
    """What ``--input`` means, for messages."""
    return "standard input" if name == "-" else name

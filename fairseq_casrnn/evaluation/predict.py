"""``casrnn predict``: classes for lines of text."""

from __future__ import annotations

import argparse
import codecs
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from fairseq_casrnn.data.command import captured_log
from fairseq_casrnn.errors import UserError

CHUNK = 1000  # lines read before their answers are written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Write LABEL<TAB>PROBABILITY for each line of text, or, for models of sentence pairs, for "
        "each line SENTENCE<TAB>SENTENCE. An empty line is an empty sentence; in a single one, a "
        f"tab is a space. Answers come after each {CHUNK} lines, from a terminal after each line."
    )
    parser.add_argument("--path", required=True, type=Path, help="checkpoint, or its folder")
    parser.add_argument("--input", default="-", help="file to read (default: standard input)")
    parser.add_argument("--data", help="folder with input0/dict.txt and label/dict.txt")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--all", action="store_true", help="LABEL:PROBABILITY of every class, tab-separated"
    )


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError for a bad checkpoint, file or line."""
    if args.batch_size < 1:
        raise UserError(f"--batch-size is {args.batch_size}; it must be at least 1")
    if args.input == "-" and sys.stdin is None:
        raise UserError("standard input is closed; name a file with --input")
    hub = load(args.path, args.data)
    lines = read(args.input)
    numbered = enumerate(lines, start=1)
    size = 1 if args.input == "-" and sys.stdin.isatty() else CHUNK
    while chunk := list(itertools.islice(numbered, size)):
        name = "standard input" if args.input == "-" else args.input
        items = [item(line, hub.task.pairs, name, number) for number, line in chunk]
        with captured_log():
            rows = hub.probabilities(items, args.batch_size).tolist()
        for row in rows:
            sys.stdout.write(answer(row, hub.classes, args.all) + "\n")
        sys.stdout.flush()


def load(path: Path, data: str | None):
    """The model. Raises UserError where what goes wrong can be explained."""
    from fairseq_casrnn import register

    register()
    from fairseq_casrnn.models.sentence_hub import SentenceHub

    with captured_log():
        return SentenceHub.load(path, data=data)


def read(name: str) -> Iterator[str]:
    """Lines of a file or of standard input, without their ends. Raises UserError."""
    try:
        stream = sys.stdin.buffer if name == "-" else open(name, "rb")  # noqa: SIM115
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}); check --input") from None
    with stream:
        for number, line in enumerate(stream, start=1):
            try:
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                where = "standard input" if name == "-" else name
                raise UserError(
                    f"{where}, line {number} is not valid UTF-8; convert it to UTF-8"
                ) from None


def item(line: str, pairs: bool, name: str, number: int):
    """A sentence or a pair. Raises UserError for a line that is no pair."""
    if not pairs:
        return line
    columns = line.split("\t")
    if len(columns) != 2:
        raise UserError(
            f"{name}, line {number} has {len(columns)} column(s); this model compares two "
            "sentences, so write SENTENCE<TAB>SENTENCE"
        )
    return tuple(columns)


def answer(row: list[float], classes: list[str], every: bool) -> str:
    """A line of output."""
    if every:
        return "\t".join(f"{name}:{p:.4f}" for name, p in zip(classes, row, strict=True))
    best = max(range(len(row)), key=row.__getitem__)
    return f"{classes[best]}\t{row[best]:.4f}"

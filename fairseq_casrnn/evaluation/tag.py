"""``casrnn tag``: tags for the words of lines of text."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from fairseq_casrnn.data.command import captured_log
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.predict import CHUNK, read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Write WORD<TAB>TAG for each word of each line of text, and an empty line after each "
        f"sentence. Answers come after each {CHUNK} lines, from a terminal after each line."
    )
    parser.add_argument("--path", required=True, type=Path, help="checkpoint, or its folder")
    parser.add_argument("--input", default="-", help="file to read (default: standard input)")
    parser.add_argument("--data", help="folder with input0/dict.txt and label/dict.txt")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--tokenizer",
        help="how to split the text into words: space, whitespace, clitics, moses or penn "
        "(default: as the data of the training says)",
    )
    parser.add_argument(
        "--inline", action="store_true", help="a line WORD/TAG WORD/TAG … for each line instead"
    )


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError for a bad checkpoint, file or line."""
    if args.batch_size < 1:
        raise UserError(f"--batch-size is {args.batch_size}; it must be at least 1")
    if args.input == "-" and sys.stdin is None:
        raise UserError("standard input is closed; name a file with --input")
    hub = load(args.path, args.data, **({"tokenizer": args.tokenizer} if args.tokenizer else {}))
    lines = read(args.input)
    size = 1 if args.input == "-" and sys.stdin.isatty() else CHUNK
    while chunk := list(itertools.islice(lines, size)):
        with captured_log():
            sentences = hub.tag(chunk, args.batch_size)
        for sentence in sentences:
            if args.inline:
                sys.stdout.write(" ".join(f"{word}/{tag}" for word, tag in sentence) + "\n")
            else:
                sys.stdout.write("".join(f"{word}\t{tag}\n" for word, tag in sentence) + "\n")
        sys.stdout.flush()


def load(path: Path, data: str | None, **overrides):
    """The model. Raises UserError where what goes wrong can be explained."""
    from fairseq_casrnn import register

    register()
    from fairseq_casrnn.models.tagger_hub import TaggerHub

    with captured_log():
        return TaggerHub.load(path, data=data, **overrides)

"""``casrnn tag``: tags for the words of lines of text."""

from __future__ import annotations

import argparse
import sys

from fairseq_casrnn.data.command import captured_log
from fairseq_casrnn.evaluation.inference_cli import add_asking_arguments, asked, chunks
from fairseq_casrnn.evaluation.tags import without_spaces


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_asking_arguments(
        parser,
        "Write WORD<TAB>TAG for each word of each line of text, and an empty line after each "
        "sentence; white space inside a word, such as a no-break space, becomes _.",
    )
    parser.add_argument(
        "--unconstrained-tags",
        action="store_true",
        help="also tags that the scheme of spans forbids, such as I-PER after O",
    )
    parser.add_argument(
        "--inline", action="store_true", help="a line WORD/TAG WORD/TAG … for each line instead"
    )


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError for a bad checkpoint, file or line."""
    hub = asked("tagger", args, unconstrained_tags=args.unconstrained_tags)
    for chunk in chunks(args.input):
        with captured_log():
            sentences = hub.tag([line for _, line in chunk], args.batch_size)
        for words in sentences:
            sentence = [(without_spaces(word), tag) for word, tag in words]
            if args.inline:
                sys.stdout.write(" ".join(f"{word}/{tag}" for word, tag in sentence) + "\n")
            else:
                sys.stdout.write("".join(f"{word}\t{tag}\n" for word, tag in sentence) + "\n")
        sys.stdout.flush()

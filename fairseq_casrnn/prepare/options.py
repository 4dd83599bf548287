"""Options of ``casrnn prepare`` that all kinds of data share."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_casrnn.data.folder import add_output_arguments
from fairseq_casrnn.data.readers import add_split_seed
from fairseq_casrnn.data.text import LANGUAGE
from fairseq_casrnn.errors import UserError

TOKENIZERS = ("penn", "moses", "whitespace", "character")
ENGLISH = "en"


def add_options(
    parser: argparse.ArgumentParser,
    form: str,
    use: str = "text is split into words, here and when predicting",
    at_random: bool = True,
) -> None:
    """Add the options for files, splits and tokenizers.

    Args:
        parser: the command's parser.
        form: format of the files, for the help.
        use: use of the tokenizer, for the help.
        at_random: whether the part of ``--train`` that is held out is random.
    """
    parser.set_defaults(words_of=None)
    parser.add_argument("--train", required=True, type=Path, help=form)
    for name in ("valid", "test"):
        part = "a random tenth" if at_random else "lines at the end"
        text = f"the same for {name} (default: {part} of --train)"
        parser.add_argument(f"--{name}", type=Path, help=text)
    if at_random:
        add_split_seed(parser)
    add_output_arguments(parser)
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        default="penn",
        help=f"how {use}: penn (Penn Treebank conventions, for English), moses (Moses' rules for "
        "--language), whitespace, or character (each character separately, for Chinese or "
        "Japanese) (default: penn)",
    )
    parser.add_argument(
        "--language",
        default=ENGLISH,
        help="language for --tokenizer moses: en, de, … (default: en)",
    )
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="lower-case words (default: %(default)s)",
    )
    parser.add_argument(
        "--min-count",
        type=int,
        default=1,
        help=(
            "words that occur less often in --train become <unk> (default: 1; for language "
            "models 2)"
        ),
    )


def add_sentencepiece(
    parser: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup, instead: str
) -> None:
    """Add ``--sentencepiece``; ``instead`` names the units that it replaces."""
    parser.add_argument(
        "--sentencepiece",
        type=int,
        metavar="N",
        help=f"use a SentencePiece model of N pieces instead of {instead}; it is trained on the "
        "training text and does not need spaces between words",
    )


def check_options(args: argparse.Namespace) -> None:
    """Raise UserError if a file is given twice, or the language is invalid or has no effect."""
    given = [path.resolve() for path in (args.train, args.valid, args.test) if path]
    if len(set(given)) < len(given):
        raise UserError(
            "--train, --valid and --test must be different files; if you omit --valid or --test, "
            "a part of --train is held out"
        )
    if not LANGUAGE.fullmatch(args.language):
        raise UserError(f"--language is {args.language}; give a code such as en or de")
    if args.language != ENGLISH and args.tokenizer != "moses":
        raise UserError(
            f"--language {args.language} is for --tokenizer moses, and no other uses it; give that "
            "one, or drop --language"
        )

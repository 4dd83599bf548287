"""What the readers of corpora share: finding and reading files, options, the command line.

A reader is a module with ``main = command(…)``; docs/recipes.md shows one.
"""

from __future__ import annotations

import argparse
import functools
import io
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from fairseq_casrnn.data.command import Parser, run_main
from fairseq_casrnn.data.corpora import Corpus, prepare
from fairseq_casrnn.data.text import read_bytes, text_lines
from fairseq_casrnn.data.words import TOKENIZERS
from fairseq_casrnn.errors import UserError

GIVEN = object()  # the tokenizer of corpora whose words are separate already
Options = Callable[[argparse.ArgumentParser], None]


def command(
    description: str,
    read: Callable[[argparse.Namespace], Corpus],
    where: str = "",
    options: Options = lambda parser: None,
    tokenizer: str | object | Callable[[argparse.Namespace], str] | None = "space",
    each: Callable[[argparse.Namespace], Iterable[argparse.Namespace]] = lambda args: [args],
) -> Callable[..., int]:
    """The command line of a reader, ``main(argv)``, which returns the exit status.

    Args:
        description: what its --help says.
        read: reads a corpus from ``args.raw``, the folder of its files.
        where: where to get these.
        options: adds the reader's own options to the parser.
        tokenizer: how text is split into words unless ``--tokenizer`` says otherwise; a function
            that chooses it by the other options; :data:`GIVEN` if ``read`` gives words.
        each: the options of each corpus, where one call prepares several.
    """

    def main(argv: list[str] | None = None) -> int:
        parser = Parser(prog=program_of(read), description=description)
        hint = f"; {where}" if where else ""
        parser.add_argument("--raw", required=True, type=Path, help=f"folder of the files{hint}")
        options(parser)
        add_arguments(parser, None if callable(tokenizer) else tokenizer)
        args = parser.parse_args(argv)
        if args.tokenizer is None and callable(tokenizer):
            args.tokenizer = tokenizer(args)

        def run() -> None:
            for one in each(args):
                prepare(functools.partial(read, one), one)

        return run_main(run)

    return main


def program_of(function: Callable) -> str:
    """How the module of a function is called. Its last part tells prepared folders apart."""
    module = sys.modules[function.__module__]
    spec = getattr(module, "__spec__", None)
    return f"python -m {spec.name}" if spec else Path(str(module.__file__)).stem


def add_arguments(
    parser: argparse.ArgumentParser,
    tokenizer: str | object | None = "space",
    lowercase: bool = True,
    raw: str = "penn",
) -> None:
    """Options shared by all corpora; a corpus without ``tokenizer`` chooses it after parsing.

    With :data:`GIVEN` there is no choice. ``raw`` is how text is to be split that is not, as the
    files of ``tokenizer`` space are.
    """
    parser.set_defaults(raw_tokenizer=raw, words_of=None)
    parser.add_argument("--out", required=True, type=Path, help="output folder")
    parser.add_argument("--force", action="store_true", help="prepare again and replace the output")
    if tokenizer is GIVEN:
        parser.set_defaults(tokenizer="space")
    else:
        parser.add_argument(
            "--tokenizer",
            choices=TOKENIZERS,
            default=tokenizer,
            help=f"default: {tokenizer or 'as the corpus is written'}",
        )
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        default=lowercase,
        help="lower-case the text (default: %(default)s)",
    )
    parser.add_argument(
        "--min-count",
        type=int,
        default=1,
        help="training words that occur less often become <unk> (default: %(default)s)",
    )
    parser.add_argument(
        "--vocabulary",
        choices=("train", "all"),
        default="train",
        help="words that get an embedding: those of the training set, or of all splits, which is "
        "of use with pretrained vectors (default: %(default)s)",
    )


def add_words_of(parser: argparse.ArgumentParser) -> None:
    """``--words-of``, for corpora that others are mixed into."""
    parser.add_argument(
        "--words-of",
        type=Path,
        metavar="DATA-BIN",
        help="give the words of another prepared corpus an embedding, too: of one for --mix",
    )


def add_zero_digits(parser: argparse.ArgumentParser) -> None:
    """The option that all tagged corpora share."""
    parser.add_argument(
        "--zero-digits",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read every digit of a word as 0, but not in its spelling (default: %(default)s)",
    )


def decode_mixed(line: bytes) -> str:
    """A line of a text of no one encoding: UTF-8, else Windows-1252, else Latin-1."""
    for encoding in ("utf-8", "cp1252"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1")


def read_mixed(path: Path) -> list[str]:
    """Lines of a file, each in an encoding of its own.

    Raises:
        UserError: it is missing, has nothing but blank lines, is UTF-16 or UTF-32, or no text.
    """
    data = read_bytes(path)
    if b"\0" in data:
        number = data[: data.index(b"\0")].count(b"\n") + 1
        raise UserError(
            f"{path}, line {number} has a zero byte: UTF-16, or no text; save it as UTF-8"
        )
    lines = list(text_lines(io.BytesIO(data), path, decode_mixed))
    if not any(line.strip() for line in lines):
        raise UserError(f"{path} is empty; a corpus with at least one sentence is needed")
    return lines


def find(raw: Path, names: Sequence[str], where: str) -> Path:
    """The first of ``names`` that is a file in ``raw``.

    Raises:
        UserError: there is none; ``where`` says where to get it.
    """
    if not raw.is_dir():
        raise UserError(f"{raw} is not a folder; {where} and name its folder with --raw")
    for name in names:
        if (raw / name).is_file():
            return raw / name
    raise UserError(f"{raw} holds no {' nor '.join(names)}; {where}")


def hold_out(examples: list, count: int, seed: int) -> tuple[list, list]:
    """``(rest, held out)``, chosen at random by ``seed``, both in the order they had.

    Raises:
        UserError: less than one or all would be held out.
    """
    if not 0 < count < len(examples):
        raise UserError(
            f"{count} of {len(examples)} sentences cannot be held out for validation; choose "
            "another --valid-size"
        )
    chosen = set(random.Random(seed).sample(range(len(examples)), count))
    rest = [example for i, example in enumerate(examples) if i not in chosen]
    return rest, [examples[i] for i in sorted(chosen)]


def add_hold_out(parser: argparse.ArgumentParser, size: int) -> None:
    """``--valid-size`` and ``--split-seed``."""
    parser.add_argument(
        "--valid-size",
        type=int,
        default=size,
        help="training examples held out for validation (default: %(default)s)",
    )
    parser.add_argument(
        "--split-seed", type=int, default=1, help="seed of the held-out set (default: 1)"
    )


def read_blocks(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[list[str]]]]:
    """Sentences of a file of columns, separated by blank lines: number of the first line, rows.

    Args:
        path: the file; its columns are separated by spaces or tabs.
        columns: what they are.

    Raises:
        UserError: a line with another number of columns, or a file that cannot be read.
    """
    rows: list[list[str]] = []
    for number, line in enumerate([*read_mixed(path), ""], start=1):
        cells = line.split()
        if cells and len(cells) != len(columns):
            raise UserError(
                f"{path}, line {number} has {len(cells)} columns instead of {len(columns)} "
                f"({', '.join(columns)}); give the official file, or one in its layout"
            )
        if cells:
            rows.append(cells)
        elif rows:
            yield number - len(rows), rows
            rows = []

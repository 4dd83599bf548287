"""Shared parts of the corpus readers: finding and reading files, options, the command line.

A reader is a module with ``main = command(…)``; docs/recipes.md has an example.
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fairseq_casrnn.console.program import Parser, run_main
from fairseq_casrnn.data.folder import add_output_arguments
from fairseq_casrnn.data.labelled import Corpus, Example, prepare
from fairseq_casrnn.data.text import read_bytes, read_lines, text_lines
from fairseq_casrnn.data.words import TOKENIZERS
from fairseq_casrnn.errors import UserError, counted, quoted

GIVEN = object()  # instead of a tokenizer: the corpus consists of words
Options = Callable[[argparse.ArgumentParser], None]


def command(
    description: str,
    read: Callable[[argparse.Namespace], Corpus],
    where: str = "",
    options: Options = lambda parser: None,
    tokenizer: str | object | Callable[[argparse.Namespace], str] = "space",
    each: Callable[[argparse.Namespace], Iterable[argparse.Namespace]] = lambda args: [args],
) -> Callable[..., int]:
    """The command line of a reader: ``main(argv)``, which returns the exit status.

    Args:
        description: description in --help.
        read: reads the corpus from ``args.raw``, the folder of its files.
        where: where to get these files.
        options: adds the reader's own options to the parser.
        tokenizer: default of ``--tokenizer``, or a function that returns it for the other options;
            :data:`GIVEN` if ``read`` returns words.
        each: returns the options of each corpus if one call prepares several.
    """

    def main(argv: list[str] | None = None) -> int:
        parser = Parser(prog=program_of(read), description=description)
        hint = f"; {where}" if where else ""
        parser.add_argument("--raw", required=True, type=Path, help=f"folder of the files{hint}")
        options(parser)
        add_arguments(parser, None if callable(tokenizer) else tokenizer)
        args = parser.parse_args(argv)

        def run() -> None:
            for one in each(args):
                if one.tokenizer is None and callable(tokenizer):
                    one.tokenizer = tokenizer(one)
                prepare(functools.partial(read, one), one)

        return run_main(run)

    return main


def program_of(function: Callable) -> str:
    """The command that runs the module of a function; prepared folders record it."""
    module = sys.modules[function.__module__]
    spec = getattr(module, "__spec__", None)
    return f"python -m {spec.name}" if spec else Path(str(module.__file__)).stem


def add_arguments(
    parser: argparse.ArgumentParser, tokenizer: str | object | None = "space"
) -> None:
    """Add the options shared by all corpora.

    Args:
        parser: the parser.
        tokenizer: default of ``--tokenizer``; None if it is chosen after parsing; :data:`GIVEN` if
            there is no such option.
    """
    parser.set_defaults(raw_tokenizer="penn", words_of=None)  # "penn": if the corpus is tokenised
    add_output_arguments(parser)
    if tokenizer is GIVEN:
        parser.set_defaults(tokenizer="space")
    else:
        parser.add_argument(
            "--tokenizer",
            choices=TOKENIZERS,
            default=tokenizer,
            help=f"default: {tokenizer or 'depends on the corpus'}",
        )
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="lower-case the text (default: %(default)s)",
    )
    parser.add_argument(
        "--min-count",
        type=int,
        default=1,
        help="training words that occur less often become <unk> (default: %(default)s)",
    )
    add_vocabulary(parser)


def add_vocabulary(parser: argparse.ArgumentParser) -> None:
    """Add ``--vectors`` and ``--vocabulary``, which choose the words that get an embedding."""
    words = parser.add_mutually_exclusive_group()
    words.add_argument(
        "--vectors",
        type=os.path.abspath,  # training reads it, too, perhaps from another folder
        metavar="FILE",
        help="pretrained word vectors that a model will start from, in GloVe's or word2vec's text "
        "format: words that have one get an embedding, also if they are not in training",
    )
    words.add_argument(
        "--vocabulary",
        choices=("train", "all"),
        default="train",
        help="words that get an embedding: those of the training set, or of all splits, in which "
        "case no word is <unk> (default: %(default)s)",
    )


def add_zero_digits(parser: argparse.ArgumentParser) -> None:
    """Add ``--zero-digits``, for tagged corpora."""
    parser.add_argument(
        "--zero-digits",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read every digit as 0, except as a character of a word (default: %(default)s)",
    )


def decode_mixed(line: bytes) -> str:
    """Decode a line of a text with mixed encodings: UTF-8, else Windows-1252, else Latin-1."""
    for encoding in ("utf-8", "cp1252"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1")


def read_mixed(path: Path) -> list[str]:
    """The lines of a file, each decoded by :func:`decode_mixed`.

    Raises:
        UserError: the file is missing, empty or blank, or has zero bytes.
    """
    data = read_bytes(path)
    if b"\0" in data:
        number = data[: data.index(b"\0")].count(b"\n") + 1
        raise UserError(
            f"{path}, line {number} has a zero byte: it is UTF-16 or not text; save it as UTF-8"
        )
    lines = list(text_lines(io.BytesIO(data), path, decode_mixed))
    if not any(line.strip() for line in lines):
        raise UserError(f"{path} is empty; a corpus with at least one sentence is needed")
    return lines


def find(raw: Path, names: Sequence[str], where: str) -> Path:
    """The first of ``names`` that is a file in ``raw``.

    Raises:
        UserError: there is none; the message includes ``where``.
    """
    if not raw.is_dir():
        raise UserError(f"{raw} is not a folder; {where} and name its folder with --raw")
    for name in names:
        if (raw / name).is_file():
            return raw / name
    raise UserError(f"{raw} holds no {' nor '.join(names)}; {where}")


def malformed(path: Path, line: int, what: str) -> UserError:
    """The error of a line that is not as in the official file; ``what`` follows its number."""
    return UserError(f"{path}, line {line} {what}; give the official file, or one in its layout")


def hold_out(
    examples: list, count: int, seed: int, option: str = "--valid-size"
) -> tuple[list, list]:
    """Hold out ``count`` random examples; return ``(rest, held out)``, in their original order.

    Raises:
        UserError: none or all would be held out; the message names ``option``.
    """
    if not 0 < count < len(examples):
        raise UserError(
            f"{count} of {len(examples)} sentences cannot be held out; choose another {option}"
        )
    chosen = set(random.Random(seed).sample(range(len(examples)), count))
    rest = [example for i, example in enumerate(examples) if i not in chosen]
    return rest, [examples[i] for i in sorted(chosen)]


def add_hold_out(parser: argparse.ArgumentParser, size: int) -> None:
    """Add ``--valid-size`` and ``--split-seed``."""
    parser.add_argument(
        "--valid-size",
        type=int,
        default=size,
        help="training examples held out for validation (default: %(default)s)",
    )
    add_split_seed(parser)


def add_split_seed(parser: argparse.ArgumentParser, of: str = "the held-out set") -> None:
    """Add ``--split-seed``, the seed ``of`` what is chosen at random."""
    parser.add_argument("--split-seed", type=int, default=1, help=f"seed of {of} (default: 1)")


def read_blocks(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield the sentences of a file of columns: number of the first line, rows.

    Args:
        path: the file, with columns separated by spaces or tabs, and blank lines after sentences.
        columns: names of the columns, for messages.

    Raises:
        UserError: a line has another number of columns, or the file cannot be read.
    """
    rows: list[list[str]] = []
    for number, line in enumerate([*read_mixed(path), ""], start=1):
        cells = line.split()
        if cells and len(cells) != len(columns):
            names = ", ".join(columns)
            what = f"has {counted(len(cells), 'column')} instead of {len(columns)} ({names})"
            raise malformed(path, number, what)
        if cells:
            rows.append(cells)
        elif rows:
            yield number - len(rows), rows
            rows = []


def read_pairs(
    path: Path,
    columns: tuple[int, int, int],
    labels: Mapping[str, str],
    header: bool = True,
    width: int | None = None,
) -> list[Example]:
    """The pairs in a file.

    Args:
        path: tab-separated text, in which quotation marks have no special meaning.
        columns: positions of label, first sentence and second sentence.
        labels: the class of each label in the file.
        header: whether the first line has the names of the columns.
        width: required number of columns; None for any sufficient number.

    Raises:
        UserError: a line has another number of columns, or an unknown label.
    """
    lines = read_lines(path)
    examples = []
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if header and number == 1:
            if len(cells) > max(columns) and cells[columns[0]] in labels:
                raise malformed(path, 1, "is a pair, not the names of the columns")
            continue
        if not line.strip():
            continue
        if len(cells) <= max(columns) or (width is not None and len(cells) != width):
            what = f"has {counted(len(cells), 'column')} instead of {width or max(columns) + 1}"
            raise malformed(path, number, what)
        label, first, second = (cells[i] for i in columns)
        if label not in labels:
            raise UserError(
                f"{path}, line {number}: the label {quoted(label)} is not one of "
                f"{', '.join(labels)}; correct it"
            )
        examples.append(Example(labels[label], (first, second)))
    return examples

"""``casrnn tag``: tags for the words of lines of text, or the spans that they make."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence

from fairseq_casrnn.data.command import captured_log
from fairseq_casrnn.data.words import ASCII_SPACE
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.inference_cli import (
    UnknownLines,
    add_asking_arguments,
    asked,
    chunks,
    input_name,
    lines,
)
from fairseq_casrnn.evaluation.tags import without_spaces

CONLLU_ID = re.compile(r"[0-9]+")
FORMATS = {
    "columns": "WORD<TAB>TAG, and an empty line after each sentence (white space inside a word, "
    "such as a no-break space, becomes _)",
    "json": "a line of JSON for each sentence, with its words, their tags, probabilities and "
    "places in the line, and its spans",
    "spans": "LINE<TAB>START<TAB>END<TAB>TYPE<TAB>PROBABILITY<TAB>TEXT for each span, START and "
    "END in characters of the line from 0 on, END not included",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_asking_arguments(
        parser,
        "Tag the words of lines of text. The probability of a word's tag is the CRF's marginal, or "
        "the softmax's; that of a span is the least one of its words.",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="columns",
        help="; ".join(f"{name}: {text}" for name, text in FORMATS.items()) + " (default: columns)",
    )
    parser.add_argument(
        "--confidence", action="store_true", help="a third column with the tag's probability"
    )
    parser.add_argument(
        "--inline", action="store_true", help="a line WORD/TAG WORD/TAG … for each line instead"
    )
    parser.add_argument(
        "--input-format",
        choices=("text", "columns"),
        default="text",
        help="text: a sentence in each line; columns: a word in each, and a blank line after each "
        "sentence (text)",
    )
    parser.add_argument(
        "--word-column",
        type=int,
        metavar="N",
        help="of --input-format columns, that of the word (1; of CoNLL-U 2)",
    )
    parser.add_argument(
        "--unconstrained-tags",
        action="store_true",
        help="also tags that the scheme of spans forbids, such as I-PER after O",
    )


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError for a bad checkpoint, option, file or line."""
    check_options(args)
    hub = asked("tagger", args, unconstrained_tags=args.unconstrained_tags)
    if args.format == "spans":
        hub.check_spans()
    sentences = read_columns(args) if args.input_format == "columns" else lines(args.input)
    unknown = UnknownLines(hub.task, args.input)
    plain = args.format == "columns" and not args.confidence
    for chunk in chunks(sentences, args):
        for number, sentence in chunk:
            unknown.check(number, [sentence] if isinstance(sentence, str) else [])
        with captured_log():
            find = hub.tag if plain else hub.annotate  # which takes longer
            found = find([sentence for _, sentence in chunk], args.batch_size)
        for (number, sentence), words in zip(chunk, found, strict=True):
            line = sentence if isinstance(sentence, str) else " ".join(sentence)
            sys.stdout.write(answer(hub, words, line, number, args))
        sys.stdout.flush()


def check_options(args: argparse.Namespace) -> None:
    """Raise UserError for options that do not go together."""
    if args.format != "columns" and (args.inline or args.confidence):
        option = "--inline" if args.inline else "--confidence"
        raise UserError(f"{option} is for --format columns; drop one of them")
    if args.inline and args.confidence:
        raise UserError("--inline has no place for --confidence; drop one of them")
    if args.input_format == "text" and args.word_column is not None:
        raise UserError("--word-column is for --input-format columns; give that, too, or drop it")
    if args.input_format == "columns" and args.tokenizer is not None:
        raise UserError("--tokenizer is for text, and columns are words already; drop it")
    if args.word_column is not None and args.word_column < 1:
        raise UserError(f"--word-column is {args.word_column}; columns count from 1")


def answer(hub, words, line: str, number: int, args: argparse.Namespace) -> str:
    """What is written of a sentence: its words, its text, and the number of its line."""
    if args.format == "json":
        return as_json(hub, words, line) + "\n"
    if args.format == "spans":
        return "".join(
            f"{number}\t{span.start}\t{span.end}\t{span.type}\t{span.probability:.4f}\t"
            f"{' '.join(span.text.split())}\n"
            for span in hub.spans_of(words, line)
        )
    rows = [[without_spaces(word.text), word.tag] for word in words]
    if args.inline:
        return " ".join("/".join(row) for row in rows) + "\n"
    if args.confidence:
        rows = [[*row, f"{word.probability:.4f}"] for row, word in zip(rows, words, strict=True)]
    return "".join("\t".join(row) + "\n" for row in rows) + "\n"


def as_json(hub, words, line: str) -> str:
    """A sentence as JSON: ``text``, ``words`` and, where tags mark spans, ``spans``."""
    found = {"text": line, "words": [rounded(word) for word in words]}
    if hub.task.are_spans:
        found["spans"] = [rounded(span) for span in hub.spans_of(words, line)]
    return json.dumps(found, ensure_ascii=False)


def rounded(row) -> dict[str, object]:
    """The fields of a word or span."""
    return {**row._asdict(), "probability": round(row.probability, 4)}


def read_columns(args: argparse.Namespace) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, words) of each sentence of a file of columns.

    Tabs separate the columns of a sentence where one of its lines has a tab; then lines that begin
    with # and have none are comments. Else white space separates them.

    Raises:
        UserError: a line has no such column.
    """
    rows: list[tuple[int, str]] = []
    for number, line in lines(args.input):
        if line.strip():
            rows.append((number, line))
        elif words := words_of(rows, args):
            yield rows[0][0], words
            rows = []
        else:
            rows = []
    if words := words_of(rows, args):
        yield rows[0][0], words


def words_of(rows: Sequence[tuple[int, str]], args: argparse.Namespace) -> list[str]:
    """The words of a sentence's lines. Raises UserError for one that lacks the column."""
    tabs = any("\t" in line for _, line in rows)
    found = []
    for number, line in rows:
        if line.startswith("-DOCSTART-") or (tabs and line.startswith("#") and "\t" not in line):
            continue
        cells = line.split("\t") if tabs else [c for c in ASCII_SPACE.split(line) if c]
        conllu = tabs and len(cells) == 10
        if conllu and not CONLLU_ID.fullmatch(cells[0]) and cells[0][:1].isdigit():
            continue  # words written as one, or not written
        column = args.word_column or (2 if conllu and CONLLU_ID.fullmatch(cells[0]) else 1)
        if column > len(cells) or not cells[column - 1].strip():
            raise UserError(
                f"{input_name(args.input)}, line {number} has no word in column {column}; correct "
                "it, or choose another --word-column"
            )
        found.append(cells[column - 1].strip())
    return found

"""``casrnn tag``: tags of the words in lines of text, or the spans that they mark."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence

from fairseq_casrnn.console.program import captured_log
from fairseq_casrnn.data.columns import without_spaces
from fairseq_casrnn.data.text import COMMENT, DOCUMENT
from fairseq_casrnn.data.words import ASCII_SPACE
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.inference.line_command import (
    UnknownWordWarning,
    add_model_arguments,
    chunks,
    input_name,
    load_from_arguments,
    numbered_lines,
)
from fairseq_casrnn.kinds import TAGGER

CONLLU_ID = re.compile(r"[0-9]+")
FORMATS = {
    "columns": "WORD<TAB>TAG, and an empty line after each sentence (white space inside a word, "
    "such as a no-break space, becomes _)",
    "json": "a line of JSON for each sentence, with its words, their tags, probabilities and "
    "offsets in the line, and its spans",
    "spans": "LINE<TAB>START<TAB>END<TAB>TYPE<TAB>PROBABILITY<TAB>TEXT for each span, START and "
    "END in characters of the line, counting from 0, END exclusive (--input-format columns: LINE "
    "is that of the first word, and the words are joined by spaces)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_model_arguments(
        parser,
        "Tag the words in lines of text. The probability of a word's tag is the CRF's marginal or "
        "the softmax; that of a span is the minimum over its words.",
        "file with one sentence per line, or see --input-format",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="columns",
        help="; ".join(f"{name}: {text}" for name, text in FORMATS.items()) + " (default: columns)",
    )
    parser.add_argument(
        "--confidence",
        action="store_true",
        help="with --format columns: add a third column with the tag's probability",
    )
    parser.add_argument(
        "--inline", action="store_true", help="write WORD/TAG WORD/TAG … for each line instead"
    )
    parser.add_argument(
        "--input-format",
        choices=("text", "columns"),
        default="text",
        help="text: a sentence per line; columns: a word per line, and a blank line after each "
        "sentence (text)",
    )
    parser.add_argument(
        "--word-column",
        type=int,
        metavar="N",
        help="column of the word, for --input-format columns (1; 2 for CoNLL-U)",
    )
    parser.add_argument(
        "--unconstrained-tags",
        action="store_true",
        help="do not exclude tags that the spans' scheme forbids, such as I-PER after O",
    )


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if the checkpoint, an option, file or line is invalid."""
    check_options(args)
    hub = load_from_arguments(TAGGER, args, unconstrained_tags=args.unconstrained_tags)
    if args.format == "spans":
        hub.check_spans()
    sentences = read_columns(args) if args.input_format == "columns" else numbered_lines(args.input)
    unknown = UnknownWordWarning(hub.task, args.input)
    plain = args.format == "columns" and not args.confidence
    for chunk in chunks(sentences, args):
        for number, sentence in chunk:
            unknown.check(number, [sentence] if isinstance(sentence, str) else [])
        with captured_log():
            find = hub.tag if plain else hub.annotate  # annotate is slower
            found = find([sentence for _, sentence in chunk], args.batch_size)
        for (number, sentence), words in zip(chunk, found, strict=True):
            sys.stdout.write(format_sentence(hub, words, hub.line(sentence), number, args))
        sys.stdout.flush()


def check_options(args: argparse.Namespace) -> None:
    """Raise UserError if options contradict each other."""
    if args.format != "columns" and (args.inline or args.confidence):
        option = "--inline" if args.inline else "--confidence"
        raise UserError(f"{option} is for --format columns; drop one of them")
    if args.inline and args.confidence:
        raise UserError("--inline cannot show --confidence; drop one of them")
    if args.input_format == "text" and args.word_column is not None:
        raise UserError("--word-column is for --input-format columns; give that, too, or drop it")
    if args.input_format == "columns" and args.tokenizer is not None:
        raise UserError("--tokenizer is for text, but --input-format columns has words; drop it")
    check_at_least(1, word_column=args.word_column)


def format_sentence(hub, words, line: str, number: int, args: argparse.Namespace) -> str:
    """The output for a sentence.

    Args:
        hub: the tagger.
        words: its words with tags.
        line: its text.
        number: the number of its line.
        args: the command's options.
    """
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
    """A sentence as JSON: ``text``, ``words`` and, if tags mark spans, ``spans``."""
    found = {"text": line, "words": [rounded(word) for word in words]}
    if hub.task.are_spans:
        found["spans"] = [rounded(span) for span in hub.spans_of(words, line)]
    return json.dumps(found, ensure_ascii=False)


def rounded(row) -> dict[str, object]:
    """The fields of a word or span, with a rounded probability."""
    return {**row._asdict(), "probability": round(row.probability, 4)}


def read_columns(args: argparse.Namespace) -> Iterator[tuple[int, list[str]]]:
    """(number of the first word's line, words) of each sentence in a file of columns.

    Lines such as ``# sent_id = 3`` are comments. If another line of a sentence has a tab, columns
    are separated by tabs, and lines without tabs that start with # are comments, too. Otherwise
    columns are separated by white space.

    Raises:
        UserError: a line lacks the column of the word.
    """
    rows: list[tuple[int, str]] = []
    for number, line in numbered_lines(args.input):
        if line.strip():
            rows.append((number, line))
        else:
            yield from sentence_of(rows, args)
            rows = []
    yield from sentence_of(rows, args)


def sentence_of(
    rows: Sequence[tuple[int, str]], args: argparse.Namespace
) -> list[tuple[int, list[str]]]:
    """(number of the first word's line, words) of a sentence's lines; none without words.

    Raises:
        UserError: a line lacks the column.
    """
    rows = [row for row in rows if not (row[1].startswith(DOCUMENT) or COMMENT.match(row[1]))]
    tabs = any("\t" in line for _, line in rows)
    found = []
    for number, line in rows:
        if tabs and line.startswith("#") and "\t" not in line:
            continue
        cells = line.split("\t") if tabs else [c for c in ASCII_SPACE.split(line) if c]
        conllu = tabs and len(cells) == 10
        if conllu and not CONLLU_ID.fullmatch(cells[0]) and cells[0][:1].isdigit():
            continue  # a multiword token's range, or an empty node
        column = args.word_column or (2 if conllu and CONLLU_ID.fullmatch(cells[0]) else 1)
        if column > len(cells) or not cells[column - 1].strip():
            raise UserError(
                f"{input_name(args.input)}, line {number} has no word in column {column}; correct "
                "it, or choose another --word-column"
            )
        found.append((number, cells[column - 1].strip()))
    return [(found[0][0], [word for _, word in found])] if found else []

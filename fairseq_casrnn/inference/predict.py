"""``casrnn predict``: classes for lines of text."""

from __future__ import annotations

import argparse
import json
import sys

from fairseq_casrnn.console.program import captured_log
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.inference.line_command import (
    UnknownWordWarning,
    add_model_arguments,
    chunks,
    input_name,
    load_from_arguments,
    numbered_lines,
)
from fairseq_casrnn.kinds import CLASSIFIER


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_model_arguments(
        parser,
        "Write LABEL<TAB>PROBABILITY for each line of text or, with models of sentence pairs, for "
        "each line SENTENCE<TAB>SENTENCE. An empty line is an empty sentence. In single sentences "
        "a tab counts as a space.",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="write LABEL:PROBABILITY of every class, tab-separated; with --format json, add "
        "probabilities, an object with that of every class",
    )
    parser.add_argument(
        "--format",
        choices=("columns", "json"),
        default="columns",
        help="columns: LABEL<TAB>PROBABILITY; json: a line of JSON for each line of text, with "
        "text (and pair), label and probability (default: columns)",
    )


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if the checkpoint, file or a line is invalid."""
    hub = load_from_arguments(CLASSIFIER, args)
    name, unknown = input_name(args.input), UnknownWordWarning(hub.task, args.input)
    for chunk in chunks(numbered_lines(args.input), args):
        items = [parse_line(line, hub.task.pairs, name, number) for number, line in chunk]
        for (number, _), texts in zip(chunk, items, strict=True):
            unknown.check(number, [texts] if isinstance(texts, str) else texts)
        with captured_log():
            rows = hub.probabilities(items, args.batch_size).tolist()
        for texts, row in zip(items, rows, strict=True):
            if args.format == "json":
                sys.stdout.write(as_json(texts, row, hub.classes, args.all) + "\n")
            else:
                sys.stdout.write(format_prediction(row, hub.classes, args.all) + "\n")
        sys.stdout.flush()


def parse_line(line: str, pairs: bool, name: str, number: int):
    """A sentence, or a pair if ``pairs``. Raises UserError if the line is not a pair."""
    if not pairs:
        return line
    columns = line.split("\t")
    if len(columns) != 2:
        raise UserError(
            f"{name}, line {number} has {len(columns)} column(s); this model compares two "
            "sentences, so write SENTENCE<TAB>SENTENCE"
        )
    return tuple(columns)


def format_prediction(row: list[float], classes: list[str], every: bool) -> str:
    """A line of output: the best class, or ``every`` class."""
    if every:
        return "\t".join(f"{name}:{p:.4f}" for name, p in zip(classes, row, strict=True))
    label, probability = best_of(row, classes)
    return f"{label}\t{probability:.4f}"


def best_of(row: list[float], classes: list[str]) -> tuple[str, float]:
    """The most probable class and its probability."""
    best = max(range(len(row)), key=row.__getitem__)
    return classes[best], row[best]


def as_json(texts: str | tuple[str, str], row: list[float], classes: list[str], every: bool) -> str:
    """A prediction as JSON: ``text``, for pairs ``pair``, ``label``, ``probability``.

    Args:
        texts: the text, or both of a pair.
        row: the classes' probabilities.
        classes: their names.
        every: whether to add ``probabilities``, those of all classes.
    """
    given = (texts,) if isinstance(texts, str) else texts
    found: dict[str, object] = dict(zip(("text", "pair"), given, strict=False))
    label, probability = best_of(row, classes)
    found |= {"label": label, "probability": round(probability, 4)}
    if every:
        found["probabilities"] = {name: round(p, 4) for name, p in zip(classes, row, strict=True)}
    return json.dumps(found, ensure_ascii=False)

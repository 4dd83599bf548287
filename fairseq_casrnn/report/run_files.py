"""Read a run's folder: log, scores, predictions, options, environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_casrnn.data.prepared import read_json
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.significance import METRICS, is_of_split
from fairseq_casrnn.report.predictions import Predictions, read_predictions
from fairseq_casrnn.runs.layout import FINISHED, LOG, PREDICTIONS, RESULTS
from fairseq_casrnn.runs.record import read as read_record
from fairseq_casrnn.runs.training_log import read_text, records

Points = list[tuple[float, float]]


@dataclass
class RunFiles:
    """The contents of a run's files.

    Attributes:
        folder: ``OUT/NAME/seedN``.
        curves: points (update, value) by ("train" or "valid", name).
        scores: scores on the split, by name.
        command: words of the fairseq-train command; empty if unknown.
        typed: the user's command, casrnn train or a recipe; empty if unknown.
        evaluations: commands that evaluated it.
        environment: machine, versions and duration, by name.
        predictions: predictions for the split, or None.
    """

    folder: Path
    curves: dict[tuple[str, str], Points] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    typed: str = ""
    evaluations: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    predictions: Predictions | None = None

    @property
    def options(self) -> dict[str, str]:
        """Options of the training and their values; "yes" for flags."""
        return dict(option_pairs(self.command[1:]))


def read_run(folder: Path, subset: str) -> RunFiles:
    """Read a run's folder, with scores and predictions of the split ``subset``.

    Raises:
        UserError: it is not a run's folder, or a file in it is damaged.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give that of a run, such as OUT/NAME/seed1")
    record, log = read_record(folder), folder / LOG
    scores = read_object(folder / f"{subset}.json")
    if not record and not log.is_file() and not scores:
        raise UserError(
            f"{folder} holds no train.log, run.json or {subset}.json; give the folder of a run, "
            "such as OUT/NAME/seed1"
        )
    run = RunFiles(folder)
    text = read_text(log) if log.is_file() else ""
    run.curves = curves_of(records(text) if text else validations(record))
    evaluations = record.get("evaluations", [])
    for one in (*results_of(folder), scores, *evaluations):
        # SUBSET.json names no split, nor do language models, whose scores are of valid and test.
        if is_of_split({"subset": subset} | one, subset):
            run.scores |= {n: one[n] for n in METRICS if isinstance(one.get(n), (int, float))}
    run.command = command_of(folder, record, text)
    run.typed = record.get("command", "")
    run.evaluations = [str(one["command"]) for one in evaluations if "command" in one]
    run.environment = environment_of(record, text)
    predictions = folder / f"{subset}.{PREDICTIONS}"
    run.predictions = read_predictions(predictions) if predictions.is_file() else None
    return run


def read_object(path: Path) -> dict:
    """Read a JSON object; empty if there is no such file. Raises UserError if it is damaged."""
    try:
        return read_json(path) if path.is_file() else {}
    except UserError as error:
        cause = str(error).partition(";")[0]
        raise UserError(f"{cause}; remove it, or evaluate the run again") from None


def results_of(folder: Path) -> Iterator[dict]:
    """The results of a run in ``results.jsonl`` of all runs, in the order of the evaluations."""
    path = folder.parent.parent / RESULTS
    lines = path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
    for line in lines:
        try:
            one = parse_json(line)
        except ValueError:  # truncated by an interruption
            continue
        run = [one.get("arch"), f"seed{one.get('seed')}"] if isinstance(one, dict) else []
        if run == [*folder.parts[-2:]]:
            yield one


def curves_of(found: Iterable[tuple[str, dict]]) -> dict[tuple[str, str], Points]:
    """All numbers in a log by update; training curves use the finest available resolution."""
    curves: dict[tuple[str, str], dict[float, float]] = {}
    for tag, values in found:
        if tag in ("train_inner", "train", "valid") and "num_updates" in values:
            for name, value in values.items():
                curves.setdefault((tag, name), {})[values["num_updates"]] = value
    result = {key: sorted(curve.items()) for key, curve in curves.items()}
    for (tag, name), points in list(result.items()):
        if tag == "train_inner":
            del result[tag, name]
            if len(points) > len(result.get(("train", name), [])):
                result["train", name] = points
    return result


def validations(record: dict) -> Iterator[tuple[str, dict]]:
    """The validations in ``run.json``, in the form of a log's records."""
    for scores in record.get("validation", []):
        if isinstance(scores.get("updates"), (int, float)):
            numbers = {n: v for n, v in scores.items() if isinstance(v, (int, float))}
            yield "valid", {**numbers, "num_updates": scores["updates"]}


def command_of(folder: Path, record: dict, log: str) -> list[str]:
    """The words of the command that trained a run.

    Without ``run.json`` it is reconstructed from ``finished`` and the configuration in the log. In
    ``finished`` an option with several values is one word.
    """
    if "training" in record:
        return split_command(record["training"])
    options = folder / FINISHED
    if not options.is_file():
        return []
    words = options.read_text(encoding="utf-8", errors="replace").strip()
    found = ["fairseq-train", logged_option(log, "data") or "DATA"]
    for option, name in (
        ("--user-dir", "user_dir"),
        ("--seed", "seed"),
        ("--save-dir", "save_dir"),
    ):
        value = logged_option(log, name)
        found += [option, value] if value else []
    for part in re.split(r"\s+(?=--[a-z])", words):
        found += [word for word in part.split(" ", 1) if word]
    return found


def split_command(command: str) -> list[str]:
    """The words of a command line; split at spaces if its quotation marks are unbalanced."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def logged_option(log: str, name: str) -> str | None:
    """An option's value in the configuration that fairseq logs."""
    found = re.search(rf"'{name}': (?:'([^']*)'|(\d+))[,}}]", log)
    return found and (found[1] or found[2])


def option_pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    """Options with their values, joined if several; "data" has the positional arguments."""
    name = ""
    values: list[str] = []
    for word in [*words, "--"]:
        if word.startswith("--"):
            if name or values:
                yield name or "data", " ".join(values) or "yes"
            name, equals, value = word.partition("=")
            values = [value] if equals else []
        else:
            values.append(word)


def environment_of(record: dict, log: str) -> dict[str, str]:
    """Machine, versions and duration of the training, as strings by name."""
    names = "date device processes precision parameters epochs updates load"
    found: dict[str, object] = {name: record.get(name) for name in names.split()}
    for name in ("machine", "versions", "package", "data"):
        part = record.get(name, {})
        found[name] = ", ".join(f"{key} {value}" for key, value in part.items())
    found["seconds of training"] = record.get("seconds")
    if record.get("finished") is False:
        found["finished"] = "no: the training was interrupted, or is running"
    for name, pattern in (
        ("date", r"^(\d{4}-\d\d-\d\d \d\d:\d\d)"),
        ("parameters", r"num\. shared model params: ([\d,]+)"),
        ("processes", r"training on (\d+) devices"),
        ("seconds of training", r"done training in ([\d.]+) seconds"),
    ):
        if found.get(name) is None and (match := re.search(pattern, log, re.MULTILINE)):
            found[name] = match[1]
    return {name: str(value) for name, value in found.items() if value not in (None, "")}

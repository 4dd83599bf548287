"""Classify a test set with trained runs: what the classification recipes' ``evaluate.sh`` calls.

``python -m fairseq_casrnn.evaluation.classify --data DIR --out DIR`` evaluates ``DIR/NAME/seedN``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_casrnn.data.command import Parser, captured_log, run_main, show
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.asking import load
from fairseq_casrnn.evaluation.average import load as load_checkpoint
from fairseq_casrnn.evaluation.confusion import as_table, summary
from fairseq_casrnn.evaluation.evaluate import (
    add_run_arguments,
    choose_checkpoint,
    find_runs,
    record,
)
from fairseq_casrnn.evaluation.significance import mcnemar, table
from fairseq_casrnn.files import replacing, table_cell


def classify(data: Path, checkpoint: Path, subset: str, batch_size: int = 64) -> dict:
    """Classify ``subset`` of a prepared folder.

    Returns:
        What :func:`.confusion.summary` gives, ``seconds`` and ``predictions``, (true, predicted,
        probability) in the order of the data.

    Raises:
        UserError: a checkpoint or data that cannot be used.
    """
    hub = load("classifier", checkpoint, str(data / "data-bin"))
    with captured_log():
        dataset = hub.task.read(subset)
        start = time.perf_counter()
        probabilities = hub.of_dataset(dataset, batch_size)
        seconds = time.perf_counter() - start
    best = probabilities.max(-1)
    truth, predicted = dataset.labels.tolist(), best.indices.tolist()
    classes = hub.classes
    matrix = [[0] * len(classes) for _ in classes]
    for t, p in zip(truth, predicted, strict=True):
        matrix[t][p] += 1
    rows = zip(truth, predicted, best.values.tolist(), strict=True)
    return {
        **summary(matrix, classes),
        "seconds": round(seconds, 2),
        "predictions": [(classes[t], classes[p], round(value, 4)) for t, p, value in rows],
    }


def evaluate(data: Path, run: Path, which: str, subset: str, batch_size: int = 64) -> dict:
    """Classify with a run's checkpoint, keep the result in the run's folder, return its numbers.

    ``SUBSET.json`` gets the scores and the confusion matrix, ``SUBSET.predictions.tsv`` a line
    "true, predicted, probability" for each sentence, classes as :func:`.table_cell` has them.
    """
    result = classify(data, choose_checkpoint(run, which), subset, batch_size)
    rows = result.pop("predictions")
    lines = (f"{table_cell(truth)}\t{table_cell(found)}\t{value}\n" for truth, found, value in rows)
    keep(run, subset, "predictions.tsv", "".join(lines), result)
    confusion = result.pop("confusion")
    show(as_table([list(row.values()) for row in confusion.values()], list(confusion)))
    seconds = training_seconds(run)
    if seconds is not None:
        result["train_seconds"] = seconds
    return {"checkpoint": which, "subset": subset, **result}


def keep(run: Path, subset: str, name: str, predictions: str, result: dict) -> None:
    """Write ``SUBSET.NAME`` with the predictions and ``SUBSET.json`` into a run's folder."""
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    for ending, content in ((name, predictions), ("json", text)):
        with replacing(run / f"{subset}.{ending}") as draft:
            Path(draft).write_text(content, encoding="utf-8")


def training_seconds(run: Path) -> float | None:
    """How long a run took, up to its last checkpoint, with the sessions that were interrupted."""
    state = load_checkpoint(run / "checkpoint_last.pt")
    seconds = state.get("extra_state", {}).get("previous_training_time")
    return None if seconds is None else round(seconds, 1)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.classify",
        description="Classify the test set with trained runs, print and record accuracy.",
    )
    add_subset_arguments(parser)
    args = parser.parse_args(argv)
    return run_main(lambda: evaluate_all(args))


def evaluate_all(args: argparse.Namespace) -> None:
    """Evaluate the runs and print mean ± deviation of the accuracy over the seeds.

    With a baseline also McNemar's test for each seed that it has, too.
    """

    def describe(result: dict) -> str:
        return (
            f"accuracy {result['accuracy']:.2f}, macro-F1 {result['macro_f1']:.2f} on "
            f"{result['sentences']} sentences of {args.subset}"
        )

    runs = evaluate_each(args, evaluate, describe, lambda result: result["accuracy"])
    if args.baseline:
        show(each_against(runs, args.baseline, args.subset))


def each_against(runs: Sequence[tuple[str, int, Path]], baseline: str, subset: str) -> list[str]:
    """A line for each run (system, seed, folder) that the baseline has, too: McNemar's test."""
    folders = {(arch, seed): run for arch, seed, run in runs}
    lines = []
    for arch, seed, run in runs:
        if arch == baseline or (baseline, seed) not in folders:
            continue
        ours, theirs, p = mcnemar(right(run, subset), right(folders[baseline, seed], subset))
        lines.append(
            f"{arch} against {baseline}, seed {seed}: {ours} sentences only the first has right, "
            f"{theirs} only the second, p = {p:.2g} (McNemar's exact test, two-sided)"
        )
    return lines


def right(run: Path, subset: str) -> list[bool]:
    """Whether each sentence of ``SUBSET.predictions.tsv`` of a run is classified rightly."""
    lines = read_lines(run / f"{subset}.predictions.tsv")
    return [truth == predicted for truth, predicted, _ in (line.split("\t") for line in lines)]


def add_subset_arguments(parser: argparse.ArgumentParser) -> None:
    """What is evaluated of the runs, and how."""
    add_run_arguments(parser)
    parser.add_argument("--subset", default="test", help="test, valid, …")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--baseline", help="system that the others are tested against")


def evaluate_each(
    args: argparse.Namespace,
    evaluate: Callable[[Path, Path, str, str, int], dict],
    describe: Callable[[dict], str],
    score: Callable[[dict], float],
) -> list[tuple[str, int, Path]]:
    """Evaluate the runs that the options choose, print and record each, and a table over seeds.

    Args:
        args: of :func:`add_subset_arguments`.
        evaluate: function of data, run, checkpoint, subset and batch size; gives what is recorded.
        describe: the result in words.
        score: the number of the table.

    Returns:
        (system, seed, folder) of each run.

    Raises:
        UserError: no such run, or an option out of range.
    """
    if args.batch_size < 1:
        raise UserError(f"--batch-size is {args.batch_size}; it must be at least 1")
    runs = find_runs(args.out, args.arch, args.seed)
    if args.baseline and args.baseline not in {arch for arch, _, _ in runs}:
        raise UserError(f"--baseline {args.baseline} is not among the evaluated runs")
    scores: dict[str, dict[int, float]] = {}
    for arch, seed, run in runs:
        result = evaluate(args.data, run, args.checkpoint, args.subset, args.batch_size)
        record(args.out, arch, seed, result)
        print(f"{arch} seed {seed}: {describe(result)}", flush=True)
        scores.setdefault(arch, {})[seed] = score(result)
    show(table(scores, args.baseline))
    return runs


if __name__ == "__main__":
    sys.exit(main())

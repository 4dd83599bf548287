"""Classify a test set with trained runs; called by the classification recipes' ``evaluate.sh``.

``python -m fairseq_casrnn.evaluation.evaluate_classifier --data DIR --out DIR`` evaluates
``DIR/NAME/seedN``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.console.program import Parser, captured_log, run_main, show
from fairseq_casrnn.evaluation.confusion import as_table, summary
from fairseq_casrnn.evaluation.prediction_files import CLASSES, TABLE, as_lines, read_classes
from fairseq_casrnn.evaluation.runs import (
    add_subset_arguments,
    choose_checkpoint,
    evaluate_each,
    training_seconds,
    warn_unseen,
    write_predictions,
)
from fairseq_casrnn.evaluation.significance import mcnemar, table
from fairseq_casrnn.inference.loading import load_hub
from fairseq_casrnn.kinds import CLASSIFIER


def classify(data: Path, checkpoint: Path, subset: str, batch_size: int = 64) -> dict:
    """Classify ``subset`` of a prepared folder.

    Returns:
        The entries of :func:`.confusion.summary`, ``seconds`` and ``predictions``, (true,
        predicted, probability) in the order of the data.

    Raises:
        UserError: the checkpoint or data cannot be used.
    """
    hub = load_hub(CLASSIFIER, checkpoint, str(data / "data-bin"))
    with captured_log():
        dataset = hub.task.read(subset)
        start = time.perf_counter()
        probabilities = hub.of_dataset(dataset, batch_size)
        seconds = time.perf_counter() - start
    best = probabilities.max(-1)
    warn_unseen(hub.task, subset)
    truth, predicted = dataset.labels.tolist(), best.indices.tolist()
    classes = [*hub.classes, "<unk>"]  # index -1 is a class that does not occur in training
    matrix = [[0] * len(classes) for _ in classes]
    for t, p in zip(truth, predicted, strict=True):
        matrix[t][p] += 1
    rows = zip(truth, predicted, best.values.tolist(), strict=True)
    return {
        **summary(matrix, hub.classes),
        "seconds": round(seconds, 2),
        "predictions": [(classes[t], classes[p], round(value, 4)) for t, p, value in rows],
    }


def evaluate(data: Path, run: Path, which: str, subset: str, batch_size: int = 64) -> dict:
    """Classify with a run's checkpoint, write the result to the run's folder and return scores.

    ``SUBSET.json`` has the scores and the confusion matrix, and ``SUBSET.predictions.tsv`` a line
    for each sentence (:mod:`.prediction_files`).
    """
    result = classify(data, choose_checkpoint(run, which), subset, batch_size)
    text = as_lines([CLASSES, *result.pop("predictions")])
    write_predictions(run, subset, TABLE, text, result)
    confusion = result.pop("confusion")
    show(as_table([list(row.values()) for row in confusion.values()], list(confusion)))
    seconds = training_seconds(run)
    if seconds is not None:
        result["train_seconds"] = seconds
    return {"checkpoint": which, "subset": subset, **result}


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.evaluate_classifier",
        description="Classify the test set with trained models; print and record accuracy.",
    )
    add_subset_arguments(parser)
    args = parser.parse_args(argv)
    return run_main(lambda: evaluate_all(args))


def evaluate_all(args: argparse.Namespace) -> None:
    """Evaluate the runs and print mean ± deviation of the accuracy over the seeds.

    With a baseline, also print McNemar's test for each seed that both have.
    """
    scores: dict[str, dict[int, float]] = {}
    for arch, seed, result in evaluate_each(
        args, lambda run: evaluate(args.data, run, args.checkpoint, args.subset, args.batch_size)
    ):
        print(
            f"{arch} seed {seed}: accuracy {result['accuracy']:.2f}, macro-F1 "
            f"{result['macro_f1']:.2f} on {result['sentences']} sentences of {args.subset}",
            flush=True,
        )
        scores.setdefault(arch, {})[seed] = result["accuracy"]
    show(table(scores, args.baseline))
    if args.baseline:
        runs = [
            (arch, seed, args.out / arch / f"seed{seed}")
            for arch, seeds in scores.items()
            for seed in seeds
        ]
        show(compare_with_baseline(runs, args.baseline, args.subset))


def compare_with_baseline(
    runs: Sequence[tuple[str, int, Path]], baseline: str, subset: str
) -> list[str]:
    """McNemar's test of each run (system, seed, folder) against the baseline's with that seed."""
    folders = {(arch, seed): run for arch, seed, run in runs}
    lines = []
    for arch, seed, run in runs:
        if arch == baseline or (baseline, seed) not in folders:
            continue
        both = (correct_predictions(one, subset) for one in (run, folders[baseline, seed]))
        ours, theirs, p = mcnemar(*both)
        lines.append(
            f"{arch} against {baseline}, seed {seed}: only the first is right on {ours} sentences, "
            f"only the second on {theirs}, p = {p:.2g} (McNemar's exact test, two-sided)"
        )
    return lines


def correct_predictions(run: Path, subset: str) -> list[bool]:
    """Whether each prediction in a run's ``SUBSET.predictions.tsv`` is correct."""
    return [truth == found for truth, found in read_classes(run / f"{subset}.{TABLE}")]


if __name__ == "__main__":
    sys.exit(main())

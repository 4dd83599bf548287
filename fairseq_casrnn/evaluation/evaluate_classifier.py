"""Classify a test set with trained runs, for ``casrnn evaluate`` and the recipes' ``evaluate.sh``.

``python -m fairseq_casrnn.evaluation.evaluate_classifier --data DIR --out DIR`` evaluates
``DIR/NAME/seedN``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq_casrnn.console.program import Parser, run_main, show
from fairseq_casrnn.data.originals import read_originals
from fairseq_casrnn.evaluation.confusion import as_table, summary
from fairseq_casrnn.evaluation.prediction_files import CLASSES, as_lines
from fairseq_casrnn.evaluation.runs import (
    Result,
    add_subset_arguments,
    choose_checkpoint,
    evaluate_and_compare,
    predict,
    run_name,
    with_settings,
    write_errors,
    write_predictions,
)
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
    dataset, probabilities, seconds = predict(hub, subset, batch_size)
    best = probabilities.max(-1)
    truth, predicted = dataset.labels.tolist(), best.indices.tolist()
    classes = [*hub.classes, "<unk>"]  # index -1 is a class that does not occur in training
    matrix = [[0] * len(classes) for _ in classes]
    for t, p in zip(truth, predicted, strict=True):
        matrix[t][p] += 1
    rows = zip(truth, predicted, best.values.tolist(), strict=True)
    return {
        **summary(matrix, hub.classes),
        "seconds": seconds,
        "predictions": [(classes[t], classes[p], round(value, 4)) for t, p, value in rows],
    }


def evaluate(run: Path, args: argparse.Namespace) -> Result:
    """Classify with a run's checkpoint, write and print the result, return its scores.

    ``SUBSET.json`` has the scores and the confusion matrix, and ``SUBSET.predictions.tsv`` a line
    for each sentence (:mod:`.prediction_files`). Where the data has its original text, this is in
    further columns, and ``SUBSET.errors.tsv`` has the errors.

    Args:
        run: its folder.
        args: options of :func:`.runs.add_subset_arguments`.

    Raises:
        UserError: the checkpoint or data cannot be used.
    """
    data, subset = args.data, args.subset
    result = classify(data, choose_checkpoint(run, args.checkpoint), subset, args.batch_size)
    found = result.pop("predictions")
    examples = read_originals(data / "data-bin", subset, len(found))
    rows = [(*row, *example.values()) for row, example in zip(found, examples, strict=True)]
    header = (*CLASSES, *examples[0])
    write_predictions(run, subset, as_lines([header, *rows]), result)
    confusion = result.pop("confusion")
    show(as_table([list(row.values()) for row in confusion.values()], list(confusion)))
    print(
        f"{run_name(run)}: accuracy {result['accuracy']:.2f}, macro-F1 {result['macro_f1']:.2f} "
        f"on {result['sentences']} sentences of {subset}",
        flush=True,
    )
    if examples[0]:
        wrong = [row for row in rows if row[0] != row[1]]
        write_errors(run, subset, header, wrong, "error{}")
    return with_settings(result, run, args)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.evaluate_classifier",
        description="Classify the test set with trained models; print and record accuracy.",
    )
    add_subset_arguments(parser)
    args = parser.parse_args(argv)
    return run_main(lambda: evaluate_and_compare(args, evaluate))


if __name__ == "__main__":
    sys.exit(main())

"""Tag a test set with trained runs; called by the tagging recipes' ``evaluate.sh``.

``python -m fairseq_casrnn.evaluation.evaluate_tagger --data DIR --out DIR`` evaluates
``DIR/NAME/seedN``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from fairseq_casrnn.console.program import Parser, captured_log, run_main, show
from fairseq_casrnn.data.columns import without_spaces
from fairseq_casrnn.data.spans import as_iob2
from fairseq_casrnn.evaluation.paired import paired_test
from fairseq_casrnn.evaluation.prediction_files import CONLLEVAL
from fairseq_casrnn.evaluation.runs import (
    add_subset_arguments,
    choose_checkpoint,
    evaluate_each,
    training_seconds,
    warn_unseen,
    write_predictions,
)
from fairseq_casrnn.evaluation.significance import table
from fairseq_casrnn.evaluation.tags import COUNTS, counts, report, scores
from fairseq_casrnn.inference.loading import load_hub
from fairseq_casrnn.kinds import TAGGER


def tag(
    data: Path,
    checkpoint: Path,
    subset: str,
    batch_size: int = 64,
    confidence: bool = False,
    **options,
) -> dict:
    """Tag ``subset`` of a prepared folder.

    Args:
        data: the folder.
        checkpoint: checkpoint of a tagger.
        subset: the split.
        batch_size: number of sentences in a batch.
        confidence: whether to return confidences.
        options: options of the task that replace the checkpoint's.

    Returns:
        ``sentences``, ``words`` (their numbers), ``seconds``, the scores (:func:`.tags.scores`) and
        ``rows``: (word, true tag, predicted tag) for each word of each sentence. The words are
        those of the dictionary, and span tags are in IOB2, as for accuracy. ``report`` is seqeval's
        table by type, or None if tags mark no spans. For spans, ``constrained_tags`` says whether
        decoding excludes sequences that the scheme forbids. If asked for, ``confidence`` is the
        probability of each sentence's tags.

    Raises:
        UserError: the checkpoint or data cannot be used.
    """
    hub = load_hub(TAGGER, checkpoint, str(data / "data-bin"), **options)
    task = hub.task
    with captured_log():
        dataset = task.read(subset)
        start = time.perf_counter()
        found = hub.of_dataset(dataset, batch_size)
        seconds = time.perf_counter() - start
        extra = {"confidence": hub.confidence(dataset, batch_size)} if confidence else {}
    warn_unseen(task, subset)
    truth = [task.tag_names(dataset.tags(i)) for i in range(len(dataset))]
    words = [
        [without_spaces(task.dictionary[int(token)]) for token in dataset.words[i][:-1]]
        for i in range(len(dataset))
    ]
    gold, predicted = truth, found
    if task.are_spans:
        gold, predicted = ([as_iob2(row) for row in rows] for rows in (truth, found))
    total = dict(zip(COUNTS, counts(gold, predicted, task.are_spans), strict=True))
    return {
        "sentences": len(truth),
        "words": total["words"],
        **{name: round(value, 2) for name, value in scores(total).items()},
        **({"constrained_tags": hub.is_constrained} if task.are_spans else {}),
        "seconds": round(seconds, 2),
        "rows": [
            list(zip(*columns, strict=True)) for columns in zip(words, gold, predicted, strict=True)
        ],
        "report": report(truth, found) if task.are_spans else None,
        **extra,
    }


def evaluate(
    data: Path, run: Path, which: str, subset: str, batch_size: int = 64, **options
) -> dict:
    """Tag with a run's checkpoint, write the result to the run's folder and return scores.

    ``SUBSET.json`` has the scores. ``SUBSET.predictions.txt`` is in conlleval's format: a line
    "word true predicted" for each word, with spans in IOB2, and an empty line after each sentence.
    """
    result = tag(data, choose_checkpoint(run, which), subset, batch_size, **options)
    rows, by_type = result.pop("rows"), result.pop("report")
    lines = ("".join(" ".join(row) + "\n" for row in sentence) + "\n" for sentence in rows)
    write_predictions(run, subset, CONLLEVAL, "".join(lines), result)
    if by_type:
        show(by_type.split("\n"))
    seconds = training_seconds(run)
    if seconds is not None:
        result["train_seconds"] = seconds
    return {"checkpoint": which, "subset": subset, **result}


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.evaluate_tagger",
        description="Tag the test set with trained models; print and record accuracy or F1.",
    )
    add_subset_arguments(parser)
    parser.add_argument(
        "--unconstrained-tags",
        action="store_true",
        help="do not exclude tags that the spans' scheme forbids (default: as in training)",
    )
    args = parser.parse_args(argv)
    return run_main(lambda: evaluate_all(args))


def evaluate_all(args: argparse.Namespace) -> None:
    """Evaluate the runs and print mean ± deviation of F1, or of accuracy, over the seeds.

    With a baseline also a test of the sentences for each seed that it has, too.
    """
    titles = {"f1": "F1", "accuracy": "accuracy"}
    scores: dict[str, dict[int, float]] = {}
    metric = ""
    options: dict[str, Any] = {"unconstrained_tags": True} if args.unconstrained_tags else {}
    which = (args.checkpoint, args.subset, args.batch_size)
    for arch, seed, result in evaluate_each(
        args, lambda run: evaluate(args.data, run, *which, **options)
    ):
        if "f1" in result:
            titles["accuracy"] = "accuracy of tags in IOB2"
        names = [name for name in ("f1", "precision", "recall", "accuracy") if name in result]
        found = ", ".join(f"{titles.get(name, name)} {result[name]:.2f}" for name in names)
        size = f"{result['words']} words, {result['sentences']} sentences"
        print(f"{arch} seed {seed}: {found} on {size} of {args.subset}", flush=True)
        metric = "f1" if "f1" in result else "accuracy"
        scores.setdefault(arch, {})[seed] = result[metric]
    show(table(scores, args.baseline))
    if args.baseline:
        show(each_against(args.out, scores, args.baseline, args.subset, metric))


def each_against(
    out: Path, scores: dict[str, dict[int, float]], baseline: str, subset: str, metric: str
) -> list[str]:
    """A line for each run that the baseline has, too: approximate randomization of sentences."""
    lines = []
    for arch, seeds in scores.items():
        for seed in seeds:
            if arch == baseline or seed not in scores[baseline]:
                continue
            ours, theirs = (out / name / f"seed{seed}" for name in (arch, baseline))
            found = paired_test(ours, theirs, subset, metric)
            assert found is not None  # both have just been evaluated
            lines.append(
                f"{arch} against {baseline}, seed {seed}: p = {found[1]:.2g} (approximate "
                "randomization "
                "of sentences, two-sided)"
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())

"""Evaluating runs, ``OUT/NAME/seedN``: choosing them, recording results, comparing systems."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq_casrnn.console.program import captured_log, show
from fairseq_casrnn.data.prepared import prepared_folder
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.evaluation.paired import compare_with_baseline
from fairseq_casrnn.evaluation.prediction_files import as_lines
from fairseq_casrnn.evaluation.significance import COMPARED, LOWER_IS_BETTER, METRICS, table
from fairseq_casrnn.files import append_json, write_json, write_text
from fairseq_casrnn.inference.average import average, find_checkpoints, load, save
from fairseq_casrnn.runs.identity import check_trained_on
from fairseq_casrnn.runs.layout import (
    ERRORS,
    LAST,
    PREDICTIONS,
    RESULTS,
    check_checkpoint_choice,
    is_interrupted,
    run_folder,
    trained_runs,
)
from fairseq_casrnn.runs.record import add_evaluation

Result = dict[str, Any]
#: Results by system and seed.
Results = dict[str, dict[int, Result]]
Evaluate = Callable[[Path, argparse.Namespace], Result]


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the runs."""
    parser.add_argument(
        "--data", required=True, type=prepared_folder, help="folder of the prepared data"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder of runs ARCH/seedN")
    parser.add_argument("--arch", nargs="*", default=[], help="architectures (default: all)")
    parser.add_argument("--seed", nargs="*", type=int, default=[], help="seeds (default: all)")
    parser.add_argument("--checkpoint", default="best", help="best, last, ema, best:N or last:N")
    parser.add_argument("--baseline", help="system to test the others against")


def add_subset_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the runs, the split and the batch size."""
    add_run_arguments(parser)
    parser.add_argument("--subset", default="test", help="test, valid, …")
    parser.add_argument("--batch-size", type=int, default=64)


def choose_runs(out: Path, archs: list[str], seeds: list[int]) -> list[tuple[str, int, Path]]:
    """(architecture, seed, folder) of the chosen runs, which have a checkpoint.

    Args:
        out: folder of the runs.
        archs: architectures, in this order; empty for all.
        seeds: seeds; empty for all.

    Raises:
        UserError: there are no runs, or a requested run is missing.
    """
    runs = trained_runs(out)
    if not runs:
        raise UserError(f"{out} holds no trained run; train one first")
    chosen = [
        (arch, seed)
        for arch in dict.fromkeys(archs) or sorted({arch for arch, _ in runs})
        for seed in sorted(set(seeds) or {seed for name, seed in runs if name == arch} or {1})
    ]
    for arch, seed in chosen:
        if (arch, seed) not in runs:
            raise UserError(
                f"{out} holds no run of {arch} with seed {seed}; train it first, or choose others "
                "with --arch and --seed"
            )
        if is_interrupted(runs[arch, seed]):
            print(
                f"warning: {runs[arch, seed]} was interrupted, so this result is not final; train "
                "it again to resume",
                file=sys.stderr,
            )
    return [(arch, seed, runs[arch, seed]) for arch, seed in chosen]


def choose_checkpoint(run: Path, which: str) -> Path:
    """The checkpoint to evaluate: ``best`` on validation, ``last``, or an average.

    ``last:N`` and ``best:N`` average N checkpoints into ``checkpoint_avg_…pt`` in the run's folder;
    the best ones are chosen by the run's metric. ``ema`` uses the weights of the last checkpoint
    that ``--store-ema`` averaged over updates.

    Raises:
        UserError: ``which`` is invalid, or a checkpoint is missing or damaged.
    """
    check_checkpoint_choice(which)
    if which in ("best", "last"):
        path = run / f"checkpoint_{which}.pt"
        if not path.exists():
            last = which == "best" and (run / LAST).exists()
            remedy = "give --checkpoint last" if last else "train the model first"
            raise UserError(f"{path} does not exist; {remedy}")
        return path
    path = run / f"checkpoint_avg_{which.replace(':', '_')}.pt"
    if which == "ema":
        save(average([choose_checkpoint(run, "last")], ema=True), path)
    else:
        save(average(find_checkpoints(run, which)), path)
    return path


def record_result(out: Path, arch: str, seed: int, result: dict[str, object]) -> None:
    """Add a run's result to its ``run.json``, and as a line to ``results.jsonl`` of all runs.

    Results of unfinished runs are marked.
    """
    run = run_folder(out, arch, seed)
    if is_interrupted(run):
        result = {"finished": False, **result}
    append_json(out / RESULTS, {"arch": arch, "seed": seed, **result})
    add_evaluation(run, result)


def run_name(run: Path) -> str:
    """A run's folder ``NAME/seedN`` for a line of output."""
    return f"{run.parent.name} {run.name.replace('seed', 'seed ')}"


def write_predictions(run: Path, subset: str, predictions: str, result: Result) -> None:
    """Write ``SUBSET.predictions.tsv`` and, with the result, ``SUBSET.json`` of a run."""
    write_text(run / f"{subset}.{PREDICTIONS}", predictions)
    write_json(run / f"{subset}.json", result)


def write_errors(
    run: Path, subset: str, header: Sequence[str], wrong: Sequence[Sequence], what: str
) -> None:
    """Write ``SUBSET.errors.tsv``, and print the names of the files that a run now has.

    Args:
        run: the folder of the run.
        subset: the split.
        header: names of the columns, of which the third is the probability.
        wrong: the errors; the most probable ones are written first.
        what: name of an error, with ``{}`` where the plural has an s.
    """
    path, count = run / f"{subset}.{ERRORS}", len(wrong)
    write_text(path, as_lines([header, *sorted(wrong, key=lambda row: -row[2])]))
    errors = "no errors"
    if count:
        first = ", the most confident first" if count > 1 else ""
        errors = f"{count} {what.format('s' if count > 1 else '')}{first}: {path}"
    show([f"predictions: {run / f'{subset}.{PREDICTIONS}'}", errors])


def with_settings(result: Result, run: Path, args: argparse.Namespace) -> Result:
    """A result with what was evaluated, and with the run's ``train_seconds`` if they are known."""
    seconds = training_seconds(run)
    training = {} if seconds is None else {"train_seconds": seconds}
    return {"checkpoint": args.checkpoint, "subset": args.subset, **result, **training}


def training_seconds(run: Path) -> float | None:
    """The training time of a run up to its last checkpoint, including resumed sessions."""
    state = load(run / LAST)
    seconds = state.get("extra_state", {}).get("previous_training_time")
    return None if seconds is None else round(seconds, 1)


def predict(hub, subset: str, batch_size: int) -> tuple[Any, Any, float]:
    """A split, what ``hub.of_dataset`` predicts for it, and in how many seconds.

    Warns on standard error if the split has classes that do not occur in training.
    """
    with captured_log():
        dataset = hub.task.read(subset)
        start = time.perf_counter()
        found = hub.of_dataset(dataset, batch_size)
        seconds = time.perf_counter() - start
    if subset in hub.task.unseen:
        print(f"warning: {hub.task.unseen[subset]}", file=sys.stderr)
    return dataset, found, round(seconds, 2)


def evaluate_runs(args: argparse.Namespace, evaluate: Evaluate) -> Results:
    """Evaluate the runs that the options choose, and record each result.

    Args:
        args: options of :func:`add_run_arguments` or :func:`add_subset_arguments`.
        evaluate: returns the result of a run for ``args``, and prints it.

    Returns:
        The results by system and seed.

    Raises:
        UserError: a run is missing or was trained on other data, or an option is out of range.
    """
    check_at_least(1, batch_size=getattr(args, "batch_size", None))
    runs = choose_runs(args.out, args.arch, args.seed)
    check_trained_on(args.data, [run for _, _, run in runs])
    systems = {arch for arch, _, _ in runs}
    if args.baseline and args.baseline not in systems:
        raise UserError(
            f"--baseline {args.baseline} is not among the evaluated systems "
            f"({', '.join(sorted(systems))}); train it, or name it with --arch, too"
        )
    results: Results = {}
    for arch, seed, run in runs:
        result = evaluate(run, args)
        record_result(args.out, arch, seed, result)
        results.setdefault(arch, {})[seed] = result
    return results


def compare_systems(
    results: Results,
    metric: str,
    baseline: str | None,
    subset: str = "test",
) -> None:
    """Print mean ± deviation of each system's scores, and a t-test against the baseline's.

    Args:
        results: the results; nothing is printed for a single one.
        metric: the score.
        baseline: system to compare with, if any.
        subset: the split of the scores.

    Raises:
        UserError: the baseline has no result.
    """
    scores = {arch: {seed: one[metric] for seed, one in of.items()} for arch, of in results.items()}
    if sum(map(len, scores.values())) > 1:
        lower = metric in LOWER_IS_BETTER
        several = any(len(of) > 1 for of in scores.values())
        what = ", mean ± standard deviation" if several else ""
        show([f"{METRICS[metric].title} on {subset}{what}:", *table(scores, baseline, lower)])


def evaluate_and_compare(args: argparse.Namespace, evaluate: Evaluate) -> Results:
    """Evaluate the runs that the options choose, and compare the systems.

    For each seed that both a system and the baseline have, a test on the sentences is printed, too,
    if there are predictions. With options of fairseq-generate none are written.

    Args:
        args: options of :func:`add_run_arguments`, and ``subset``.
        evaluate: returns the result of a run for ``args``, and prints it.

    Returns:
        The results by system and seed.

    Raises:
        UserError: see :func:`evaluate_runs`.
    """
    results = evaluate_runs(args, evaluate)
    first = next(iter(next(iter(results.values())).values()))
    metric = next(name for name in COMPARED if name in first)
    compare_systems(results, metric, args.baseline, args.subset)
    if "options" in first:
        return results
    for arch, seed in ((arch, seed) for arch, seeds in results.items() for seed in seeds):
        if arch != args.baseline and seed in results.get(args.baseline, {}):
            ours, theirs = (run_folder(args.out, name, seed) for name in (arch, args.baseline))
            if found := compare_with_baseline(ours, theirs, args.subset, metric):
                show([f"{arch} against {args.baseline}, seed {seed}: {found.text}"])
    return results

"""Evaluating models of Dyck languages: ``casrnn analyze dyck`` for each run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.console.programs import Programs
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.recipes.options import Step, each_part, parse
from fairseq_casrnn.recipes.recipe import Recipe
from fairseq_casrnn.runs.identity import check_trained_on
from fairseq_casrnn.runs.layout import BEST, LOG, RESULTS, is_interrupted, trained_runs

ABOUT = """\
Evaluates all runs on test and on test1, the longer strings. Writes ldpa.SUBSET.csv and .png to each
run's folder and the WCPA of all runs by epoch to wcpa.png beside them, and appends JSON lines to
results.jsonl in --out."""


def evaluate(recipe: Recipe, argv: Sequence[str]) -> None:
    """Evaluate the runs of the chosen depths. Raises UserError if there are none."""
    options = parse(Step("evaluate", ("parts", "data", "out"), ABOUT), recipe, argv)
    programs, found = Programs(options.dry_run), False
    for _, where in each_part(recipe, options):
        runs = [run for run in trained_runs(Path(where.out)).values() if (run / BEST).is_file()]
        if Path(where.data, "data-bin").is_dir():
            check_trained_on(Path(where.data), runs)
        for run in runs:
            analyze(programs, run, where.data, options.out)
        if logs := [str(run / LOG) for run in runs if (run / LOG).is_file()]:
            plot = ("metric-curves", "wcpa", f"{where.out}/wcpa.png", *logs)
            programs.call("fairseq_casrnn.analysis.plots", *plot)
        found = found or bool(runs)
    if not found:
        depths = ",".join(options.parts or recipe.parts.values)
        raise UserError(
            f"{options.out} holds no trained run of --m {depths}; train some, or give another --out"
        )


def analyze(programs: Programs, run: Path, data: str, out: str) -> None:
    """Evaluate a run on both test sets."""
    if is_interrupted(run):
        note = f"warning: the training of {run} was interrupted; run it again to resume it"
        print(note, file=sys.stderr, flush=True)
    for subset in ("test", "test1"):
        if not programs.dry_run:
            print(f"{run.relative_to(out)} {subset}", flush=True)
        options = ["--subset", subset, "--path", str(run / BEST)]
        options += ["--csv", f"{run}/ldpa.{subset}.csv", "--png", f"{run}/ldpa.{subset}.png"]
        options += ["--results", f"{out}/{RESULTS}"]
        programs.call("fairseq_casrnn.cli", "analyze", "dyck", data, *options)

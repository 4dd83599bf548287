"""A table over several data sets: ``python -m fairseq_casrnn.evaluation.dataset_table OUT``.

Reads the test results in ``OUT/SET/results.jsonl``, which ``evaluate.sh`` writes (or those of
another split, with ``--subset``). If a run has several results, the last one counts. Rows are sets,
columns are models, and cells have the mean accuracy, training seconds and test seconds. The last
row is the average over the sets, as in Table 5 of the S-LSTM paper.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

from fairseq_casrnn.console.program import Parser, run_main, show
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.significance import read_runs

FIELDS = ("accuracy", "train_seconds", "seconds")


def read_results(
    out: Path, subset: str = "test", checkpoint: str | None = None
) -> dict[str, dict[str, list[float | None]]]:
    """For each set and model, the means of ``FIELDS`` over the seeds.

    Args:
        out: folder with ``SET/results.jsonl``.
        subset: the split.
        checkpoint: only use results of this choice of checkpoint.

    Raises:
        UserError: there are no results, or a line is not a result.
    """
    found = {}
    for path in sorted(out.glob("*/results.jsonl")):
        models = read_runs(path, FIELDS, subset, checkpoint=checkpoint)
        if models:
            found[path.parent.name] = models
    if not found:
        raise UserError(
            f"{out} holds no SET/results.jsonl with results of {subset}; run evaluate.sh first"
        )
    return {
        name: {
            arch: [mean(run.get(field) for run in runs.values()) for field in FIELDS]
            for arch, runs in models.items()
        }
        for name, models in found.items()
    }


def mean(values) -> float | None:
    """The mean of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def table(results, average: bool = True) -> list[str]:
    """Lines of a Markdown table. Averages are only given for numbers that all sets have."""
    models = sorted({arch for row in results.values() for arch in row})
    lines = [" | ".join(["| set", *models]) + " |", "|---" * (len(models) + 1) + "|"]
    rows = dict(sorted(results.items()))
    averages = {
        arch: [
            None if None in values else fmean(values)
            for values in zip(*(row[arch] for row in rows.values()), strict=True)
        ]
        for arch in models
        if all(arch in row for row in rows.values())
    }
    if average:
        rows["**average**"] = averages
    for name, row in rows.items():
        lines.append(" | ".join([f"| {name}", *(cell(row.get(arch)) for arch in models)]) + " |")
    return lines


def cell(values: list[float | None] | None) -> str:
    """Accuracy, training seconds (test seconds)."""
    if values is None:
        return "–"
    accuracy, training, test = values
    text = f"{accuracy:.2f}"
    if training is not None:
        text += f", {training:.0f} s"
    return text if test is None else f"{text} ({test:.2f} s)"


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.dataset_table",
        description="Print a table of results over data sets.",
    )
    parser.add_argument("out", type=Path, help="folder with SET/results.jsonl")
    parser.add_argument("--subset", default="test", help="default: test")
    parser.add_argument("--checkpoint", help="only results with this --checkpoint")
    parser.add_argument("--no-average", action="store_true", help="omit the last row")
    args = parser.parse_args(argv)

    def run() -> None:
        results = read_results(args.out, args.subset, args.checkpoint)
        show(table(results, not args.no_average))

    return run_main(run)


if __name__ == "__main__":
    sys.exit(main())

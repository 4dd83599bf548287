"""Markdown tables of several runs, of ``casrnn run table``: ``python -m …evaluation.tables``.

``sets OUT`` reads ``OUT/SET/results.jsonl``. Rows are data sets, columns are models, and cells have
the mean accuracy (F1, for taggers of spans), training seconds and test seconds. The last row is the
average over the sets, as in Table 5 of the S-LSTM paper.

``depths OUT`` reads ``OUT/results.jsonl``. Rows are depths, columns are cells, from the
architectures ``CELL_btec_DEPTH``, as in Table 1 of the depth-gated LSTM paper.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from fairseq_casrnn.console.program import Parser, run_main, show
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.significance import mean_text, read_results, read_runs
from fairseq_casrnn.runs.layout import RESULTS

FIELDS = ("accuracy", "f1", "train_seconds", "seconds")
CELLS = {"GRU": "stacked_gru", "LSTM": "stacked_lstm", "DG-LSTM": "dg_lstm"}
ARCHITECTURE = re.compile(rf"({'|'.join(CELLS.values())})_btec_([0-9]+)")


def table_of_sets(out: Path, subset: str = "test", average: bool = True) -> list[str]:
    """The table over data sets; averages are only given for numbers that all sets have.

    Raises:
        UserError: there are no results, or a line is not a result.
    """
    rows: dict[str, dict[str, list[float | None]]] = {}
    for path in sorted(out.glob(f"*/{RESULTS}")):
        if found := read_runs(path, FIELDS, subset):
            rows[path.parent.name] = {
                arch: [mean(run.get(field) for run in runs.values()) for field in FIELDS]
                for arch, runs in found.items()
            }
    if not rows:
        raise UserError(
            f"{out} holds no SET/{RESULTS} with results of {subset}; evaluate the runs first"
        )
    models = sorted({arch for row in rows.values() for arch in row})
    if average:
        rows["**average**"] = {
            arch: [
                None if None in values else mean(values)
                for values in zip(*(row[arch] for row in rows.values()), strict=True)
            ]
            for arch in models
            if all(arch in row for row in rows.values())
        }
    cells = ([name, *(cell(row.get(arch)) for arch in models)] for name, row in rows.items())
    return markdown(["set", *models], cells)


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def cell(values: Sequence[float | None] | None) -> str:
    """Accuracy or F1, training seconds (test seconds)."""
    if values is None:
        return "–"
    accuracy, f1, training, test = values
    text = f"{accuracy if f1 is None else f1:.2f}"
    if training is not None:
        text += f", {training:.0f} s"
    return text if test is None else f"{text} ({test:.2f} s)"


def table_of_depths(out: Path, checkpoint: str | None = None) -> list[str]:
    """The table of BLEU by depth and cell, mean ± deviation over seeds; "–" without runs.

    Raises:
        UserError: there are no results of ``checkpoint``, or a line is not a result.
    """
    results = read_results([out / RESULTS], "bleu", checkpoint=checkpoint)
    depths = {int(found[2]) for arch in results if (found := ARCHITECTURE.fullmatch(arch))}
    if not depths:
        raise UserError(f"{out / RESULTS} has no result of CELL_btec_DEPTH; evaluate runs first")
    rows = []
    for depth in sorted(depths):
        scores = [results.get(f"{name}_btec_{depth}") for name in CELLS.values()]
        rows.append([str(depth), *(mean_text(one.values()) if one else "–" for one in scores)])
    return markdown(["Depth", *CELLS], rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    first, *others = (f"| {' | '.join(row)} |" for row in (head, *rows))
    return [first, "|---" * len(head) + "|", *others]


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.tables",
        description="Print a table of results over data sets, or over depths.",
    )
    parser.add_argument("rows", choices=("sets", "depths"), help="what the rows are")
    parser.add_argument("out", type=Path, help=f"folder with SET/{RESULTS}, or with {RESULTS}")
    parser.add_argument("--subset", default="test", help="split, for sets (default: test)")
    parser.add_argument("--no-average", action="store_true", help="omit the last row, for sets")
    parser.add_argument("--checkpoint", help="only results with this --checkpoint, for depths")
    args = parser.parse_args(argv)

    def tabulate() -> None:
        if args.rows == "sets":
            show(table_of_sets(args.out, args.subset, not args.no_average))
        else:
            show(table_of_depths(args.out, args.checkpoint))

    return run_main(tabulate)


if __name__ == "__main__":
    sys.exit(main())

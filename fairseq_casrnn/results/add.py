"""``casrnn results add``: add the records of trained and evaluated runs to a page's rows."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import fairseq_casrnn
from fairseq_casrnn.console.program import show
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.paired import compare_with_baseline
from fairseq_casrnn.evaluation.significance import is_of_split
from fairseq_casrnn.results.page import Page, Table, load_pages
from fairseq_casrnn.results.rows import (
    Row,
    append,
    check_no_repetition,
    check_row,
    is_finite,
    read_rows,
)
from fairseq_casrnn.runs import record
from fairseq_casrnn.runs.layout import RECORD

PRECISIONS = {"highest": "float32"}  # others as torch and fairseq name them


@dataclass(frozen=True)
class Run:
    """A trained and evaluated run.

    Args:
        folder: its folder of checkpoints.
        content: its record, ``run.json``.
    """

    folder: Path
    content: dict

    def evaluations(self, subset: str) -> list[dict]:
        """The evaluations on a split, without those that had options of fairseq-generate."""
        return [one for one in self.content.get("evaluations", []) if is_of_split(one, subset)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Add evaluated runs to results/PAGE.jsonl, one line per run, from the run.json "
        "in their folders. Then run casrnn results render."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of checkpoints")
    parser.add_argument(
        "--table",
        metavar="PAGE/TABLE",
        help="table to add the run to (default: the table of the run's recipe)",
    )
    parser.add_argument("--system", help="name of the row (default: the recipe's)")
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting that distinguishes the row from others of its system; may be repeated",
    )
    parser.add_argument("--checkpoint", help="evaluation to use, if there are several")
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="RUN",
        help="run of the table's baseline to compare with on the test sentences (default: the "
        "one with the same seed beside this run)",
    )
    parser.add_argument(
        "--reduced", help="description of the reduced data, if not the whole data set was used"
    )
    parser.add_argument("--note", help="a note below the table")
    add_folder_argument(parser)


def add_folder_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of the pages' data."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        help="folder of the results data (default: results)",
    )


def run(args: argparse.Namespace) -> None:
    """Run the command; if one run cannot be added, none is.

    Raises:
        UserError: a run has no commit, lacks metrics, or was already added.
    """
    pages = load_pages(args.results)
    added: dict[Path, list[Row]] = {}
    for folder in args.runs:
        one = Run(folder, record.read(folder))
        if not one.content:
            raise UserError(f"{folder} has no run.json; train and evaluate it with this version")
        page, table = destination(pages, args.table, one)
        added.setdefault(page.rows_path, []).append(row_of(one, table, args))
    for path, rows in added.items():
        check_no_repetition([*read_rows(path), *rows], path)
    for path, rows in added.items():
        append(path, rows)
        show([f"{path}: {row['system']} with seed {row['seed']}" for row in rows])


def destination(pages: list[Page], wanted: str | None, run: Run) -> tuple[Page, Table]:
    """The table PAGE/TABLE ``wanted``, or that of the run's recipe.

    Raises:
        UserError: there is none.
    """
    recipe = run.content.get("recipe", "")
    for page in pages:
        for table in page.tables.values():
            name = f"{page.path.stem}/{table.name}"
            if name == wanted if wanted else recipe and table.recipe == recipe:
                return page, table
    if wanted:
        names = (f"{page.path.stem}/{name}" for page in pages for name in page.tables)
        raise UserError(f"--table {wanted} does not exist; choose from {', '.join(names)}")
    raise UserError(
        f"no page has a table for {run.folder}, a run of {recipe or 'no recipe'}; choose one with "
        "--table"
    )


def row_of(run: Run, table: Table, args: argparse.Namespace) -> Row:
    """The row of a run.

    Raises:
        UserError: the run may not be added, see :func:`run`.
    """
    check_reproducible(run)
    content, evaluation = run.content, chosen_evaluation(run, table, args.checkpoint)
    machine, device = content.get("machine", {}), content.get("device")
    parts = [f"{machine['cores']} cores"] if "cores" in machine else []
    parts += [str(machine[name]) for name in ("cpu", "instructions") if machine.get(name)]
    row = {
        "table": table.name,
        "system": args.system or content.get("system") or content.get("arch"),
        "settings": variables_of(run, table) | settings_of(args.setting),
        "seed": content.get("seed"),
        "metrics": metrics_of(run, evaluation, table),
        "paired": paired(run, evaluation, table, args.baseline),
        "curves": curves_of(run, table),
        "reduced": args.reduced,
        "vectors": vectors_of(content.get("training", "")),
        "precision": PRECISIONS.get(str(content.get("precision")), content.get("precision")),
        "parameters": content.get("parameters"),
        "minutes": round(content["seconds"] / 60, 1) if "seconds" in content else None,
        "machine": ", ".join(parts),
        "device": None if device == "cpu" else device,
        "threads": machine.get("threads"),
        "load": content.get("load"),
        "date": content.get("date"),
        "command": portable(content.get("command") or content.get("training") or "", run),
        "evaluation": portable(evaluation.get("command") or "", run),
        "commit": content["package"]["commit"],
        "versions": content.get("versions"),
        "data": {k: v for k, v in content.get("data", {}).items() if k != "folder"},
        "note": args.note,
    }
    row = {key: value for key, value in row.items() if value not in (None, {}, "")}
    check_row(row, f"{run.folder}/{RECORD}")
    for key in ("system", "seed"):
        if key not in row:
            raise UserError(f"{run.folder}/{RECORD} has no {key}; train it with this version")
    return row


def portable(command: str, run: Run) -> str:
    """A command without the paths of the machine that it ran on, and without a last ``--``.

    Paths inside the checkout that trained become relative to it; others lose their folders.
    """
    training = run.content.get("training", "")
    root = re.search(rf"--user-dir (/\S*)/{fairseq_casrnn.__name__}\b", training)

    def shortened(path: re.Match) -> str:
        inside = root and path[0].removeprefix(f"{root[1]}/")
        return inside if inside and inside != path[0] else Path(path[0]).name

    return re.sub(r"(?<![^\s='\"])/[^\s:'\"]+", shortened, command).removesuffix(" --")


def check_reproducible(run: Run) -> None:
    """Raise UserError if a run is not reproducible: without a commit, or interrupted."""
    package = run.content.get("package", {})
    if not package.get("commit"):
        raise UserError(
            f"{run.folder} was not trained in a checkout of this package, so that its commit is "
            "unknown; train it in one"
        )
    if package.get("modified"):
        raise UserError(
            f"{run.folder} was trained with changes that are not in commit {package['commit']}; "
            "commit them and train again"
        )
    if not run.content.get("finished"):
        raise UserError(f"{run.folder} was interrupted; train on to its end, then evaluate again")


def chosen_evaluation(run: Run, table: Table, checkpoint: str | None) -> dict:
    """The evaluation for a table. Raises UserError unless there is exactly one."""
    found = [
        one
        for one in run.evaluations(table.subset)
        if one.get("finished") is not False and checkpoint in (None, one.get("checkpoint"))
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        wanted = f"{table.subset} of checkpoint {checkpoint}" if checkpoint else table.subset
        raise UserError(f"{run.folder} has no evaluation on {wanted}; evaluate it first")
    names = [name for name in record.SETTINGS if name != "subset"]
    settings = [", ".join(f"{name} {one[name]}" for name in names if name in one) for one in found]
    choose = "choose one with --checkpoint, or "
    if len({one.get("checkpoint") for one in found}) == 1:
        choose = ""
    raise UserError(
        f"{run.folder} has {len(found)} evaluations on {table.subset} ({'; '.join(settings)}); "
        f"{choose}remove the others from 'evaluations' in its {RECORD}"
    )


def metrics_of(run: Run, evaluation: dict, table: Table) -> dict[str, float]:
    """The table's metrics; ``valid_X`` are validation scores of the evaluated weights.

    Raises:
        UserError: one is missing.
    """
    known = validation_of(run, evaluation.get("checkpoint", "best")) | evaluation
    found = {name: known[name] for name in table.metrics if name in known}
    for name in table.metrics:
        if name in table.optional or is_finite(found.get(name)):
            continue
        again = "evaluate it again"
        if name.startswith("valid_"):
            again = f"evaluate checkpoint {evaluation.get('checkpoint')} with --subset valid, too"
        raise UserError(
            f"{run.folder}: the evaluation has no number '{name}', a column of the table; {again}, "
            "or list the column under optional"
        )
    return found


def validation_of(run: Run, checkpoint: str) -> dict[str, object]:
    """Metrics ``valid_X`` from an evaluation of the checkpoint on the validation set.

    Without such an evaluation, those of the best checkpoint come from training.
    """
    found = run.content.get("best", {}) if checkpoint == "best" else {}
    for one in run.evaluations("valid"):
        if one.get("checkpoint", "best") == checkpoint:
            found = found | {name: value for name, value in one.items() if is_finite(value)}
    return {f"valid_{name}": value for name, value in found.items()}


def curves_of(run: Run, table: Table) -> dict[str, dict[str, float]]:
    """The table's curves ``valid_X``: the validation metric X by epoch."""
    found = {}
    for name in table.curves:
        key = name.removeprefix("valid_")
        known = [one for one in run.content.get("validation", []) if {"epoch", key} <= one.keys()]
        points = {str(one["epoch"]): one[key] for one in known}
        if key != name and points:
            found[name] = points
    return found


def paired(
    run: Run, evaluation: dict, table: Table, baseline: Path | None
) -> dict[str, dict[str, object]]:
    """The paired test against the baseline's run, if both have predictions.

    Raises:
        UserError: ``baseline`` is not such a run, or was evaluated on other sentences; or the
            predictions of one of them are of another checkpoint than ``evaluation``.
    """
    if not table.baseline or run.content.get("system") == table.baseline:
        return {}
    folder = Path(os.path.abspath(run.folder))  # of "." and "..", too
    beside = folder.parent.parent / table.baseline / folder.name
    other = Run(baseline or beside, record.read(baseline or beside))
    if baseline and other.content.get("system") != table.baseline:
        raise UserError(
            f"--baseline {baseline} is not a run of {table.baseline}, the table's baseline"
        )
    found = compare_with_baseline(run.folder, other.folder, table.subset, table.compare)
    if baseline and not found:
        raise UserError(f"{run.folder} and {baseline} have no predictions in common; evaluate both")
    if found is None:
        return {}
    for one in (run, other):
        check_predicted_by(one, table.subset, evaluation.get("checkpoint"))
    return {table.baseline: {"test": found.test, "p": float(f"{found.p:.5g}")}}


def check_predicted_by(run: Run, subset: str, checkpoint: str | None) -> None:
    """Raise UserError if the predictions of the last evaluation are of another checkpoint."""
    last = run.evaluations(subset)[-1:]
    if last and last[0].get("checkpoint") != checkpoint:
        raise UserError(
            f"the predictions for {subset} in {run.folder} are of checkpoint "
            f"{last[0].get('checkpoint')}, which was evaluated last; evaluate {checkpoint} again"
        )


def variables_of(run: Run, table: Table) -> dict[str, str]:
    """The settings given as environment variables in the command as it was typed."""
    words = shlex.split(run.content.get("command") or "")
    typed = itertools.takewhile(lambda pair: pair[1], (word.partition("=") for word in words))
    return {table.variables[name]: value for name, _, value in typed if name in table.variables}


def settings_of(words: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` as a dictionary. Raises UserError for another word."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UserError(f"--setting {word} is not NAME=VALUE")
        found[name] = value
    return found


def vectors_of(training: str) -> str:
    """The file name of pretrained vectors in a training's command line, or "none"."""
    found = re.search(r"--(?:en|de)coder-embed-path[ =](\S+)", training)
    return Path(found[1]).name if found else "none"

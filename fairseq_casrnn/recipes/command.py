"""``casrnn run STEP RECIPE``: what its options are, step and recipe say."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.data.command import Parser, run_main
from fairseq_casrnn.errors import UserError

STEPS = {
    "prepare": "have the corpus prepared; options are those of its reader",
    "train": "train the recipe's systems",
    "evaluate": "evaluate trained systems on the test set",
    "table": "train and evaluate all that a table compares, and print it",
}
REMEDY = (
    "call make install in the repository first, or activate the environment that has this package, "
    "or name its Python in the variable PYTHON"
)


def main(argv: Sequence[str]) -> int:
    """Run ``casrnn run`` with ``argv`` and return its exit status."""
    parser = Parser(
        prog="casrnn run",
        description="A step of an experiment that a YAML file describes.",
        epilog="; ".join(f"{name}: {text}" for name, text in STEPS.items()) + ". casrnn run STEP "
        "RECIPE --help lists the options of a step; --dry-run prints the command lines.",
    )
    parser.add_argument("step", choices=STEPS, metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="its YAML file")
    args = parser.parse_args(argv[:2])
    return run_main(lambda: run(args.step, args.recipe, argv[2:]))


def run(step: str, path: Path, argv: Sequence[str]) -> None:
    """Run a step. Raises UserError for mistakes, SystemExit where a program fails."""
    if importlib.util.find_spec("fairseq_cli") is None:
        python = os.environ.get("PYTHON") or sys.executable
        raise UserError(f"{python} does not run or has no fairseq; {REMEDY}")
    from fairseq_casrnn.recipes import steps, tables
    from fairseq_casrnn.recipes.recipe import load

    steps = {
        "prepare": steps.prepare,
        "train": steps.train,
        "evaluate": steps.evaluate,
        "table": tables.table,
    }
    steps[step](load(path), argv)

"""``casrnn run STEP RECIPE``; the options depend on the step and the recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.console.program import Parser, run_main
from fairseq_casrnn.recipes import steps, tables
from fairseq_casrnn.recipes.recipe import load

# Each step is a function of the recipe and the remaining arguments.
STEPS = {
    "prepare": (steps.prepare, "prepare the corpus, with the options of its reader"),
    "train": (steps.train, "train the recipe's systems"),
    "evaluate": (steps.evaluate, "evaluate trained systems on the test set"),
    "table": (tables.table, "train and evaluate all systems of a table, and print the table"),
}


def main(argv: Sequence[str]) -> int:
    """Run ``casrnn run`` with ``argv`` and return its exit status."""
    parser = Parser(
        prog="casrnn run",
        description="Run a step of an experiment described in a YAML file.",
        epilog="; ".join(f"{name}: {text}" for name, (_, text) in STEPS.items()) + ". casrnn run "
        "STEP RECIPE --help lists the options of a step; --dry-run prints the commands.",
    )
    parser.add_argument("step", choices=STEPS, metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="the YAML file")
    args = parser.parse_args(argv[:2])
    step, _ = STEPS[args.step]
    return run_main(lambda: step(load(args.recipe), argv[2:]))

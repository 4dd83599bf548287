"""The steps of a recipe: prepare, train, evaluate."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_casrnn.console.program import Parser
from fairseq_casrnn.console.programs import Programs
from fairseq_casrnn.data.prepared import prepared_options, read_json
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.kinds import TRANSLATION
from fairseq_casrnn.recipes import dyck
from fairseq_casrnn.recipes.options import (
    Step,
    StepOptions,
    check_prepared,
    each_part,
    parse,
)
from fairseq_casrnn.recipes.recipe import KINDS, Recipe, as_arguments
from fairseq_casrnn.recipes.training import Training

RESUMED = """\
The same command resumes an interrupted training from its last checkpoint, and leaves a finished
one as it is. --max-epoch, --max-update and --total-num-update can extend a training if the
learning rate allows it (a rate that has fallen to zero stays there or jumps up). A training with
other options or data needs another --out. The recipe has the settings; options after -- override
them. Training uses the GPU if there is one."""
# Options that the names of a run's folders stand for, and what sets them.
IN_FOLDER = {"--arch": "--arch", "-a": "--arch", "--seed": "--seed", "--save-dir": "--out"}
RECORDED = """\
Appends a JSON line for each run to results.jsonl in --out, and prints mean ± deviation over
seeds."""


def prepare(recipe: Recipe, argv: Sequence[str]) -> None:
    """Prepare the corpus by its reader, which gets all options except ``--dry-run``."""
    if recipe.parts.option:
        about = f"All other options are those of the reader: python -m {recipe.reader} --help."
        step = Step("prepare", ("parts", "out"), about, reads_others=True)
        options = parse(step, recipe, argv)
        options.data = options.out
        list(prepared_parts(recipe, options))
        return
    parser = Parser(add_help=False)
    for name in ("--out", "--raw", "--archive", "--workers"):
        parser.add_argument(name)
    for name in ("--force", "--dry-run"):
        parser.add_argument(name, action="store_true")
    found, others = parser.parse_known_args(argv)
    options = StepOptions(data=found.out or str(recipe.data), dry_run=found.dry_run)
    call_reader(recipe, options, [word for word in argv if word != "--dry-run"])
    if not others and not found.dry_run:  # other options may change the counts
        check_counts(recipe, Path(options.data))


def prepared_parts(recipe: Recipe, options: StepOptions) -> Iterator[tuple[Recipe, StepOptions]]:
    """Prepare the chosen parts, and yield the recipe and the options for each."""
    if not recipe.parts.values:  # the reader makes a folder for each part
        own = [f"--{recipe.parts.option}", *options.parts] if options.parts else []
        call_reader(recipe, options, [*options.others, *own])
    for part, where in each_part(recipe, options):
        if recipe.parts.values:
            call_reader(part, where, [*options.others, *as_arguments(part.parts.prepare)])
        yield part, where


def check_counts(recipe: Recipe, folder: Path) -> None:
    """Note on standard error if a prepared folder has other counts than the recipe."""
    for path in (folder / "data-bin" / "prepare.json", folder / "text" / "prepare.json"):
        notes = read_json(path) if path.is_file() else recipe.counts
        for name, count in recipe.counts.items():
            if str(notes.get(name)) != count:
                print(
                    f"note: {name}: {notes.get(name)}, but the official files of {recipe.title} "
                    f"give {count}; check that no file is missing",
                    file=sys.stderr,
                )


def call_reader(recipe: Recipe, options: StepOptions, argv: Sequence[str]) -> None:
    """Run the reader with ``argv``, and with ``--out DATA`` unless that is given.

    Raises:
        UserError: the recipe's folder has no such file.
        SystemExit: the reader failed.
    """
    program, *arguments = recipe.reader.split()
    if program.endswith(".py"):
        program = str(recipe.folder / program)
        if not Path(program).is_file():
            raise UserError(
                f"{recipe.path}: the reader {program} does not exist; correct the key reader, or "
                "write the file"
            )
    if not any(word.partition("=")[0] in ("--out", "-h", "--help") for word in argv):
        arguments += ["--out", options.data]
    Programs(options.dry_run).call(program, *arguments, *argv)


def train(recipe: Recipe, argv: Sequence[str]) -> None:
    """Train the chosen systems with the chosen seeds."""
    names = ("arch", "seed", "seeds", "data", "out", "vectors", "tiny", "parts")
    systems = f"Systems: {' '.join(recipe.systems)}." if recipe.systems else ""
    defaults = ", ".join(f"{name} ({value or 'none'})" for name, value in recipe.variables.items())
    variables = f"Environment variables, and their defaults: {defaults}." if defaults else ""
    paragraphs = [RESUMED, systems, variables, recipe.about]
    about = "\n\n".join(textwrap.fill(text, 98) for text in paragraphs if text)
    options = parse(Step("train", names, about, "fairseq-train"), recipe, argv)
    for part, where in each_part(recipe, options):
        train_systems(part, where)


def train_systems(recipe: Recipe, options: StepOptions) -> None:
    """Train the chosen systems with the chosen seeds."""
    check_prepared(options)
    for training in trainings(recipe, options):
        training.train(Programs(options.dry_run))


def trainings(recipe: Recipe, options: StepOptions, look_up: bool = False) -> Iterator[Training]:
    """The chosen systems with the chosen seeds.

    Raises:
        UserError: a system is unknown, see :meth:`.Recipe.check_system` for ``look_up``; or an
            option after ``--`` contradicts the folder.
    """
    for option in (word.partition("=")[0] for word in options.extra):
        if option in IN_FOLDER:
            raise UserError(
                f"{option} after -- contradicts the folder OUT/SYSTEM/seedN; "
                f"give {IN_FOLDER[option]} before -- instead"
            )
    vectors = chosen_vectors(options)
    extra = ["--max-epoch", "1", *options.extra] if options.tiny else options.extra
    archs = options.arch or ([recipe.tiny] if options.tiny else recipe.archs)
    for arch in archs:
        recipe.check_system(arch, look_up and arch not in recipe.archs)
    for arch in archs:
        settings = recipe.training_options(arch, extra, vectors)
        for seed in options.seed or recipe.seeds:
            yield Training(arch, seed, options.out, options.data, settings, *recipe.source)


def chosen_vectors(options: StepOptions) -> str:
    """The file of pretrained vectors, by default that of prepare; empty if there is none.

    Says on standard error if it has vectors for words that the data leaves out.
    """
    prepared = prepared_options(options.data)
    known = prepared.get("vectors") or ""
    if options.vectors and prepared.get("vocabulary") == "train" and not known:
        print(
            f"note: {options.data} has the words of the training set alone, so that other words "
            "get no vector; prepare it with --vectors FILE",
            file=sys.stderr,
        )
    return options.vectors or known


def evaluate(recipe: Recipe, argv: Sequence[str]) -> None:
    """Evaluate the chosen runs, or all runs."""
    if recipe.kind == "brackets":
        return dyck.evaluate(recipe, argv)
    kind = KINDS[recipe.kind]
    names = ("parts", "arch", "seed", "seeds", "data", "out", "checkpoint", kind.option, "baseline")
    program = "fairseq-generate" if kind is TRANSLATION else ""
    options = parse(Step("evaluate", names, RECORDED, program), recipe, argv)
    for part, where in each_part(recipe, options):
        evaluate_systems(part, where)


def evaluate_systems(recipe: Recipe, options: StepOptions) -> None:
    """Evaluate the chosen runs."""
    check_prepared(options)
    kind = KINDS[recipe.kind]
    words = ["--data", options.data, "--out", options.out]
    words += ["--arch", *options.arch] if options.arch else []
    words += ["--seed", *options.seed] if options.seed else []
    for name in ("checkpoint", kind.option, "baseline"):
        value = getattr(options, name)
        words += [f"--{name}", value] if value else []
    words += as_arguments(recipe.evaluation)
    words += ["--", *options.extra] if kind is TRANSLATION else []
    Programs(options.dry_run).call(f"fairseq_casrnn.evaluation.{kind.evaluator}", *words)

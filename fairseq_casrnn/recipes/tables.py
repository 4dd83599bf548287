"""Tables: train and evaluate all systems that a table compares, and print it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.console.programs import Programs
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.recipes.options import Step, parse
from fairseq_casrnn.recipes.recipe import KINDS, Recipe, as_arguments
from fairseq_casrnn.recipes.steps import evaluate_systems, prepared_parts, train_systems

TABLES = "fairseq_casrnn.evaluation.tables"
COMPARABLE = [name for name, kind in KINDS.items() if kind.is_labelled]  # by ``tables sets``


def table(recipe: Recipe, argv: Sequence[str]) -> None:
    """Make the table of a recipe.

    Raises:
        UserError: it has no parts, variants or depths, or has them for a kind without a table.
    """
    if (recipe.parts.option or recipe.variants) and recipe.kind not in COMPARABLE:
        raise UserError(
            f"{recipe.path} has no table: its kind is {recipe.kind}, and only those of "
            f"{' and '.join(COMPARABLE)} compare parts or variants; call train and evaluate"
        )
    if recipe.parts.option:
        return table_of_parts(recipe, argv)
    if recipe.variants:
        return table_of_variants(recipe, argv)
    if recipe.depths:
        return table_of_depths(recipe, argv)
    raise UserError(f"{recipe.path} has no table; give it parts, variants or depths")


def table_of_parts(recipe: Recipe, argv: Sequence[str]) -> None:
    """Prepare, train and evaluate each part; the table has a row for each and their average."""
    names = ("parts", "arch", "seed", "seeds", "data", "out", "vectors", "tiny")
    about = "All other options, such as --raw, are those of prepare."
    step = Step("table", names, about, "fairseq-train", reads_others=True)
    options = parse(step, recipe, argv)
    if options.vectors:
        options.others = ["--vectors", options.vectors, *options.others]
    for part, where in prepared_parts(recipe, options):
        train_systems(part, where)
        evaluate_systems(part, where)
    Programs(options.dry_run).call(TABLES, "sets", options.out, "--subset", options.subset)


def table_of_variants(recipe: Recipe, argv: Sequence[str]) -> None:
    """Train and evaluate each variant in its own folder; the table has a row for each."""
    names = ("variant", "seed", "seeds", "data", "out", "vectors", "subset")
    options = parse(Step("table", names, recipe.about, "fairseq-train"), recipe, argv)
    labels = Path(options.data, "data-bin", "label", f"{options.subset}.idx")
    if not options.dry_run and not labels.is_file():
        raise UserError(
            f"{options.data} has no split '{options.subset}'; choose --subset from train, valid "
            "and test"
        )
    for name, variant in recipe.variants.items():
        if options.variant and name not in options.variant:
            continue
        own = as_arguments({key: value for key, value in variant.items() if key != "arch"})
        out, extra = f"{options.out}/{name}", [*own, *options.extra]
        system = dataclasses.replace(options, out=out, arch=[variant["arch"]], extra=extra)
        train_systems(recipe, system)
        evaluate_systems(recipe, dataclasses.replace(options, out=out))
    words = ("sets", options.out, "--subset", options.subset, "--no-average")
    Programs(options.dry_run).call(TABLES, *words)


def table_of_depths(recipe: Recipe, argv: Sequence[str]) -> None:
    """Train and evaluate the systems of the chosen depths; the table has a row for each depth."""
    names = ("depth", "seed", "seeds", "data", "out", "checkpoint")
    options = parse(Step("table", names, recipe.about, "fairseq-train"), recipe, argv)
    options.arch = []
    for depth in options.depth or recipe.depths:
        found = [name for name in recipe.archs if name.endswith(f"_{depth}")]
        if not found:
            known = ", ".join(recipe.depths)
            raise UserError(f"no system has the depth {depth}; choose --depth from {known}")
        options.arch += found
    options.seed = options.seed or list(recipe.seeds)
    train_systems(recipe, options)
    evaluate_systems(recipe, dataclasses.replace(options, extra=[]))
    words = ("depths", options.out, "--checkpoint", options.checkpoint)
    Programs(options.dry_run).call(TABLES, *words)

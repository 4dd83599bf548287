"""Options of a recipe's steps."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_casrnn.console.program import Parser, check_numbers, listed, split_at_dashes
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.significance import BASELINE
from fairseq_casrnn.recipes.recipe import KINDS, Recipe, load
from fairseq_casrnn.runs.layout import check_checkpoint_choice

# Metavariable (empty if the option has no value) and help, with the recipe's values in braces.
OPTIONS = {
    "arch": ("NAME[,…]", "systems or architectures (default: {archs})"),
    "seed": ("N[,…]", "seeds (default: {seeds})"),
    "seeds": ("N", "seeds 1 to N"),
    "data": ("DIR", "folder from prepare (default: %(default)s)"),
    "out": ("DIR", "{out} (default: %(default)s)"),
    "vectors": (
        "FILE",
        "pretrained word vectors in GloVe's or word2vec's text format (default: those of prepare)",
    ),
    "tiny": ("", "train one epoch of {tiny}, or of --arch, to check that everything works"),
    "checkpoint": (
        "WHICH",
        (
            "best, last, an average of N checkpoints (last:N, best:N), or ema for a training "
            "with --store-ema (default: %(default)s)"
        ),
    ),
    "beam": ("N", "beam size (default: %(default)s)"),
    "subset": ("NAME", "split to evaluate (default: %(default)s)"),
    "baseline": (
        "NAME",
        f"system to {BASELINE}",
    ),
    "cache": ("N", "for continuous text: also evaluate with a cache of the last N words"),
    "parts": ("NAME[,…]", "some of {parts} (default: all)"),
    "variant": ("NAME[,…]", "some of {variants} (default: all)"),
    "depth": ("N[,…]", "depths (default: {depths})"),
}
LISTS = ("arch", "seed", "parts", "variant", "depth")


@dataclass(frozen=True)
class Step:
    """The command line of a recipe's step.

    Args:
        name: name of the step.
        options: names of :data:`OPTIONS`.
        about: text at the end of --help.
        program: fairseq's program that gets the options after ``--``; "" to refuse them.
        reads_others: whether unknown options are passed to the corpus' reader.
    """

    name: str
    options: Sequence[str]
    about: str = ""
    program: str = ""
    reads_others: bool = False


@dataclass
class StepOptions:
    """The values of :data:`OPTIONS` for a step, and more.

    Lists are empty for the default.

    Args:
        dry_run: whether to print command lines instead of running them.
        extra: options after ``--``.
        others: options of the corpus' reader.
        prepared_by: the command that prepares ``data``, for messages.
    """

    data: str = ""
    out: str = ""
    arch: list[str] = field(default_factory=list)
    seed: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    variant: list[str] = field(default_factory=list)
    depth: list[str] = field(default_factory=list)
    vectors: str = ""
    tiny: bool = False
    checkpoint: str = "best"
    beam: str = "10"
    subset: str = "test"
    baseline: str = ""
    cache: str = ""
    dry_run: bool = False
    extra: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    prepared_by: str = ""


def make_parser(step: Step, recipe: Recipe) -> argparse.ArgumentParser:
    """The parser of a recipe's step. Raises UserError if parts.option is another option."""
    if recipe.parts.option in {"help", "dry-run", *OPTIONS} - {"parts"}:
        raise UserError(
            f"{recipe.path}: parts.option is {recipe.parts.option}, which is an option of recipes; "
            "choose another name"
        )
    behind = f" [-- options of {step.program}]" if step.program else ""
    parser = Parser(
        prog=f"casrnn run {step.name} {recipe.path}",
        usage=f"%(prog)s [options]{behind}",
        description=recipe.title,
        epilog=step.about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name in step.options:
        if (name == "parts" and not recipe.parts.option) or (name == "tiny" and not recipe.tiny):
            continue
        if name == "vectors" and not KINDS[recipe.kind].is_labelled:
            continue
        option = recipe.parts.option if name == "parts" else name
        parser.add_argument(f"--{option}", dest=name, **argument_of(name, step, recipe))
    text = "print the commands instead of running them"
    parser.add_argument("--dry-run", action="store_true", help=text)
    return parser


def argument_of(name: str, step: Step, recipe: Recipe) -> dict[str, Any]:
    """The keyword arguments of ``add_argument`` for an option."""
    trained, prepared = step.name != "evaluate", step.name == "prepare"
    defaults = {
        "data": str(recipe.data),
        "out": str(recipe.data if prepared else recipe.folder / recipe.out),
        "checkpoint": recipe.checkpoint,
        "subset": recipe.subset,
        "beam": StepOptions.beam,
    }
    metavar, text = OPTIONS[name]
    text = text.format(
        archs=", ".join(recipe.archs) if trained else "all in --out",
        seeds=", ".join(recipe.seeds) if trained else "all in --out",
        out="output folder" if prepared else "folder of the runs, DIR/NAME/seedN",
        parts=", ".join(recipe.parts.values),
        tiny=recipe.tiny,
        variants=" ".join(recipe.variants),
        depths=", ".join(recipe.depths),
    )
    if not metavar:
        return {"action": "store_true", "help": text}
    return {"metavar": metavar, "help": text, "default": defaults.get(name)}


def parse(step: Step, recipe: Recipe, argv: Sequence[str]) -> StepOptions:
    """Parse the options of a recipe's step.

    Raises:
        UserError: a value is out of range, or the step accepts no options after ``--``.
    """
    parser, (own, extra) = make_parser(step, recipe), split_at_dashes(argv)
    if step.reads_others:
        found, others = parser.parse_known_args(own)
    else:
        found, others = parser.parse_args(own), []
    if "--" in argv and not step.program:
        raise UserError("this step accepts no options after --; see --help")
    values: dict[str, Any] = {"checkpoint": recipe.checkpoint, "subset": recipe.subset}
    values |= {name: value for name, value in vars(found).items() if value is not None}
    values |= {name: listed(values[name]) for name in LISTS if name in values}
    values.pop("program", None)  # of every parser
    if seeds := values.pop("seeds", None):
        check_numbers("--seeds", [seeds])
        values["seed"] = [str(seed) for seed in range(1, int(seeds) + 1)]
    options = StepOptions(**values, extra=extra, others=others)
    check_values(options, recipe)
    return options


def check_values(options: StepOptions, recipe: Recipe) -> None:
    """Raise UserError if a value is out of range."""
    for name in options.arch:  # also names of folders
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UserError(f"--arch '{name}' is not an architecture or system; see --help")
    check_numbers("--seed", options.seed)
    check_numbers("--depth", options.depth)
    check_numbers("--beam", [options.beam])
    check_numbers("--cache", [options.cache] if options.cache else [])
    check_checkpoint_choice(options.checkpoint)
    for name in options.variant:
        if name not in recipe.variants:
            known = " ".join(recipe.variants)
            raise UserError(f"there is no variant {name}; choose from {known}")
    if "".join(recipe.parts.values).isdigit():
        for value in options.parts:
            if not re.fullmatch("[0-9]+", value, re.ASCII):
                raise UserError(f"--{recipe.parts.option} must be a number, not '{value}'")


def check_prepared(options: StepOptions) -> None:
    """Raise UserError if the data folder is not prepared."""
    if not options.dry_run and not Path(options.data, "data-bin").is_dir():
        how = options.prepared_by or f"prepare.sh --out {options.data}"
        raise UserError(f"{options.data} is not prepared; run {how} first")


def each_part(recipe: Recipe, options: StepOptions) -> Iterator[tuple[Recipe, StepOptions]]:
    """The recipe and the options for each chosen part; unchanged if the recipe has no parts.

    Parts without values are the folders that the reader has made.

    Raises:
        UserError: it has made none.
    """
    parts = recipe.parts
    if not parts.option:
        yield recipe, options
        return
    made = sorted(path.parent.name for path in Path(options.data).glob("*/data-bin"))
    values = options.parts or parts.values or made
    if not values and not options.dry_run:
        how = f"prepare.sh --out {options.data}"
        raise UserError(f"{options.data} holds no prepared data; run {how} first")
    for value in values:
        part = load(recipe.path, **{parts.variable: value}) if parts.values else recipe
        name = part.parts.folder if parts.values else value
        data, out = (f"{folder}/{name}" for folder in (options.data, options.out))
        how = f"prepare.sh --{parts.option} {value} --out {options.data}"
        yield part, dataclasses.replace(options, data=data, out=out, prepared_by=how)

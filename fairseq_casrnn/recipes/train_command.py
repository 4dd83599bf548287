"""``casrnn train``: train on data from ``casrnn prepare``, with a recipe's settings."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_casrnn.console.program import listed
from fairseq_casrnn.console.programs import Programs
from fairseq_casrnn.data.prepared import (
    LONGEST,
    OLD_TOKENS,
    TOKENS,
    prepared_folder,
    prepared_kind,
    read_json,
)
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.kinds import TRAINED_ON
from fairseq_casrnn.plugin import plugin_options
from fairseq_casrnn.recipes.options import StepOptions, check_values
from fairseq_casrnn.recipes.reading import SHIPPED, read
from fairseq_casrnn.recipes.recipe import Recipe, load
from fairseq_casrnn.recipes.steps import trainings

# (limit, batch size, patience): the first limit above the number of training examples counts.
SIZES = {
    "classification": ((2000, 8, 10), (50_000, 32, 5), (10**9, 64, 3)),
    "tagging": ((2000, 8, 10), (10**9, 16, 5)),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.usage = "casrnn train KIND DIR [options] [-- options of fairseq-train]"
    parser.description = (
        "Train on a folder from casrnn prepare, and print the fairseq-train command. The "
        "settings are a recipe's, chosen by the kind and size of the data; options after "
        "-- override them. Repeat the command to resume an interrupted training."
    )
    parser.add_argument("kind", choices=TRAINED_ON, metavar="KIND", help=", ".join(TRAINED_ON))
    parser.add_argument(
        "folder", type=prepared_folder, metavar="DIR", help="folder from casrnn prepare"
    )
    parser.add_argument("--arch", default="", metavar="NAME[,…]", help=help_on_systems())
    parser.add_argument("--seed", default="1", metavar="N[,…]", help="seeds (default: 1)")
    parser.add_argument(
        "--out", type=Path, help="folder for the runs NAME/seedN (default: DIR/out)"
    )
    parser.add_argument(
        "--carry-state",
        action="store_true",
        help="for language models: train on one continuous text instead of single lines",
    )
    text = "print the commands instead of running them"
    parser.add_argument("--dry-run", action="store_true", help=text)


def run(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        UserError: the folder was not prepared for this kind, or an option is wrong.
        SystemExit: a training failed.
    """
    kind = prepared_kind(args.folder)
    if kind != args.kind:
        raise UserError(f"{args.folder} is prepared for {kind}; call casrnn train {kind}")
    if args.carry_state and kind != "language-model":
        raise UserError(f"--carry-state is for language models, not for {kind}; drop it")
    recipe = find_recipe(kind, args.folder, args.carry_state)
    out = args.out or args.folder / "out"
    options = StepOptions(
        data=str(args.folder),
        out=str(out),
        arch=listed(args.arch),
        seed=listed(args.seed),
        extra=args.extra,
    )
    check_values(options, recipe)
    chosen = list(trainings(recipe, options, look_up=True))
    for training in chosen:
        if not args.dry_run:  # otherwise train prints it
            print(training.command(), flush=True)
        training.train(Programs(args.dry_run))
    if not args.dry_run:
        systems = list(dict.fromkeys(training.name for training in chosen))
        print(f"next: {evaluate_command(args.folder, args.out, systems)}")
        print(f"next: {use_command(kind, args.folder, chosen[-1].folder, args.carry_state)}")


def help_on_systems() -> str:
    """The help of ``--arch``: the default and the systems of each kind."""
    texts = []
    for kind in TRAINED_ON:
        content = read(recipe_path(kind))
        default, systems = content["archs"][0], ", ".join(content.get("systems", ()))
        more = f"; systems: {systems}" if systems else ""
        texts.append(f"{kind}: default {default}{more}")
    return f"systems or architectures ({'. '.join(texts)})"


def evaluate_command(folder: Path, out: Path | None, systems: Sequence[str]) -> str:
    """The command that evaluates the runs in ``out``, or in the default folder.

    If there are several systems, it compares the others with the first one.
    """
    options = [*(["--out", str(out)] if out else []), *plugin_options()]
    options += ["--baseline", systems[0]] if len(systems) > 1 else []
    return shlex.join(["casrnn", "evaluate", str(folder), *options])


def use_command(kind: str, folder: Path, run: Path, carry_state: bool = False) -> str:
    """The command that applies a trained model to a text."""
    path = shlex.join(["--path", str(run), *plugin_options()])
    if kind == "language-model":
        data = shlex.quote(f"{folder}/data-bin")
        reset = "" if carry_state else " --sentence-reset"
        return f"casrnn perplexity {data} {path}{reset}"
    pairs = (folder / "data-bin" / "input1").is_dir()
    text = r"printf 'first text\tsecond text\n'" if pairs else 'echo "your text"'
    return f"{text} | {TRAINED_ON[kind].command} {path}"


def find_recipe(kind: str, folder: Path, carry_state: bool = False) -> Recipe:
    """The recipe with the settings for a prepared folder."""
    path = recipe_path(kind)
    if kind == "language-model":
        return load(path, CARRY="yes" if carry_state else "no")
    where = "text" if kind == "translation" else "data-bin"
    notes = read_json(folder / where / "prepare.json")
    return load(path, **recipe_variables(kind, notes))


def recipe_path(kind: str) -> Path:
    """The file of the recipe for a kind of data."""
    return SHIPPED / f"own_{kind.replace('-', '_')}.yaml"


def recipe_variables(kind: str, notes: Mapping[str, object]) -> dict[str, str]:
    """The recipe's variables for data with the ``notes`` of ``prepare.json``."""
    if kind == "translation":
        # Batches have 1000 tokens, a fifth of them for subword units and padding. Ten epochs, or
        # as many updates as for Multi30k, but at most 60 epochs.
        epoch = int(str(notes[TOKENS if TOKENS in notes else OLD_TOKENS])) * 1.2 / 1000
        updates = max(10 * epoch, min(5000, 60 * epoch), 300)
        return {"UPDATES": str(round(updates))}
    if kind == "tagging":
        count, _, _ = str(notes["train"]).partition(" ")
        spans = "BIOES" in str(notes["spans"])
        found: dict[str, object] = {"METRIC": "f1" if spans else "accuracy"}
    else:
        pairs = "train pairs" in notes
        count = str(notes["train pairs" if pairs else "train sentences"])
        found = {"PAIRS": "yes" if pairs else "no", "LONGEST": notes.get(LONGEST, 1)}
    for below, batch, patience in reversed(SIZES[kind]):
        if int(count) < below:
            found |= {"BATCH": batch, "PATIENCE": patience}
    return {name: str(value) for name, value in found.items()}

"""Average the weights of checkpoints: ``casrnn average``.

fairseq's own script for it is not part of its wheel. This one loads safely (no pickled code) and
writes the result whole or not at all.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn import register
from fairseq_casrnn.diagnostics.checkpoints import explain_failure
from fairseq_casrnn.diagnostics.files import disk_full
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import check_writable, replacing
from fairseq_casrnn.patches.checkpoint_files import check_archive
from fairseq_casrnn.patches.safe_loading import allow_checkpoint_globals

KEPT = ("temperature",)  # buffers that are no weights
_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
_BEST = re.compile(r"checkpoint\.best_.+_(-?\d+(?:\.\d+)?)\.pt")


def find_checkpoints(folder: Path, which: str, maximize: bool | None = None) -> list[Path]:
    """Checkpoints of a training run.

    Args:
        folder: the run's ``--save-dir``.
        which: ``last:N``, the N last epochs, or ``best:N``, the N best of those that
            ``--keep-best-checkpoints`` kept.
        maximize: whether a greater value of the run's metric is the better one; None for what the
            run's options say (``--maximize-best-checkpoint-metric``).

    Raises:
        UserError: fewer than N of them, or ``which`` is none of these.
    """
    match = re.fullmatch(r"(last|best):([1-9]\d*)", which)
    if match is None:
        raise UserError(f"'{which}' is neither last:N nor best:N with N at least 1")
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; name one that a training wrote")
    count = int(match[2])
    pattern, convert = (_EPOCH, int) if match[1] == "last" else (_BEST, float)
    found = sorted(
        (convert(name[1]), path)
        for path in folder.glob("checkpoint*.pt")
        if (name := pattern.fullmatch(path.name))
    )
    if len(found) < count:
        option = "--keep-last-epochs" if match[1] == "last" else "--keep-best-checkpoints"
        raise UserError(
            f"{folder} holds {len(found)} checkpoints for {which}; ask for fewer, take the best or "
            f"last checkpoint, or train for {count} epochs or more with {option} {count}"
        )
    if match[1] == "best" and maximize is None:
        maximize = is_maximized(load(found[0][1]))
    chosen = found[-count:] if match[1] == "last" or maximize else found[:count]
    return [path for _, path in chosen]


def is_maximized(state: dict) -> bool:
    """Whether the training that wrote a checkpoint took greater values of its metric as better."""
    options = (state.get("cfg") or {}).get("checkpoint") or {}
    return bool(options.get("maximize_best_checkpoint_metric"))


def load(path: Path) -> dict:
    """A checkpoint's content on the CPU.

    Raises:
        UserError: no file, a cut or foreign file, or one that holds more than data.
    """
    import torch

    check_archive(str(path))
    allow_checkpoint_globals()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"checkpoint {path} does not exist") from None
    except Exception as err:  # what torch raises for a cut file varies with the place of the cut
        if getattr(err, "filename", None) is not None:  # the system's, on opening
            raise
        raise UserError(explain_failure(str(path), err)) from None
    weights = state.get("model") if isinstance(state, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise UserError(f"{path} is not a fairseq checkpoint")
    return state


def average(paths: Sequence[Path], ema: bool = False) -> dict:
    """The last checkpoint of ``paths`` with the mean of all their weights, optimiser left out.

    Sums are float64; buffers of integers (counters) and temperatures are the last checkpoint's.

    Args:
        paths: of the checkpoints.
        ema: the weights that ``fairseq-train --store-ema`` averaged over its updates, in place of
            those of the last update.

    Raises:
        UserError: no path, models of different shapes, architectures, dictionaries or classes, or
            none that ``ema`` asks for.
    """
    if not paths:
        raise UserError("no checkpoint to average")
    sums: dict = {}
    first = None
    for path in paths:
        state = load(path)
        ours = origin(state)
        first = first or ours
        check_alike(path, ours, paths[0], first)
        if ema:
            state["model"] = averaged_in_training(path, state)
            warn_of_early(path, state)
        model = state["model"]
        if sums and {k: v.shape for k, v in model.items()} != {k: v.shape for k, v in sums.items()}:
            raise UserError(f"{path} and {paths[0]} are checkpoints of different models")
        for name, tensor in model.items():
            value = tensor.double() if tensor.is_floating_point() else tensor.clone()
            if name in sums and tensor.is_floating_point():
                value += sums[name]
            sums[name] = value
    for name, tensor in state["model"].items():
        if tensor.is_floating_point() and name.split(".")[-1] not in KEPT:
            state["model"][name] = (sums[name] / len(paths)).to(tensor.dtype)
    state["last_optimizer_state"] = None
    return state


NOTES = {"words": "dictionaries", "classes": "classes", "characters": "characters"}
"""What a task keeps of its data (of words and characters a digest), and how that is called."""


def origin(state: dict) -> dict[str, object]:
    """Architecture of a checkpoint, ``arch``, and those of NOTES that it has."""
    options = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    if isinstance(options, argparse.Namespace):  # of models without a dataclass
        options = vars(options)
    # The latter in older ones.
    parts = [part for part in (state.get("task_state"), state.get("extra_state")) if part]
    found = {"arch": options.get("_name") or options.get("arch")}
    for note in NOTES:
        found[note] = next((part[note] for part in parts if part.get(note)), None)
    return {name: value for name, value in found.items() if value is not None}


def check_alike(path: Path, ours: dict, other: Path, theirs: dict) -> None:
    """Raise UserError where two checkpoints of those origins are not of one training.

    Of architectures only those differ that are of different models: others differ in sizes. What
    one of them does not say is no difference.
    """
    arch, other_arch = (found.get("arch") for found in (ours, theirs))
    if arch != other_arch and None not in (arch, other_arch):
        register()
        from fairseq.models import ARCH_MODEL_NAME_REGISTRY as MODELS

        if MODELS.get(arch, arch) != MODELS.get(other_arch, other_arch):
            raise UserError(
                f"{path} is of {arch}, but {other} of {other_arch}; average checkpoints of one "
                "model"
            )
    for note, called in NOTES.items():
        if note in ours and note in theirs and ours[note] != theirs[note]:
            raise UserError(
                f"{path} and {other} were trained with different {called}; average checkpoints of "
                "one training"
            )


def averaged_in_training(path: Path, state: dict) -> dict:
    """The weights that ``--store-ema`` keeps in a checkpoint.

    Raises:
        UserError: it was trained without.
    """
    kept = state.get("extra_state") or {}
    if not kept.get("ema"):
        raise UserError(
            f"{path} holds no weights averaged in training (--store-ema); take the best or last "
            "checkpoint, or average several"
        )
    weights = kept.pop("ema")
    return {**weights, **kept.pop("ema_fp32_params", {})}


def warn_of_early(path: Path, state: dict) -> None:
    """Say where a training with ``--store-ema`` had not begun to average."""
    start = ((state.get("cfg") or {}).get("ema") or {}).get("ema_start_update") or 0
    history = state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates", start)
    if updates < start:
        print(
            f"warning: the training of {path} averages its weights from update {start} on "
            f"(--ema-start-update), and has made {updates}: what is written are the weights of its "
            "last update, no averages",
            file=sys.stderr,
        )


def save(state: dict, output: Path) -> None:
    """Write a checkpoint under a temporary name, then move it into place.

    Raises:
        UserError: the disk is full.
        OSError: the file cannot be opened.
    """
    import torch

    try:
        with replacing(output) as draft, open(draft, "wb") as file:
            torch.save(state, file)
    except (OSError, RuntimeError) as err:
        sentence = disk_full(err, output)
        if sentence is None:
            raise
        raise UserError(sentence) from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn average``."""
    parser.add_argument(
        "--run", type=Path, dest="folder", help="folder of checkpoints, used with --which"
    )
    parser.add_argument("--which", help="last:N or best:N (default: last:5)")
    parser.add_argument(
        "--maximize",
        action="store_true",
        help="with best:N: greater metric values are better (default: as the run's options say)",
    )
    parser.add_argument(
        "--ema",
        action="store_true",
        help="the weights that fairseq-train --store-ema averaged, in place of the last update's",
    )
    parser.add_argument("--output", required=True, type=Path, help="output checkpoint")
    parser.add_argument(
        "checkpoints", nargs="*", type=Path, help="checkpoint files, instead of --run"
    )


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError for checkpoints that cannot be averaged."""
    check_writable(args.output)
    if bool(args.folder) == bool(args.checkpoints):
        raise UserError("give either --run DIR or the checkpoint files")
    if args.checkpoints and (args.which or args.maximize):
        raise UserError("--which and --maximize choose from --run DIR; drop them, or the files")
    which = args.which or "last:5"
    if args.maximize and not which.startswith("best"):
        raise UserError(f"--maximize is for --which best:N, not {which}; drop it")
    paths = args.checkpoints or find_checkpoints(args.folder, which, args.maximize or None)
    save(average(paths, args.ema), args.output)
    print(f"averaged {', '.join(path.name for path in paths)} -> {args.output}")

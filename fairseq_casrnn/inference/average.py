"""Average the weights of checkpoints: ``casrnn average``.

fairseq's own script is not part of its wheel. This one loads safely (no pickled code) and writes
the result completely or not at all.
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
from fairseq_casrnn.errors import UserError, counted
from fairseq_casrnn.files import check_writable, replacing
from fairseq_casrnn.patches.checkpoint_files import check_archive
from fairseq_casrnn.patches.safe_loading import allow_checkpoint_globals
from fairseq_casrnn.runs.layout import LAST

KEPT = ("temperature",)  # buffers that are not averaged
_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
_BEST = re.compile(r"checkpoint\.best_.+_(-?\d+(?:\.\d+)?)\.pt")


def find_checkpoints(folder: Path, which: str, maximize: bool | None = None) -> list[Path]:
    """Find checkpoints of a training run.

    Args:
        folder: the run's ``--save-dir``.
        which: ``last:N`` for the last N epochs, or ``best:N`` for the best N of those that
            ``--keep-best-checkpoints`` kept.
        maximize: whether a higher value of the run's metric is better; None to use the run's option
            ``--maximize-best-checkpoint-metric``.

    Raises:
        UserError: there are fewer than N, or ``which`` is invalid.
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
            f"{folder} holds {counted(len(found), 'checkpoint')} for {which}; ask for fewer, "
            f"use the best or last checkpoint, or train for at least {count} epochs "
            f"with {option} {count}"
        )
    if match[1] == "best" and maximize is None:
        maximize = is_maximized(load(found[0][1]))
    chosen = found[-count:] if match[1] == "last" or maximize else found[:count]
    return [path for _, path in chosen]


def is_maximized(state: dict) -> bool:
    """Whether higher values of the metric are better, according to a checkpoint's options."""
    options = (state.get("cfg") or {}).get("checkpoint") or {}
    return bool(options.get("maximize_best_checkpoint_metric"))


def load(path: Path) -> dict:
    """Load a checkpoint on the CPU.

    Raises:
        UserError: the file is missing, damaged, not a fairseq checkpoint, or holds code.
    """
    import torch

    check_archive(str(path))
    allow_checkpoint_globals()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"checkpoint {path} does not exist") from None
    except Exception as err:  # torch raises various types for a truncated file
        if getattr(err, "filename", None) is not None:  # an OSError when opening the file
            raise
        raise UserError(explain_failure(str(path), err)) from None
    weights = state.get("model") if isinstance(state, dict) else None
    tensors = isinstance(weights, dict) and all(map(torch.is_tensor, weights.values()))
    if not weights or not tensors:
        raise UserError(f"{path} is not a fairseq checkpoint")
    return state


def average(paths: Sequence[Path], ema: bool = False) -> dict:
    """The last checkpoint of ``paths`` with the mean of all weights and no optimizer state.

    Sums are float64. Integer buffers (counters) and temperatures are the last checkpoint's.

    Args:
        paths: the checkpoints.
        ema: use the moving averages of ``fairseq-train --store-ema`` instead of the weights.

    Raises:
        UserError: there is no path, the checkpoints differ in shapes, architectures, dictionaries
            or classes, or they lack the moving averages.
    """
    if not paths:
        raise UserError("no checkpoint to average")
    sums: dict = {}
    first = None
    for path in paths:
        state = load(path)
        ours = training_of(state)
        first = first or ours
        check_same_training(path, ours, paths[0], first)
        if ema:
            state["model"] = ema_weights(path, state)
            warn_if_ema_not_started(path, state)
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
"""Keys of a task's state that describe its data (words and characters as digests), and names."""


def training_of(state: dict) -> dict[str, object]:
    """The architecture, ``arch``, of a checkpoint and its entries of NOTES."""
    options = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    if isinstance(options, argparse.Namespace):  # a model without a dataclass
        options = vars(options)
    # Older checkpoints have them in extra_state.
    parts = [part for part in (state.get("task_state"), state.get("extra_state")) if part]
    found = {"arch": options.get("_name") or options.get("arch")}
    for note in NOTES:
        found[note] = next((part[note] for part in parts if part.get(note)), None)
    return {name: value for name, value in found.items() if value is not None}


def check_same_training(path: Path, ours: dict, other: Path, theirs: dict) -> None:
    """Raise UserError unless two checkpoints, as :func:`training_of` describes them, match.

    Architectures of the same model are equal here; they differ in sizes. Missing entries are
    ignored.
    """
    arch, other_arch = (found.get("arch") for found in (ours, theirs))
    if arch != other_arch and None not in (arch, other_arch):
        register()
        from fairseq.models import ARCH_MODEL_NAME_REGISTRY as MODELS

        if MODELS.get(arch, arch) != MODELS.get(other_arch, other_arch):
            raise UserError(
                f"{path} is a {arch}, but {other} is a {other_arch}; average checkpoints of one "
                "model"
            )
    for note, called in NOTES.items():
        if note in ours and note in theirs and ours[note] != theirs[note]:
            raise UserError(
                f"{path} and {other} were trained with different {called}; average checkpoints of "
                "one training"
            )


def ema_weights(path: Path, state: dict) -> dict:
    """The moving averages of the weights that ``--store-ema`` stores in a checkpoint.

    Raises:
        UserError: there are none.
    """
    kept = state.get("extra_state") or {}
    if not kept.get("ema"):
        raise UserError(
            f"{path} holds no weights averaged in training (--store-ema); use the best or last "
            "checkpoint, or average several"
        )
    weights = kept.pop("ema")
    return {**weights, **kept.pop("ema_fp32_params", {})}


def warn_if_ema_not_started(path: Path, state: dict) -> None:
    """Warn if a training with ``--store-ema`` had not started to average."""
    start = ((state.get("cfg") or {}).get("ema") or {}).get("ema_start_update") or 0
    history = state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates", start)
    if updates < start:
        print(
            f"warning: the training of {path} averages weights from update {start} on "
            f"(--ema-start-update), but has made only {updates}: the output has the weights of its "
            "last update, not averages",
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
    parser.add_argument(
        "--which",
        help="last:N or best:N (default: last:5; with --ema, checkpoint_last.pt alone)",
    )
    parser.add_argument(
        "--maximize",
        action="store_true",
        help="with best:N: higher metric values are better (default: as in the run's options)",
    )
    parser.add_argument(
        "--ema",
        action="store_true",
        help="use the weights averaged by fairseq-train --store-ema, not the last update's",
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
    if args.checkpoints:
        paths = args.checkpoints
    elif args.ema and not args.which:
        paths = [args.folder / LAST]
    else:
        paths = find_checkpoints(args.folder, which, args.maximize or None)
    save(average(paths, args.ema), args.output)
    print(f"averaged {', '.join(path.name for path in paths)} -> {args.output}")

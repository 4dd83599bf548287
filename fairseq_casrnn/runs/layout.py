"""The locations of a run's files and of its data.

``OUT/NAME/seedN`` is a run: the system NAME, trained with seed N. ``DIR/data-bin`` is the data of
``casrnn prepare`` or of a recipe, ``DIR/text`` its text, and ``DIR/out`` the default OUT.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_casrnn.data.prepared import binarised_folder, find_languages
from fairseq_casrnn.data.values import natural
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.kinds import TAGGER, kind_of_task

BEST, LAST = "checkpoint_best.pt", "checkpoint_last.pt"
CHECKPOINTS = (BEST, "model.pt", LAST)  # the first one in a folder is the folder's checkpoint
RECORD, LOG = "run.json", "train.log"
IDENTITY = "identity"  # data and options with which casrnn started the training (:mod:`.identity`)
FINISHED = "finished"  # the options with which casrnn finished it
PREDICTIONS, ERRORS = "predictions.tsv", "errors.tsv"  # after "SUBSET."
RESULTS = "results.jsonl"  # in OUT: a line for each evaluation of a run


def run_folder(out: Path, name: str, seed: int | str) -> Path:
    """``OUT/NAME/seedN``."""
    return out / name / f"seed{seed}"


def trained_runs(out: Path) -> dict[tuple[str, int], Path]:
    """The runs in ``out`` that have a checkpoint, by (name, seed)."""
    found = {}
    for path in sorted(out.glob(f"*/seed*/{LAST}")):
        run = path.parent
        seed = natural(run.name.removeprefix("seed"))
        if seed is not None and run.name == f"seed{seed}":
            found[run.parent.name, seed] = run
    return found


def is_interrupted(run: Path) -> bool:
    """Whether casrnn has started the training of a run, but not finished it."""
    return (run / IDENTITY).is_file() and not (run / FINISHED).is_file()


def check_checkpoint_choice(which: str) -> None:
    """Raise UserError if ``which`` is no value of ``--checkpoint``."""
    if not re.fullmatch("best|last|ema|(best|last):[1-9][0-9]*", which, re.ASCII):
        raise UserError(f"--checkpoint must be best, last, ema, best:N or last:N, not '{which}'")


def find_checkpoint(path: Path, name: str | None = None) -> Path:
    """The checkpoint at ``path``, a file or a folder; ``name`` is its name in the folder.

    Raises:
        UserError: there is none.
    """
    if path.is_file():
        return path
    for candidate in (name,) if name else CHECKPOINTS:
        if (path / candidate).is_file():
            return path / candidate
    expected = name or " or ".join(CHECKPOINTS)
    remedy = "check the path" if name else suggested_run(path)
    raise UserError(f"there is no checkpoint at {path} ({expected}); {remedy}")


def suggested_run(path: Path) -> str:
    """A remedy that names the runs in a folder of ``casrnn prepare`` or of runs, if it has some."""
    files = [
        file
        for pattern in ("seed*", "*/seed*", "out/*/seed*")
        for name in CHECKPOINTS
        for file in path.glob(f"{pattern}/{name}")
    ]
    runs = sorted({str(file.parent) for file in files})
    if not runs:
        return "check the path"
    return f"did you mean {runs[0]}?" if len(runs) == 1 else f"name a run in it, such as {runs[0]}"


def find_data(run: Path, given: str | os.PathLike | None, cfg: Mapping[str, Any]) -> Path:
    """The folder with the dictionaries of a training.

    Args:
        run: folder of the checkpoint; a packed model has its dictionaries there.
        given: the folder that the user names, or None to look for it; the folder of ``casrnn
            prepare`` stands for its ``data-bin``.
        cfg: all options of the checkpoint.

    Raises:
        UserError: no folder has all dictionaries.
    """
    # Relative to a run in DIR/out, since DIR may have been moved.
    relative = os.path.normpath(run / ".." / ".." / ".." / "data-bin")
    folders = [run, Path(cfg["task"]["data"] or "."), Path(relative)]
    if given:
        folders = [binarised_folder(given)]
    for folder in folders:
        if all((folder / name).is_file() for name in dictionaries(folder, cfg)):
            return folder
    names = ", ".join(dict.fromkeys(dictionaries(folders[0], cfg)))
    raise UserError(
        f"{names} not found in {' or '.join(map(str, folders))}; name the folder of the training "
        "data (--data), or copy such files to the checkpoint"
    )


def dictionaries(folder: Path, cfg: Mapping[str, Any]) -> list[str]:
    """The file names, within ``folder``, of the dictionaries that a model needs."""
    task = cfg["task"]
    kind = kind_of_task(task["_name"])
    if kind is not None and kind.is_labelled:
        parts = ["input0", "label"]
        if kind is TAGGER and cfg["model"].get("char_filters"):
            parts.append("spelling")
        return [f"{part}/dict.txt" for part in parts]
    if "source_lang" in task:
        return [f"dict.{language or '*'}.txt" for language in languages(folder, cfg)]
    return ["dict.txt"]


def languages(data: Path, cfg: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Source and target language, from the options or, as in fairseq, from file names."""
    source, target = cfg["task"]["source_lang"], cfg["task"]["target_lang"]
    found = find_languages(data) if None in (source, target) else None
    return found or (source, target)

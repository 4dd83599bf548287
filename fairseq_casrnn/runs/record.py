"""Read and write ``run.json``.

Training writes it with each checkpoint (:mod:`.training`), a recipe adds its own command, and each
evaluation adds its scores. It is always written atomically.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import write_json
from fairseq_casrnn.runs.environment import command_line, commit
from fairseq_casrnn.runs.layout import RECORD

NUMBER = (int, float)
#: Keys of a record and their types; unknown values are missing or null.
FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "system": str,  # as the recipe calls it
    "recipe": str,  # FOLDER/NAME of its file
    "command": str,  # as it was typed
    "training": str,  # the command line of fairseq-train
    "arch": str,
    "seed": int,
    "parameters": int,
    "precision": str,  # float32 matmul precision (highest, high, medium), or fp16, bf16
    "device": str,
    "processes": int,
    "machine": dict,  # cpu, instructions, cores, threads
    "package": dict,  # version, commit, modified
    "versions": dict,  # of Python, torch, fairseq
    "data": dict,  # folder, checksum, examples by split
    "date": str,
    "epochs": int,
    "updates": int,
    "seconds": NUMBER,  # training time, including resumed sessions
    "load": NUMBER,  # load average of the last 15 minutes
    "finished": bool,
    "best": dict,  # the validation of the best checkpoint
    "validation": list,  # scores of each validation, with epoch and updates
    "evaluations": list,  # settings and scores, with command, date and package
}
#: A new evaluation of a run replaces an earlier one with equal values of these fields.
SETTINGS = ("subset", "checkpoint", "beam", "mode", "cache", "options")


def read(folder: Path) -> dict:
    """The record of a run; empty if there is none.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / RECORD
    if not path.is_file():
        return {}
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); remove it, and evaluate again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not the record of a run; remove it, and evaluate again")
    for key, value in content.items():
        items = value if isinstance(value, list) else []
        wrong = value is not None and not isinstance(value, FIELDS.get(key, object))
        if wrong or not all(isinstance(item, dict) for item in items):
            raise UserError(f"{path} is damaged ('{key}'); remove it, and evaluate again")
    return {key: value for key, value in content.items() if value is not None}


def update(folder: Path, **fields: object) -> None:
    """Set fields of the record of the run in ``folder``.

    Raises:
        UserError: it is damaged or cannot be written.
    """
    content = read(folder) | fields
    write_json(folder / RECORD, content)


def add_evaluation(folder: Path, result: dict[str, object]) -> None:
    """Add an evaluation; it replaces an earlier one with the same :data:`SETTINGS`.

    Args:
        folder: the run's folder.
        result: settings and scores.

    Raises:
        UserError: the record is damaged or cannot be written.
    """
    kept = [
        earlier
        for earlier in read(folder).get("evaluations", [])
        if any(earlier.get(key) != result.get(key) for key in SETTINGS)
    ]
    origin = {"command": command_line(), "date": time.strftime("%Y-%m-%d"), "package": commit()}
    update(folder, evaluations=[*kept, result | origin])

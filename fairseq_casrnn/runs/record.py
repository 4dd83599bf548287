"""Reading and writing ``run.json``.

Training writes it with each checkpoint (:mod:`.training`), a recipe adds its own command, and each
evaluation adds its scores. It is always written whole.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import whole_file
from fairseq_casrnn.runs.environment import command_line, commit

NAME = "run.json"
#: Evaluations of one run that agree in these replace each other.
SETTINGS = ("subset", "checkpoint", "beam", "mode", "cache", "options")


def read(folder: Path) -> dict:
    """The record of a run, empty where there is none.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / NAME
    if not path.is_file():
        return {}
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); remove it, and evaluate again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is no record of a run; remove it, and evaluate again")
    return content


def update(folder: Path, **fields: object) -> None:
    """Set fields of the record of the run in ``folder``.

    Raises:
        UserError: it is damaged or cannot be written.
    """
    content = read(folder) | fields
    with whole_file(folder / NAME) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def add_evaluation(folder: Path, result: dict[str, object]) -> None:
    """Add an evaluation; it replaces an earlier one with the same :data:`SETTINGS`.

    Args:
        folder: of the run.
        result: settings and scores.

    Raises:
        UserError: the record is damaged or cannot be written.
    """
    kept = [
        earlier
        for earlier in read(folder).get("evaluations", [])
        if any(earlier.get(key) != result.get(key) for key in SETTINGS)
    ]
    made = {"command": command_line(), "date": time.strftime("%Y-%m-%d"), "package": commit()}
    update(folder, evaluations=[*kept, result | made])

"""The rows of a page: ``results/PAGE.jsonl``, one JSON object per line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import write_text

NUMBER = (int, float)
#: Keys of a row and their types. Unknown values are missing.
FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "table": str,  # of the page's YAML file
    "system": str,
    "settings": dict,  # further settings that distinguish the rows of a table: {heading: value}
    "seed": int,
    "seeds": int,  # number of seeds, if the row has only mean and deviation
    "metrics": dict,  # {name: number, text or {"mean": …, "deviation": …}}
    "paired": dict,  # {system: {"test": name, "p": two-sided}}, on the same test sentences
    "curves": dict,  # {name: [number after the first epoch, …] or {x: number}}; null is unknown
    "reduced": str,  # how the data was reduced, if it was
    "vectors": str,  # pretrained word vectors; missing means "none"
    "precision": str,
    "parameters": int,
    "minutes": NUMBER,
    "machine": str,
    "device": str,
    "threads": int,
    "load": (str, *NUMBER),  # other work on the machine: a load average, or words
    "date": str,
    "command": str,
    "evaluation": str,  # the evaluation's command
    "commit": str,
    "versions": dict,
    "data": dict,  # counts and checksum
    "note": str,
}

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file.

    Raises:
        UserError: a line is not a valid row.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist; create it (it may be empty)")
    rows = []
    for number, line in enumerate(read_lines(path, may_be_blank=True), start=1):
        where = f"{path}, line {number}"
        try:
            row = parse_json(line)
        except ValueError as error:
            raise UserError(f"{where} is not JSON ({error}); correct it") from None
        check_row(row, where)
        rows.append(row)
    return rows


def check_row(row: object, where: str) -> None:
    """Raise UserError unless ``row`` has the keys and types of :data:`FIELDS`."""
    if not isinstance(row, dict) or "table" not in row:
        raise UserError(f"{where} is not a JSON object with a 'table'; correct it")
    for key, value in row.items():
        if key not in FIELDS:
            raise UserError(f"{where} has an unknown key '{key}'; use {', '.join(FIELDS)}")
        if not isinstance(value, FIELDS[key]) or isinstance(value, bool):
            raise UserError(f"{where} has a '{key}' of the wrong type; correct it")
    for name, value in row.get("settings", {}).items():
        if name in FIELDS:
            raise UserError(f"{where}: a setting has the name of the field '{name}'; rename it")
        if not isinstance(value, str) and not is_finite(value):
            raise UserError(f"{where}: the setting '{name}' is neither text nor number; correct it")
    for name, found in row.get("paired", {}).items():
        if not isinstance(found, dict) or not is_finite(found.get("p")) or "test" not in found:
            raise UserError(f"{where}: 'paired' needs test and p of '{name}'; correct it")
    for name, curve in row.get("curves", {}).items():
        if not _is_curve(curve):
            raise UserError(
                f"{where}: the curve '{name}' is neither a list of numbers nor {{x: number}}"
            )
    for name, value in row.get("metrics", {}).items():
        values = value.values() if isinstance(value, dict) else [value]
        if isinstance(value, dict) and not {"mean"} <= set(value) <= {"mean", "deviation"}:
            raise UserError(f"{where}: '{name}' needs mean and deviation and nothing else")
        if not all(isinstance(one, str) or is_finite(one) for one in values):
            raise UserError(f"{where}: '{name}' is not a finite number; correct it")


def _is_curve(curve: object) -> bool:
    """Whether it is a list of numbers or a dictionary of numbers by x; null means unknown."""
    if isinstance(curve, dict):
        x_axis, curve = curve, list(curve.values())
        if not all(re.fullmatch(r"[0-9]+(\.[0-9]+)?", x) for x in x_axis):
            return False
    return isinstance(curve, list) and all(y is None or is_finite(y) for y in curve)


def is_finite(value: object) -> bool:
    """Whether a JSON value is a finite number."""
    return isinstance(value, NUMBER) and not isinstance(value, bool) and math.isfinite(value)


def identity(row: Row) -> tuple:
    """The key of a row's line in a table; rows with equal keys must have different seeds."""
    settings = row.get("settings", {})
    own = tuple(sorted((key, str(value)) for key, value in settings.items()))
    return row["table"], row.get("system", ""), own, row.get("reduced"), row.get("vectors", "none")


def check_no_repetition(rows: Iterable[Row], path: Path) -> None:
    """Raise UserError if two rows have the same system, settings and seed."""
    seen: dict[tuple, int] = {}
    for number, row in enumerate(rows, start=1):
        if "metrics" not in row:
            continue
        key = (*identity(row), row.get("seed"))
        if key in seen:
            name, seed = row.get("system", "a row"), row.get("seed", "unknown")
            raise UserError(
                f"{path}: lines {seen[key]} and {number} are both of {name} with seed {seed}; tell "
                "them apart with settings, or remove one"
            )
        seen[key] = number


def append(path: Path, rows: Iterable[Row]) -> None:
    """Append rows to a file, all or none. Raises UserError if it cannot be written."""
    before = path.read_text("utf-8") if path.is_file() else ""
    if before and not before.endswith("\n"):
        before += "\n"
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text(path, before + "".join(lines))

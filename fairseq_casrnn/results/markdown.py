"""A page of results as Markdown."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.significance import mean_deviation
from fairseq_casrnn.results.grouping import Group, compare, groups_of
from fairseq_casrnn.results.page import Page, Table
from fairseq_casrnn.results.rows import Row, identity

#: The points of each curve of a figure, by its label.
Curves = dict[str, dict[str, float]]
GENERATOR = "(written by `casrnn results render` from {})"
MOST_NAMES = 3  # maximum number of row names before a command
AS_IS = -1  # value of a metric's digits that prints numbers as given
#: Fields that get a column if the rows differ, otherwise a sentence below the table.
SHARED = {
    "seeds": "seeds",
    "reduced": "data",
    "vectors": "pretrained vectors",
    "precision": "matmul precision",
    "load": "other load on the machine",
    "machine": "machine",
    "date": "date",
}


def page_text(page: Page, rows: Sequence[Row]) -> str:
    """The Markdown of a page."""
    source = f"`results/{page.rows_path.name}` and `.yaml`"
    parts = [f"# {page.title}", GENERATOR.format(source), page.about]
    for table in page.tables.values():
        own = [row for row in rows if row["table"] == table.name]
        parts += [f"## {table.title}" if table.title else "", table.caption.strip()]
        parts += table_parts(table, own)
        if plotted(table, own):
            parts.append(f"![{table.curves[table.plot]}]({page.figure(table)})")
    return "\n\n".join(part for part in parts if part) + "\n"


def table_parts(table: Table, rows: Sequence[Row]) -> list[str]:
    """A table and the text below it; with ``split``, several."""
    if table.split:
        found = dict.fromkeys((row.get("settings") or {}).get(table.split) for row in rows)
        one = dataclasses.replace(table, split="")
        parts = []
        for value in sorted(found, key=lambda value: value is not None):
            parts.append("" if value is None else f"### {table.title}: {value}")
            parts += table_parts(one, rows_with(rows, table.split, value))
        return parts
    groups = groups_of((row for row in rows if "metrics" in row), table.order or list(table.labels))
    parts = []
    if groups:
        columns = columns_of(table, groups)
        shared = shared_sentence(groups)
        parts += [grid(list(columns), zip(*columns.values(), strict=True)), shared]
    for name, heading in table.curves.items():
        own = [row for row in rows if name in row.get("curves", {})]
        parts += [f"{heading}:", curve_grid(table, name, own)] if own else []
    parts.append("\n".join(f"- {line}" for line in notes(table, rows)))
    parts.append("\n".join(commands(table, rows)))
    return parts


def rows_with(rows: Iterable[Row], name: str, value: object) -> list[Row]:
    """The rows whose setting ``name`` has this value, without that setting."""
    found = []
    for row in rows:
        settings = row.get("settings") or {}
        if settings.get(name) == value:
            rest = {key: other for key, other in settings.items() if key != name}
            found.append(row | {"settings": rest})
    return found


def columns_of(table: Table, groups: Sequence[Group]) -> dict[str, list[str]]:
    """The cells of each column that is not empty, by its heading."""
    columns = [(table.first, [table.label(group.system) for group in groups])]
    for heading in dict.fromkeys(key for group in groups for key in group.settings):
        columns.append((heading, [number(group.settings.get(heading)) for group in groups]))
    for name, heading in table.metrics.items():
        columns.append((heading, metric_cells(table, name, groups)))
    for heading, numbers in table.paper.items():
        columns.append((heading, [paper_cell(table, numbers, group) for group in groups]))
    if table.baseline:
        against = f"p against {table.label(table.baseline)}, and after Holm's correction"
        columns.append((against, p_cells(table, groups)))
    columns.append(("parameters", [parameters(group) for group in groups]))
    columns.append(("minutes", [minutes(group) for group in groups]))
    for name, heading in SHARED.items():
        cells = shared_cells(name, groups)
        if len(set(cells)) > 1:
            columns.append((heading, cells))
    found: dict[str, list[str]] = {}
    for heading, cells in columns:
        if any(cells):
            if heading in found:
                raise UserError(f"table {table.name} has two columns '{heading}'; rename one")
            found[heading] = cells
    return found


def p_cells(table: Table, groups: Sequence[Group]) -> list[str]:
    """Both p-values of each group that can be compared with the baseline, and its test."""
    cells = [""] * len(groups)
    for at, one in compare(groups, table).items():
        cells[at] = f"{one.p:.2g}, {one.corrected:.2g}" + (f" ({one.test})" if one.test else "")
    return cells


def grid(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join(f"| {' | '.join(map(cell, row))} |" for row in rows)


def cell(text: str) -> str:
    """A text, escaped for a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def number(value: object, digits: int | None = None) -> str:
    """A number with ``digits`` after the decimal point, or with all digits (None, AS_IS)."""
    digits = None if digits == AS_IS else digits
    if value is None:
        return ""
    if isinstance(value, int) and not digits:
        return f"{value:,}" if value >= 10_000 else str(value)
    if isinstance(value, float) and 0 < abs(value) < 1e-3 and digits is None:
        return f"{value:.2g}".replace("e-0", "e-")
    if isinstance(value, (int, float)):
        return f"{Decimal(repr(value)):f}" if digits is None else f"{value:.{digits}f}"
    return str(value)


def decimals(values: Iterable[float]) -> int:
    """The maximum number of digits after the decimal point."""
    texts = (f"{Decimal(repr(value)):f}" for value in values)
    return max((len(text.partition(".")[2]) for text in texts), default=0)


def metric_cells(table: Table, name: str, groups: Sequence[Group]) -> list[str]:
    """The cells of a metric's column, the best in bold."""
    values = [value for group in groups for value in group.values(name)]
    numbers = [value["mean"] if isinstance(value, dict) else value for value in values]
    known = [value for value in numbers if not isinstance(value, str)]
    digits = table.digits.get(name, decimals(known))
    cells = [metric_cell(group.values(name), digits, len(group.single_seeds)) for group in groups]
    if name not in table.best:
        return cells
    means = [group.mean(name) for group in groups]
    shown = [None if mean is None else number(mean, digits) for mean in means]
    choose = {"max": max, "min": min}[table.best[name]]
    best = choose(filter(None, shown), key=lambda one: float(one.replace(",", "")), default=None)
    pairs = zip(cells, shown, strict=True)
    return [f"**{text}**" if one is not None and one == best else text for text, one in pairs]


def metric_cell(values: Sequence[Any], digits: int | None, seeds: int = 1) -> str:
    """Mean ± deviation and, in brackets, the values by seed; or a single value."""
    fixed = functools.partial(number, digits=digits)
    if len(values) == 1 and isinstance(values[0], dict):
        spread = values[0].get("deviation")
        return fixed(values[0]["mean"]) + ("" if spread is None else f" ± {fixed(spread)}")
    if len(values) < 2 or any(isinstance(value, (str, dict)) for value in values):
        each = (metric_cell([v], digits) if isinstance(v, dict) else fixed(v) for v in values)
        text = ", ".join(each)
        return f"{text} (1 of {seeds})" if len(values) == 1 < seeds else text
    mean, deviation = mean_deviation(values)
    return f"{fixed(mean)} ± {fixed(deviation)} ({', '.join(map(fixed, values))})"


def paper_cell(table: Table, numbers: dict[str, str], group: Group) -> str:
    """A paper's number for the group, found by its label with settings or by its system."""
    row = {"system": group.system, "settings": group.settings}
    for key in (row_label(table, row), group.system):
        if key in numbers:
            return numbers[key]
    return ""


def parameters(group: Group) -> str:
    """Parameters in millions."""
    found = list(dict.fromkeys(row["parameters"] for row in group.rows if "parameters" in row))
    return ", ".join(f"{n / 1e6:.2f} M" if n >= 1e5 else f"{n:,}" for n in found)


def minutes(group: Group) -> str:
    """The mean of the known minutes."""
    found = [row["minutes"] for row in group.rows if "minutes" in row]
    if not found:
        return ""
    mean = sum(found) / len(found)
    return number(mean, 0 if mean >= 10 else 1) if len(found) > 1 else number(found[0])


def shared_cells(name: str, groups: Sequence[Group]) -> list[str]:
    """The cells of a column of :data:`SHARED`."""
    if name == "seeds":
        return [str(group.seeds) for group in groups]
    if name != "vectors":
        return ["; ".join(group.texts(name)) for group in groups]
    cells = ["; ".join(group.texts(name, "none")) for group in groups]
    # Older rows lack the field; they used no vectors.
    return [text or "none" for text in cells] if any(cells) else cells


def shared_sentence(groups: Sequence[Group]) -> str:
    """A sentence with the fields that all rows share."""
    known = any("seed" in row or "seeds" in row for group in groups for row in group.rows)
    parts = []
    for name, heading in SHARED.items():
        values = set(shared_cells(name, groups))
        if len(values) == 1 and (value := values.pop()) and (name != "seeds" or known):
            parts.append(f"{heading}: {value}")
    return f"All rows: {'; '.join(parts)}." if parts else ""


def curve_grid(table: Table, name: str, rows: Sequence[Row]) -> str:
    """A curve's table: a line for each row."""
    points = [as_points(row["curves"][name]) for row in rows]
    heads = sorted({x for line in points for x in line}, key=float)
    digits = table.digits.get(name)
    lines = [
        [row_label(table, row), *(number(line.get(x), digits) for x in heads)]
        for row, line in zip(rows, points, strict=True)
    ]
    return grid([table.first, *heads], lines)


def as_points(curve: list | dict) -> dict[str, float]:
    """A curve as a dictionary by x; a list has the values of epochs 1, 2, …"""
    points = curve if isinstance(curve, dict) else dict(enumerate(curve, start=1))
    return {str(x): y for x, y in points.items() if y is not None}


def plotted(table: Table, rows: Iterable[Row]) -> Curves:
    """The curves of a table's figure, by their labels.

    Raises:
        UserError: two rows have the same label.
    """
    found: Curves = {}
    for row in rows:
        points = as_points(row.get("curves", {}).get(table.plot, []))
        if row["table"] != table.name or not points:
            continue
        label = row_label(table, row).replace("`", "")
        if label in found:
            raise UserError(
                f"table {table.name} plots two curves '{label}'; tell the rows apart with settings"
            )
        found[label] = points
    return found


def row_label(table: Table, row: Row) -> str:
    """A system with its settings and, if the row has one, its seed."""
    name = [table.label(row["system"])] if row.get("system") else []
    settings = [f"{key} {number(value)}" for key, value in (row.get("settings") or {}).items()]
    seed = [f"seed {row['seed']}"] if "seed" in row else []
    return ", ".join([*name, *settings, *seed])


def notes(table: Table, rows: Sequence[Row]) -> list[str]:
    """The notes on rows; equal notes are merged."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if "note" in row:
            alone = sum(identity(row) == identity(other) for other in rows) == 1
            own = {key: value for key, value in row.items() if key != "seed" or not alone}
            found.setdefault(row["note"], []).append(row_label(table, own))
    lines = []
    for text, labels in found.items():
        names = "; ".join(dict.fromkeys(filter(None, labels)))
        lines.append(f"**{names}**: {text}" if names else text)
    return lines


def commands(table: Table, rows: Sequence[Row]) -> list[str]:
    """The commands for training and evaluation, each once, with the rows that they produced."""
    found: dict[str, dict[str, None]] = {}
    for key in ("command", "evaluation"):
        for row in rows:
            if key in row:
                own = row_label(table, {k: v for k, v in row.items() if k != "seed"})
                found.setdefault(row[key], {})[own] = None
    everything = set().union(*found.values()) if found else set()
    lines = []
    for text, labels in found.items():
        named = set(labels) != everything and all(labels) and len(labels) <= MOST_NAMES
        lines.append(f"- {'; '.join(labels)}: `{text}`" if named else f"- `{text}`")
    return ["Commands:", "", *lines] if lines else []

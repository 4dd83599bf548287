"""The figure of a table's curves, ``docs/results/PAGE-TABLE.svg``.

The file contains a digest of the curves and is only redrawn if they change, since different
versions of matplotlib write slightly different files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from fairseq_casrnn.results.markdown import Curves, plotted
from fairseq_casrnn.results.page import Page, Table
from fairseq_casrnn.results.rows import Row


def figures(page: Page, rows: Sequence[Row], folder: Path) -> dict[Path, tuple[Table, Curves]]:
    """The figures of a page, as (table, curves) by file."""
    drawn = [(table, plotted(table, rows)) for table in page.tables.values()]
    return {folder / page.figure(table): (table, curves) for table, curves in drawn if curves}


def digest(curves: Curves) -> str:
    """The SHA-256 digest of curves."""
    return hashlib.sha256(json.dumps(curves).encode()).hexdigest()


def is_drawn(path: Path, curves: Curves) -> bool:
    """Whether a file has the digest of these curves."""
    return path.is_file() and digest(curves) in path.read_text("utf-8")


def draw(path: Path, table: Table, curves: Curves) -> None:
    """Draw curves into a file. Raises UserError if matplotlib is missing."""
    from fairseq_casrnn.plotting import new_figure, save

    figure, axes = new_figure(7.0, 4.5)
    for label, points in curves.items():
        x = sorted(points, key=float)
        axes.plot(list(map(float, x)), [points[key] for key in x], lw=1.2, label=label)
    least = min(y for points in curves.values() for y in points.values())
    axes.set_yscale("log" if least > 0 else "linear")
    axes.set_xlabel("epoch")
    axes.set_title(table.curves[table.plot], loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8)
    metadata = {"Date": None, "Creator": None, "Source": digest(curves)}
    save(figure, path, format="svg", metadata=metadata)

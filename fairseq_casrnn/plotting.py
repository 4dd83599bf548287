"""Figures of matplotlib, without a display."""

from __future__ import annotations

import os
from typing import Any

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import replacing

INK, MUTED = "#222222", "#777777"


def figure_grid(rows: int, columns: int, width: float, height: float):
    """A figure without a display, and its axes ``(rows, columns)``; sizes in inches per axes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "plots need matplotlib; install it with pip install 'fairseq-casrnn[plots]'"
        ) from error
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.tick_params(colors=MUTED)
        axes.spines[:].set_color(MUTED)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, grid


def new_figure(width: float, height: float):
    """A figure of this size in inches, without a display, and its axes."""
    figure, grid = figure_grid(1, 1, width, height)
    return figure, grid[0, 0]


def save_png(figure, png: str | os.PathLike) -> None:
    """Write the figure to ``png``, completely or not at all. Raises UserError."""
    save(figure, png, format="png", dpi=150)


def save(figure, path: str | os.PathLike, **options: Any) -> None:
    """Write the figure with options of ``savefig``, completely or not at all. Raises UserError."""
    import matplotlib

    text_in_svg = matplotlib.rc_context({"svg.fonttype": "none"})  # not outlines of letters
    try:
        with replacing(path) as draft, text_in_svg:
            figure.savefig(draft, **options)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error

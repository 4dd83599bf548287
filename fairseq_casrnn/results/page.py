"""The description of a page and its tables, ``results/PAGE.yaml``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.recipes.reading import read_yaml

PROSE_LINES = 10


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Args:
        name: its key in the YAML file, which the rows name.
        title: a heading.
        caption: facts common to all rows that are not fields of a row.
        recipe: ``FOLDER/NAME`` of the recipe whose runs ``casrnn results add`` puts here.
        variables: headings of settings that are environment variables of the recipe, such as
            ``{HIDDEN: units}``: ``casrnn results add`` takes their values from the command.
        subset: split of the evaluations that it takes.
        first: heading of the first column.
        split: a setting; each of its values gets a table of its own.
        labels: display names of systems, in addition to the page's labels.
        metrics: headings of the metrics' columns.
        optional: metrics that a run may lack.
        digits: digits of metrics after the decimal point; by default those of the longest number;
            -1 prints each number as given.
        best: metrics whose ``max`` or ``min`` is printed in bold.
        baseline: system that the others are compared with, by ``compare``.
        compare: a metric, with its direction in ``best``.
        paper: columns of texts from other sources: {heading: {system, or the row's label: text}}.
        order: the systems that come first, by default those of the labels; others follow in the
            order of the file.
        curves: headings of the curves' tables.
        plot: the curve that :mod:`.figure` draws.
    """

    name: str
    title: str = ""
    caption: str = ""
    recipe: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    subset: str = "test"
    first: str = "system"
    split: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    optional: list[str] = field(default_factory=list)
    digits: dict[str, int] = field(default_factory=dict)
    best: dict[str, str] = field(default_factory=dict)
    baseline: str = ""
    compare: str = ""
    paper: dict[str, dict[str, str]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    curves: dict[str, str] = field(default_factory=dict)
    plot: str = ""

    def label(self, system: str) -> str:
        """The label of a system."""
        return self.labels.get(system, system)


@dataclass(frozen=True)
class Page:
    """A page: title, prose of at most ten lines, tables."""

    path: Path
    title: str
    tables: dict[str, Table]
    about: str = ""

    @property
    def rows_path(self) -> Path:
        """The file of its runs."""
        return self.path.with_suffix(".jsonl")

    def figure(self, table: Table) -> str:
        """The file of a table's figure, beside the page."""
        return f"{self.path.stem}-{table.name}.svg"


TEXTS = {None: str}
TABLE = {
    **dict.fromkeys(("title", "caption", "recipe", "subset", "first", "split"), str),
    **dict.fromkeys(("baseline", "compare", "plot"), str),
    **dict.fromkeys(("labels", "variables", "metrics", "digits", "best", "curves"), TEXTS),
    "optional": [str],
    "order": [str],
    "paper": {None: TEXTS},
}
PAGE = {"title": str, "about": str, "labels": TEXTS, "tables": {None: TABLE}}


def load_page(path: Path) -> Page:
    """The page that a YAML file describes.

    Raises:
        UserError: it is not YAML, or has an unknown key or a value of the wrong type.
    """
    content = read_yaml(path, PAGE, f"page {path}")
    for key in ("title", "tables"):
        if key not in content:
            raise UserError(f"{path}: the key {key} is missing; add it")
    about = content.get("about", "").strip()
    if len(about.splitlines()) > PROSE_LINES:
        raise UserError(f"{path}: about has more than {PROSE_LINES} lines; shorten it")
    tables = {
        name: make_table(name, given, path, content.get("labels", {}))
        for name, given in content["tables"].items()
    }
    return Page(path, content["title"], tables, about)


def make_table(name: str, given: dict, path: Path, labels: dict[str, str]) -> Table:
    """A table of a page with these ``labels``. Raises UserError if its keys are inconsistent."""
    where = f"{path}: tables.{name}"
    digits = given.get("digits", {})
    if not all(re.fullmatch("-1|[0-9]", value) for value in digits.values()):
        raise UserError(f"{where}.digits must be numbers from 0 to 9, or -1; correct them")
    if not set(given.get("best", {}).values()) <= {"max", "min"}:
        raise UserError(f"{where}.best must be max or min; correct it")
    changed = {
        "labels": {**labels, **given.get("labels", {})},
        "digits": {metric: int(value) for metric, value in digits.items()},
    }
    table = Table(name, **(given | changed))
    if table.baseline and table.compare not in table.metrics:
        raise UserError(f"{where} has a baseline; name one of its metrics under compare")
    if table.baseline and table.compare not in table.best:
        raise UserError(
            f"{where} compares by {table.compare}; say under best whether its max or min is best"
        )
    if table.plot and table.plot not in table.curves:
        raise UserError(f"{where} plots '{table.plot}', which is none of its curves")
    return table


def load_pages(folder: Path) -> list[Page]:
    """All pages of a folder, by name. Raises UserError if there are none."""
    pages = [load_page(path) for path in sorted(folder.glob("*.yaml"))]
    if not pages:
        raise UserError(f"{folder} holds no page (NAME.yaml); name the folder with --results")
    return pages

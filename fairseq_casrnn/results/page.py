"""What describes the tables of a page: ``results/PAGE.yaml``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from fairseq_casrnn.errors import UserError

PROSE_LINES = 10


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Args:
        name: its key in the YAML file, which the rows name.
        title: a heading.
        caption: what is the same for all rows and no field of theirs.
        recipe: ``FOLDER/NAME`` of the recipe whose runs ``casrnn results add`` puts here.
        subset: split of the evaluations that it takes.
        first: heading of the first column.
        labels: what to call the systems, besides the page's labels.
        metrics: headings of the metrics' columns.
        optional: metrics that a run may lack.
        digits: of metrics, after the point; by default as many as the longest number has, with -1
            each number its own.
        best: metrics whose ``max`` or ``min`` is printed in bold.
        baseline: system that the others are compared with, by ``compare``.
        compare: a metric.
        paper: columns of numbers from elsewhere: {heading: {system, or its label: number}}.
        order: systems, the first ones, by default those of the labels; the others follow as in the
            file.
        curves: headings of the curves' tables.
        plot: the curve that :mod:`.figure` draws.
    """

    name: str
    title: str = ""
    caption: str = ""
    recipe: str = ""
    subset: str = "test"
    first: str = "system"
    labels: dict = field(default_factory=dict)
    metrics: dict = field(default_factory=dict)
    optional: list = field(default_factory=list)
    digits: dict = field(default_factory=dict)
    best: dict = field(default_factory=dict)
    baseline: str = ""
    compare: str = ""
    paper: dict = field(default_factory=dict)
    order: list = field(default_factory=list)
    curves: dict = field(default_factory=dict)
    plot: str = ""

    def label(self, system: str) -> str:
        """What a system is called."""
        return str(self.labels.get(system, system))


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


def load_page(path: Path) -> Page:
    """The page that a YAML file describes.

    Raises:
        UserError: it is no YAML, or has a key or type that no page has.
    """
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise UserError(f"{path} is no YAML ({error}); correct it") from None
    if not isinstance(content, dict) or not isinstance(content.get("tables"), dict):
        raise UserError(f"{path} needs a title and tables; see docs/results/ for pages that do")
    unknown = set(content) - {"title", "about", "labels", "tables"}
    if unknown:
        raise UserError(
            f"{path} has an unknown key '{min(unknown)}'; use title, about, labels, tables"
        )
    about = str(content.get("about", "")).strip()
    if len(about.splitlines()) > PROSE_LINES:
        raise UserError(f"{path}: about has more than {PROSE_LINES} lines; shorten it")
    labels = content.get("labels") or {}
    if not isinstance(labels, dict):
        raise UserError(f"{path}: labels must be a dict")
    tables = {
        str(name): _table(str(name), given, path, labels)
        for name, given in content["tables"].items()
    }
    return Page(path, str(content.get("title", path.stem)), tables, about)


def _table(name: str, content: object, path: Path, labels: dict) -> Table:
    types = {one.name: one for one in dataclasses.fields(Table) if one.name != "name"}
    if not isinstance(content, dict):
        raise UserError(f"{path}: table {name} is no mapping; give it a title and metrics")
    for key, value in content.items():
        if key not in types:
            raise UserError(f"{path}: table {name} has an unknown key '{key}'")
        kind = {"dict": dict, "list": list, "str": str}[types[key].type]
        if not isinstance(value, kind):
            raise UserError(f"{path}: {key} of table {name} must be a {kind.__name__}")
    table = Table(name, **{**content, "labels": {**labels, **content.get("labels", {})}})
    if table.baseline and table.compare not in table.metrics:
        raise UserError(f"{path}: table {name} has a baseline; name a metric under compare")
    if not set(table.best.values()) <= {"max", "min"}:
        raise UserError(f"{path}: table {name} has another best than max and min")
    if table.plot and table.plot not in table.curves:
        raise UserError(f"{path}: table {name} plots '{table.plot}', which is none of its curves")
    return table


def load_pages(folder: Path) -> list[Page]:
    """All pages of a folder, by name. Raises UserError where there is none."""
    pages = [load_page(path) for path in sorted(folder.glob("*.yaml"))]
    if not pages:
        raise UserError(f"{folder} holds no page (NAME.yaml); name the folder with --results")
    return pages

"""``casrnn results render``: write the pages of results from their data."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_casrnn.console.program import show
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import write_text
from fairseq_casrnn.results.add import add_folder_argument
from fairseq_casrnn.results.figure import draw, figures, is_drawn
from fairseq_casrnn.results.markdown import Curves, page_text
from fairseq_casrnn.results.page import Page, Table, load_pages
from fairseq_casrnn.results.rows import Row, check_no_repetition, read_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Write docs/results/PAGE.md for each results/PAGE.yaml, which describes the tables, and "
        "PAGE.jsonl, which holds the runs."
    )
    text = "write nothing; fail if a page is not up to date"
    parser.add_argument("--check", action="store_true", help=text)
    add_folder_argument(parser)
    parser.add_argument(
        "--pages",
        type=Path,
        default=Path("docs/results"),
        help="output folder of the Markdown pages (default: docs/results)",
    )


def run(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        UserError: a file is damaged or, with ``--check``, a page is not up to date.
    """
    wanted: dict[Path, str] = {}
    drawn: dict[Path, tuple[Table, Curves]] = {}
    for page in load_pages(args.results):
        rows = checked_rows(page)
        wanted[args.pages / f"{page.path.stem}.md"] = page_text(page, rows)
        drawn |= figures(page, rows, args.pages)
    for path in sorted([*args.pages.glob("*.md"), *args.pages.glob("*.svg")]):
        if path not in wanted and path not in drawn:
            raise UserError(f"{path} belongs to no page or plot in {args.results}; remove it")
    changed = [path for path, text in wanted.items() if not is_text(path, text)]
    changed += [path for path, (_, curves) in drawn.items() if not is_drawn(path, curves)]
    if changed and args.check:
        names = ", ".join(map(str, changed))
        raise UserError(f"{names}: not up to date; call casrnn results render")
    args.pages.mkdir(parents=True, exist_ok=True)
    for path in changed:
        if path in drawn:
            draw(path, *drawn[path])
        else:
            write_text(path, wanted[path])
    show([str(path) for path in changed] or ["all pages are up to date"])


def is_text(path: Path, text: str) -> bool:
    """Whether a file exists and has exactly this text."""
    return path.is_file() and path.read_text("utf-8") == text


def checked_rows(page: Page) -> list[Row]:
    """The rows of a page.

    Raises:
        UserError: a row belongs to no table, or two rows to one run.
    """
    rows = read_rows(page.rows_path)
    for number, row in enumerate(rows, start=1):
        if row["table"] not in page.tables:
            raise UserError(
                f"{page.rows_path}, line {number} is of table {row['table']}, which "
                f"{page.path.name} does not have; add it there"
            )
    check_no_repetition(rows, page.rows_path)
    return rows

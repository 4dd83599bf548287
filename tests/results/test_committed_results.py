"""The results in this repository: pages are up to date and consistent."""

import re
from pathlib import Path

import pytest

from fairseq_casrnn import cli
from fairseq_casrnn.results.page import load_pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = load_pages(ROOT / "results")


def test_pages_are_up_to_date(capsys):
    folders = ["--results", str(ROOT / "results"), "--pages", str(ROOT / "docs" / "results")]
    assert cli.main(["results", "render", "--check", *folders]) == 0, capsys.readouterr().err


def test_runs_of_recipes_have_one_table():
    """Every table names an existing recipe."""
    recipes = [table.recipe for page in PAGES for table in page.tables.values() if table.recipe]
    assert len(recipes) == len(set(recipes)) > 10
    assert not [name for name in recipes if not (ROOT / "examples" / f"{name}.yaml").is_file()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_pages_are_in_the_documentation_and_the_index(page):
    name = f"results/{page.path.stem}.md"
    assert f": {name}\n" in (ROOT / "mkdocs.yml").read_text("utf-8")
    assert f"(docs/{name})" in (ROOT / "RESULTS.md").read_text("utf-8")


def test_numbers_of_the_index_are_those_of_the_pages():
    rows = re.findall(
        r"^\| (.*) \| (.*) \| \[.*\]\((docs/results/\w+\.md)", read("RESULTS.md"), re.M
    )
    assert len(rows) == 10
    for what, result, path in rows:
        numbers = re.findall(r"\d+\.\d+", result)
        assert numbers
        assert not [number for number in numbers if number not in read(path)], what


def test_numbers_of_the_readme_are_those_of_the_index():
    """The README rounds its numbers; those of the row of speeds have another source."""
    table = re.search(r"^\| task \| result \|\n((?:\|.*\n)+)", read("README.md"), re.M)[1]
    index = {float(number) for number in re.findall(r"\d+\.\d+", read("RESULTS.md"))}
    rows = [row for row in table.splitlines() if "training speed" not in row]
    for number in re.findall(r"\d+\.\d+", "".join(rows)):
        digits = len(number.partition(".")[2])
        assert any(f"{exact:.{digits}f}" == number for exact in index), number


def read(path):
    return (ROOT / path).read_text("utf-8")


def test_make_lint_checks_the_pages():
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", read("Makefile"), re.M)[1]
    assert "casrnn results render --check" in lint
    assert "make lint" in read(".ci/run")

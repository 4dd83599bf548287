"""``casrnn results render``: tables of rows, and checks that pages are up to date."""

import json
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.results import figure, grouping, markdown
from fairseq_casrnn.results.page import Page, Table, load_page

PLUM, PEAR = (60.0, 61.0, 59.5), (62.0, 63.5, 61.0)


def render(*options):
    return cli.main(["results", "render", *options])


def table(rows, **description):
    """A table as on a page, with the lines below it."""
    description.setdefault("metrics", {"a": "A"})
    rows = [{"table": "t", **row} for row in rows]
    return "\n\n".join(filter(None, markdown.table_parts(Table("t", **description), rows)))


def test_a_page_from_runs(project, capsys):
    """Means over seeds are compared, the best one is bold, and the command is below."""
    runs = [
        project.run(system, seed, accuracy)
        for system, values in (("pear", PEAR), ("plum", PLUM))
        for seed, accuracy in enumerate(values, start=1)
    ]
    assert cli.main(["results", "add", *runs]) == 0
    assert render() == 0
    text = project.page.read_text()
    p = ttest_rel(PEAR, PLUM, alternative="greater").pvalue
    header, _, plum, pear = [line for line in text.splitlines() if line.startswith("| ")][:4]
    assert header == (
        "| system | validation accuracy | test accuracy | the paper's "
        "| p against plum, and after Holm's correction | parameters | minutes |"
    )
    assert plum.startswith("| plum | 72.5 ± 0.0 (72.5, 72.5, 72.5) | 60.17 ± 0.76 (60.00, 61.00, ")
    assert "| **62.17 ± 1.26 (62.00, 63.50, 61.00)** | 70.5 |" in pear
    assert f"| {p:.2g}, {p:.2g} | 1.23 M | 1.5 |" in pear
    shared = "pretrained vectors: none; matmul precision: float32; other load on the machine"
    assert f"All rows: seeds: 3; {shared}" in text
    assert "- Pear: `casrnn run train fruit.yaml --arch pear`\n" in text
    assert "- `evaluate.sh`" in text
    assert "| Pear, seed 1 | 60.0 | 72.5 |" in text
    assert text.startswith("# Fruit\n\n(written by `casrnn results render` from `results/fruit.js")


def test_pages_that_are_not_up_to_date(project, capsys):
    assert render("--check") == 2
    assert not project.page.exists()
    assert render() == 0
    assert render("--check") == 0
    assert capsys.readouterr().out.endswith("all pages are up to date\n")
    cli.main(["results", "add", project.run()])
    before = project.page.read_text()
    assert render("--check") == 2
    assert "docs/results/fruit.md: not up to date; call casrnn results" in capsys.readouterr().err
    assert project.page.read_text() == before
    assert render() == 0
    project.page.write_text(project.page.read_text().replace("70.25", "71.25"))
    assert render("--check") == 2
    stray = project.page.with_name("vegetables.md")
    stray.write_text("")
    assert render() == 2
    assert (
        "docs/results/vegetables.md belongs to no page or plot in results"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "fruit.jsonl, line 2 is not JSON"),
        ("[]", "line 2 is not a JSON object with a 'table'"),
        ('{"system": "a"}', "line 2 is not a JSON object with a 'table'"),
        ('{"table": "x"}', "line 2 is of table x, which fruit.yaml does not have"),
        ('{"table": "test", "bleu": 1}', "line 2 has an unknown key 'bleu'; use table, system, "),
        ('{"table": "test", "seed": "1"}', "line 2 has a 'seed' of the wrong type"),
        ('{"table": "test", "seed": true}', "line 2 has a 'seed' of the wrong type"),
        ('{"table": "test", "metrics": {"a": NaN}}', "line 2: 'a' is not a finite number"),
        ('{"table": "test", "metrics": {"a": null}}', "line 2: 'a' is not a finite number"),
        ('{"table": "test", "metrics": {"a": {"deviation": 1}}}', "line 2: 'a' needs mean and dev"),
        (
            '{"table": "test", "settings": {"seed": 1}}',
            "a setting has the name of the field 'seed'",
        ),
        (
            '{"table": "test", "metrics": {"accuracy": 1}}',
            "lines 1 and 2 are both of a row with",
        ),
    ],
)
def test_damaged_rows(line, message, project, capsys):
    project.path.write_text('{"table": "test", "metrics": {"accuracy": 1}}\n' + line + "\n")
    assert render() == 2
    assert message in capsys.readouterr().err
    assert not project.page.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "line 1 is not YAML"),
        ("title: x", "the key tables is missing; add it"),
        ("tables: {}", "the key title is missing; add it"),
        ("title: x\nfoot: x", "there is no key foot; use title, about"),
        ("tables: {a: {metric: {}}}", "there is no key tables.a.metric; did you mean metrics?"),
        ("tables: {a: {metrics: [x]}}", "tables.a.metrics is a list; it must be a mapping"),
        ("title: x\ntables: {a: {digits: {x: two}}}", "tables.a.digits must be numbers from 0"),
        ("title: x\ntables: {a: {best: {x: most}}}", "tables.a.best must be max or min"),
        ("title: x\ntables: {a: {baseline: x}}", "name one of its metrics under compare"),
        (
            "title: x\ntables: {a: {metrics: {m: M}, baseline: x, compare: m}}",
            "tables.a compares by m; say under best whether its max or min is best",
        ),
        ("title: x\ntables: {a: {plot: x}}", "plots 'x', which is none of its curves"),
        ("title: x\ntables: {}\nabout: |\n" + "  x\n" * 11, "about has more than 10 lines"),
    ],
)
def test_descriptions_that_are_refused(content, message, tmp_path):
    (tmp_path / "a.yaml").write_text(content)
    with pytest.raises(UserError, match=message):
        load_page(tmp_path / "a.yaml")


def test_holms_correction():
    """3 · .01, 2 · .02, then the maximum so far."""
    assert grouping.holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert grouping.holm([0.9, 0.8]) == [1, 1]
    assert grouping.holm([]) == []


def test_comparison_respects_the_direction_of_a_metric():
    def rows(system, values):
        return [{"system": system, "seed": n, "metrics": {"a": v}} for n, v in enumerate(values)]

    found = [{"table": "t", **row} for row in (*rows("x", PLUM), *rows("y", PEAR))]
    groups = grouping.groups_of(found, ["y"])
    assert [group.system for group in groups] == ["y", "x"]
    for best, alternative in (("min", "less"), ("max", "greater")):
        description = Table("t", baseline="y", compare="a", best={"a": best})
        p = ttest_rel(PLUM, PEAR, alternative=alternative).pvalue
        (found,) = grouping.compare(groups, description).items()
        assert found == (1, grouping.Comparison(pytest.approx(p), pytest.approx(p)))


def test_single_runs_are_compared_on_their_sentences():
    """Systems with the same vectors are compared; Holm's correction covers all comparisons."""

    def row(system, vectors, p=None, seed=1, **settings):
        tested = {"paired": {"x": {"test": "McNemar", "p": p}}} if p is not None else {}
        metrics = {"a": 80.0 + seed}
        own = {"system": system, "seed": seed, "metrics": metrics, "settings": settings}
        return {**own, "vectors": vectors, **tested}

    rows = [row("x", "none"), row("y", "none"), row("x", "v"), row("x", "v", units=9)]
    rows += [row("y", "v", 0.03, units=9), row("z", "v", 0.01), row("z", "w", 0.5)]
    found = table(rows, metrics={"a": "A"}, baseline="x", compare="a", best={"a": "max"})
    assert "| y |  | **81.0** |  | none |" in found
    assert "| y | 9 | **81.0** | 0.03, 0.03 (McNemar) | v |" in found
    assert "| z |  | **81.0** | 0.01, 0.02 (McNemar) | v |" in found
    assert "| z |  | **81.0** |  | w |" in found
    rows += [row("x", "v", seed=2, units=9), row("y", "v", 0.2, seed=2, units=9)]
    again = table(rows, metrics={"a": "A"}, baseline="x", compare="a", best={"a": "max"})
    assert "0.5, 0.5 |" in again  # with several seeds, a t-test of their means takes precedence


def test_rows_of_means_over_seeds():
    rows = [
        {"system": "x", "seed": 1, "metrics": {"a": 1.5}},
        {"system": "x", "seed": 2, "metrics": {"a": 2}},
        {"system": "x", "seeds": 2, "metrics": {"b": {"mean": 7, "deviation": 0.25}}},
        {"system": "y", "seeds": 5, "metrics": {"a": {"mean": 3.0}, "b": "1 to 2"}},
    ]
    text = table(rows, metrics={"a": "A", "b": "B"})
    assert "| x | 1.8 ± 0.4 (1.5, 2.0) | 7 ± 0 | 2 |" in text
    assert "| y | 3.0 | 1 to 2 | 5 |" in text
    rows[2]["metrics"]["a"] = {"mean": 7, "deviation": 0.25}
    assert "| x | 1.5, 2.0, 7.0 ± 0.2 |" in table(rows, metrics={"a": "A"})


def test_small_numbers_keep_their_digits():
    rows = [{"system": "x", "seed": n, "metrics": {"a": float(f"{n}e-5")}} for n in (1, 3)]
    assert "| x | 0.00002 ± 0.00001 (0.00001, 0.00003) |" in table(rows)


def test_rows_that_do_not_name_vectors():
    """Older rows do not say which vectors they had; they belong to "none"."""
    rows = [{"system": "x", "seed": n, "metrics": {"a": n}} for n in (1, 2, 3)]
    rows[1]["vectors"] = "none"
    rows[2]["vectors"] = "glove"
    text = table(rows)
    assert "| x | 2 ± 1 (1, 2) | 2 | none |" in text
    assert "| x | 3 | 1 | glove |" in text
    text = table([{"system": "y", "metrics": {"a": 1}}, rows[2]])
    assert "| y | 1 | none |" in text


def test_values_known_for_some_seeds_only():
    """A row of means does not say which machines were used."""
    rows = [{"system": "x", "seed": n, "metrics": {"a": n}} for n in (1, 2)]
    rows[0]["metrics"]["c"] = 7
    rows[1]["machine"] = "m"
    rows += [{"system": "x", "seeds": 2, "metrics": {"b": {"mean": 1}}}]
    rows += [{"system": "y", "seed": 1, "metrics": {"a": 1}, "machine": "m"}]
    text = table(rows, metrics={"a": "A", "b": "B", "c": "C"})
    assert "| x | 2 ± 1 (1, 2) | 1 | 7 (1 of 2) | 2 | unknown; m |" in text
    assert "| y | 1 |  |  | 1 | m |" in text


def test_columns_only_show_differences():
    """Equal values are listed below; text columns are not compared."""
    rows = [
        {"system": "a|b", "seed": 1, "metrics": {"a": 1}, "date": "2026", "machine": "m"},
        {"system": "x", "seed": 1, "metrics": {"a": "all"}, "date": "2027", "machine": "m"},
    ]
    assert table(rows) == (
        "| system | A | date |\n| --- | --- | --- |\n| a\\|b | 1 | 2026 |\n| x | all | 2027 |\n\n"
        "All rows: seeds: 1; machine: m."
    )
    with pytest.raises(UserError, match="table t has two columns 'date'; rename one"):
        table(rows, metrics={"a": "date"})


def test_a_setting_may_divide_a_table():
    rows = [
        {"system": "plum", "settings": {"color": "red", "size": 2}, "metrics": {"a": 1}},
        {"system": "plum", "settings": {"color": "green", "size": 2}, "metrics": {"a": 2}},
        {"system": "pear", "settings": {"color": "red"}, "metrics": {"a": 3}, "note": "Sweet."},
        {"note": "All are ripe."},
    ]
    assert table(rows, title="Fruit", split="color") == (
        "- All are ripe.\n\n"
        "### Fruit: red\n\n"
        "| system | size | A |\n| --- | --- | --- |\n| plum | 2 | 1 |\n| pear |  | 3 |\n\n"
        "- **pear**: Sweet.\n\n"
        "### Fruit: green\n\n"
        "| system | size | A |\n| --- | --- | --- |\n| plum | 2 | 2 |"
    )


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (39.7, 2, "39.70"),
        (39.7, None, "39.7"),
        (17531, 0, "17,531"),
        (1731, None, "1731"),
        (3, 2, "3.00"),
        (0.000025, None, "2.5e-5"),
        (0.00021, 4, "0.0002"),
        (0.0, 1, "0.0"),
        ("≈ 3", 2, "≈ 3"),
        (None, 2, ""),
    ],
)
def test_numbers(value, digits, expected):
    assert markdown.number(value, digits) == expected


def test_tables_inherit_the_labels_of_their_page(tmp_path):
    """Labels keep the page's order, and a table may override them."""
    text = "title: T\nlabels: {y: Y, x: X}\ntables: {a: {labels: {x: Z}}, b: {order: [x]}}"
    (tmp_path / "a.yaml").write_text(text)
    tables = load_page(tmp_path / "a.yaml").tables
    assert [tables["a"].label(name) for name in "xyz"] == ["Z", "Y", "z"]
    rows = [{"system": name, "metrics": {"a": 1}} for name in "xyz"]
    for name, expected in (("a", ["Y", "Z", "z"]), ("b", ["X", "Y", "z"])):
        found = table(rows, labels=tables[name].labels, order=tables[name].order)
        assert [line.split()[1] for line in found.splitlines()[2:]] == expected


def test_notes_and_commands_below_a_table():
    """Notes and commands appear once, with their rows; a paper's number is in its row."""
    rows = [
        {"system": "x", "settings": {"m": m}, "seed": 1, "metrics": {"a": m}, "command": "train"}
        for m in (4, 6)
    ]
    rows[0] |= {"note": "Odd.", "evaluation": "test"}
    rows.append({"note": "Of all."})
    text = table(rows, labels={"x": "X"}, paper={"paper": {"X, m 6": "9.5"}})
    assert "| X | 6 | 6 | 9.5 |" in text
    assert "- **X, m 4**: Odd.\n- Of all." in text
    assert "- `train`\n- X, m 4: `test`" in text


def test_a_figure_is_redrawn_if_its_curves_change(tmp_path):
    pytest.importorskip("matplotlib")
    description = Table("t", title="T", curves={"a": "A"}, plot="a")
    page = Page(tmp_path / "x.yaml", "X", {"t": description})
    rows = [{"table": "t", "system": "`x`", "curves": {"a": [3.0, 2.0]}}]
    ((path, (_, curves)),) = figure.figures(page, rows, tmp_path).items()
    assert path.name in markdown.page_text(page, rows)
    assert curves == {"x": {"1": 3.0, "2": 2.0}}
    assert not figure.is_drawn(path, curves)
    figure.draw(path, description, curves)
    assert figure.is_drawn(path, curves)
    assert not figure.is_drawn(path, {"x": {"1": 3.0, "2": 2.5}})
    assert "<svg" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_figures_without_curves_and_with_two_of_one_name(tmp_path):
    page = Page(tmp_path / "x.yaml", "X", {"t": Table("t", curves={"a": "A"}, plot="a")})
    row = {"table": "t", "system": "x", "curves": {"a": [3.0, 2.0]}}
    unknown = row | {"curves": {"a": [None]}}
    assert figure.figures(page, [unknown], tmp_path) == {}
    assert ".svg" not in markdown.page_text(page, [unknown])
    with pytest.raises(UserError, match="table t plots two curves 'x'; tell the rows apart with"):
        figure.figures(page, [row, row | {"vectors": "glove.txt"}], tmp_path)


def test_a_curve_with_numbers_as_given():
    rows = [{"system": "x", "curves": {"a": [3, 2.25]}}]
    found = table(rows, curves={"a": "A"}, digits={"a": markdown.AS_IS})
    assert "| system | 1 | 2 |\n| --- | --- | --- |\n| x | 3 | 2.25 |" in found


def test_settings_in_another_order_are_the_same():
    one, other = (
        {"system": "x", "settings": settings, "metrics": {"a": 1.5}, "seed": seed}
        for seed, settings in ((1, {"m": 4, "n": 5}), (2, {"n": 5, "m": 4}))
    )
    assert "| x | 4 | 5 | 1.5 ± 0.0 (1.5, 1.5) |" in table([one, other])


def test_rows_are_json_lines(project):
    """``add`` writes rows that can be read back, in legible UTF-8."""
    cli.main(["results", "add", project.run(), "--note", "für λ"])
    (line,) = Path(project.path).read_text().splitlines()
    assert "für λ" in line
    assert json.loads(line) == project.rows()[0]


def test_minutes_are_the_mean_of_known_values():
    rows = [{"seed": 1, "minutes": 2.0}, {"seed": 2}, {"seed": 3, "minutes": 3.0}]
    assert markdown.minutes(grouping.Group(rows)) == "2.5"

"""``casrnn report``: what a run's folder says, on one page."""

import json
import re
from html.parser import HTMLParser

import pytest
from browsing import CONTRAST

from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.report import svg
from fairseq_casrnn.report.command import compared, names_of
from fairseq_casrnn.report.predictions import OTHERS, read_predictions
from fairseq_casrnn.report.runs import read_run

STAMP = "2026-01-02 03:04:05 | INFO | "
EVIL = "<script>alert('x')</script> & \"more\""


def log(losses, seed=1):
    """What fairseq prints of a training of as many epochs, of 10 updates each."""
    lines = [
        f"fairseq_cli.train | {{'seed': {seed}, 'user_dir': '/u', 'save_dir': 'o/s', 'data': 'd'}}",
        "fairseq_cli.train | num. shared model params: 1,234 (num. trained: 1,234)",
    ]
    for epoch, loss in enumerate(losses, start=1):
        update = 10 * epoch
        lines += [
            f"train_inner | epoch {epoch:03d}:      5 / 10 loss={loss + 1}, wps=900.5, "
            f"num_updates={update - 5}, lr=0.001, gnorm={epoch}",
            f"valid | epoch {epoch:03d} | valid on 'valid' subset | loss {loss} | accuracy "
            f"{50 + epoch} | wps 5000 | num_updates {update}",
            f"train | epoch {epoch:03d} | loss {loss + 2} | wps 800 | num_updates {update} | lr "
            f"0.001 | gnorm {epoch}",
        ]
    lines.append("fairseq_cli.train | done training in 12.3 seconds")
    return "".join(f"{STAMP}{line}\n" for line in lines)


ROWS = [
    ("a", "a", 0.95, "1", "fine"),
    ("a", "b", 0.9, "2", EVIL),
    ("b", "b", 0.55, "3", "=1+1"),
    ("b", "a", 0.99, "4", "surely"),
]


def table(header, rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in [header, *rows])


def write_run(folder, losses=(3.0, 2.0, 1.5), rows=ROWS, options="--arch x --lr 1e-3"):
    folder.mkdir(parents=True)
    (folder / "train.log").write_text(log(losses))
    (folder / "finished").write_text(options + "\n")
    (folder / "test.json").write_text(json.dumps({"accuracy": 50.0, "macro_f1": 45.5}))
    header = ("gold", "predicted", "probability", "line", "text")
    (folder / "test.predictions.tsv").write_text(table(header, rows))
    return folder


class Page(HTMLParser):
    """Tags and their attributes, tables by their captions, texts of <pre>."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.tables, self.pre = [], {}, []
        self.within, self.rows, self.caption = None, [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "table":
            self.rows = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "pre":
            self.pre.append("")
        if tag in ("caption", "td", "th", "pre"):
            self.within = tag

    def handle_endtag(self, tag):
        if tag == "table":
            self.tables[self.caption] = self.rows
        if tag == self.within:
            self.within = None

    def handle_data(self, data):
        if self.within == "caption":
            self.caption = data
        elif self.within == "pre":
            self.pre[-1] += data
        elif self.within:
            self.rows[-1][-1] += data

    @property
    def pictures(self):
        return [a["aria-label"] for tag, a in self.tags if tag == "svg"]


def report(tmp_path, *argv):
    out = tmp_path / "report.html"
    assert cli.main(["report", *map(str, argv), "--output", str(out)]) == 0
    return Page(out.read_text("utf-8"))


def test_page_of_a_run(tmp_path, capsys):
    run = write_run(tmp_path / "out" / "x" / "seed1")
    page = report(tmp_path, run)
    assert capsys.readouterr().out == f"report: {tmp_path / 'report.html'}\n"
    assert page.tables["Of the test set; in per cent, but for perplexity."] == [
        ["run", "accuracy", "macro-F1"],
        ["x/seed1", "50.00", "45.50"],
    ]
    assert page.pictures == [
        "Loss. By updates. x/seed1, validation: from 3 to 1.5, lowest 1.5, highest 3; x/seed1, "
        "training: from 5 to 3.5, lowest 3.5, highest 5.",
        "Accuracy. By updates. x/seed1, validation: from 51 to 53, lowest 51, highest 53.",
        "Learning rate. By updates. x/seed1, training: from 0.001 to 0.001, lowest 0.001, highest "
        "0.001.",
        "Gradient norm. By updates. x/seed1, training: from 1 to 3, lowest 1, highest 3.",
        "Words per second. By updates. x/seed1, training: from 800 to 800, lowest 800, highest "
        "800.",
        "Confusion matrix of x/seed1. a: 1 of 2 right; b: 1 of 2 right",
        "Calibration of x/seed1. Expected calibration error 0.573; of 1 at 0.55, 100% right; of 3 "
        "at 0.95, 33% right.",
    ]
    header = ["gold", "predicted", "probability", "line", "text"]
    assert page.tables["Errors of x/seed1, the most confident first."] == [
        header,
        ["b", "a", "0.9900", "4", "surely"],
        ["a", "b", "0.9000", "2", EVIL],
    ]
    samples = page.tables["Outputs of x/seed1, from all over the test set."]
    assert samples[1:] == [[g, f, f"{p:.4f}", *rest] for g, f, p, *rest in ROWS]
    command = "fairseq-train d --user-dir /u --seed 1 --save-dir o/s --arch x --lr 1e-3"
    assert [text.strip() for text in page.pre] == [command]
    settings = page.tables["Options of the training."]
    assert ["--lr", "1e-3"] in settings
    assert ["data", "d"] in settings
    environment = page.tables["Machine, versions and duration, as far as the runs say."]
    assert ["parameters", "1,234"] in environment
    assert ["seconds of training", "12.3"] in environment


def test_page_is_whole_and_runs_nothing(tmp_path):
    run = write_run(tmp_path / EVIL.replace("/", "") / "seed1", options=f"--arch '{EVIL}'")
    page = report(tmp_path, run, "--title", EVIL)
    for tag, attributes in page.tags:
        assert tag not in ("script", "img", "iframe", "object", "a")
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "href") or value == "data:,"
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "@import" not in text
    assert "url(" not in text
    assert EVIL in page.pre[0] or "script" in page.pre[0]
    labels = [a for tag, a in page.tags if a.get("role") in ("img", "region")]
    assert all(a["aria-label"] for a in labels)


def test_runs_side_by_side(tmp_path):
    runs = [
        write_run(tmp_path / "out" / name / "seed1", losses, options=f"--arch {name} --lr 1e-3")
        for name, losses in (("x", (3, 2)), ("y", (4, 0.1)))
    ]
    page = report(tmp_path, *runs, runs[0])  # one twice
    first = page.pictures[0]
    assert first.startswith("Loss, logarithmic. By updates. ")  # from 6 to 0.1
    assert "x/seed1, validation: from 3 to 2" in first
    assert "y/seed1, validation: from 4 to 0.1" in first
    settings = page.tables["Options of the training; bold where runs differ."]
    assert settings[:3] == [
        ["option", "x/seed1", "y/seed1"],
        ["--arch", "x", "y"],
        ["data", "d", "d"],
    ]
    bold = [attributes for tag, attributes in page.tags if tag == "tr" and "class" in attributes]
    assert len(bold) == 1


def test_record_of_a_run_comes_first(tmp_path):
    run = write_run(tmp_path / "out" / "x" / "seed1")
    record = {
        "command": "casrnn train classification x",
        "training": "fairseq-train data --user-dir u --adam-betas '(0.9, 0.98)' --fp16",
        "parameters": 99,
        "seconds": 7.5,
        "finished": False,
        "versions": {"torch": "2.13.0"},
        "machine": {"cpu": "A CPU", "cores": 2},
        "evaluations": [
            {"subset": "valid", "accuracy": 1.0, "command": "casrnn evaluate x --subset valid"},
            {"subset": "test", "accuracy": 77.0, "command": "casrnn evaluate x"},
        ],
    }
    (run / "run.json").write_text(json.dumps(record))
    found = read_run(run, "test")
    assert found.scores == {"accuracy": 77.0, "macro_f1": 45.5}
    assert read_run(run, "valid").scores == {"accuracy": 1.0}
    assert found.options == {
        "data": "data", "--user-dir": "u", "--adam-betas": "(0.9, 0.98)", "--fp16": "yes"
    }  # fmt: skip
    assert found.environment["versions"] == "torch 2.13.0"
    assert found.environment["machine"] == "cpu A CPU, cores 2"
    assert found.environment["parameters"] == "99"
    assert found.environment["seconds of training"] == "7.5"
    assert "interrupted" in found.environment["finished"]
    page = report(tmp_path, run)
    assert page.pre[0].strip().split("\n") == [
        "# as it was called",
        "casrnn train classification x",
        "# which ran",
        record["training"],
        "# evaluation",
        "casrnn evaluate x --subset valid",
        "casrnn evaluate x",
    ]


def test_scores_of_a_recipe(tmp_path):
    """Perplexities are in ``results.jsonl`` alone; the last line of the run counts."""
    run = tmp_path / "out" / "lm" / "seed2"
    run.mkdir(parents=True)
    (run / "train.log").write_text(log([1.0, 0.5]))
    lines = [
        {"arch": "lm", "seed": 2, "test": 9.0},
        {"arch": "lm", "seed": 2, "valid": 4.7, "test": 4.6},
        {"arch": "lm", "seed": 1, "test": 1.0},
        {"arch": "other", "seed": 2, "test": 2.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"arch": "lm", "se'
    (tmp_path / "out" / "results.jsonl").write_text(text)
    assert read_run(run, "test").scores == {"valid": 4.7, "test": 4.6}
    page = report(tmp_path, run)
    assert "Its folder does not say how it was trained." in (tmp_path / "report.html").read_text()
    assert page.pre == []


def test_curves_are_the_finer_ones(tmp_path):
    run = tmp_path / "x" / "seed1"
    run.mkdir(parents=True)
    inner = "train_inner | epoch 001: {0} / 9 loss={0}.5, num_updates={0}"
    lines = [inner.format(n) for n in (1, 2, 3)]
    lines += ["train | epoch 001 | loss 9 | wps 80 | num_updates 3"]
    (run / "train.log").write_text("".join(f"{STAMP}{line}\n" for line in lines))
    curves = read_run(run, "test").curves
    assert curves == {
        ("train", "loss"): [(1, 1.5), (2, 2.5), (3, 3.5)],
        ("train", "num_updates"): [(1, 1), (2, 2), (3, 3)],
        ("train", "epoch"): [(1, 1), (2, 1), (3, 1)],
        ("train", "wps"): [(3, 80)],
    }


def test_runs_without_a_log(tmp_path):
    """Of fairseq-train by itself: what ``run.json`` has of the validations."""
    run = tmp_path / "x" / "seed1"
    run.mkdir(parents=True)
    history = [{"epoch": n, "updates": 7 * n, "loss": 4 - n, "ppl": 2.0 ** (4 - n)} for n in (1, 2)]
    (run / "run.json").write_text(json.dumps({"validation": [*history, {}]}))
    curves = read_run(run, "test").curves
    assert curves["valid", "loss"] == [(7, 3), (14, 2)]
    assert curves["valid", "ppl"] == [(7, 8), (14, 4)]
    assert report(tmp_path, run).pictures[1].startswith("Perplexity. By updates. x/seed1, valid")


def test_long_curves_are_thinned():
    points = [(n, n % 7) for n in range(100_001)]
    picture = svg.line_chart("y", [svg.Line("x", points, 0)], "updates")
    (drawn,) = coordinates(picture)
    assert len(drawn) <= svg.MOST_POINTS + 1
    assert drawn[0][0] == svg.LEFT
    assert drawn[-1][0] == svg.WIDTH - svg.RIGHT
    assert "lowest 0, highest 6" in picture


def test_predictions_of_a_recipe_have_no_header(tmp_path):
    path = tmp_path / "test.predictions.tsv"
    path.write_text("a\ta\t0.9\nb\ta\t0.8\n")
    found = read_predictions(path)
    assert found.examples == [("a", "a", 0.9), ("b", "a", 0.8)]
    assert found.columns == []
    assert found.confusion() == (["a", "b"], [[1, 0], [1, 0]])


def test_predictions_of_a_tagger(tmp_path):
    """Where a sentence has one probability, it is that of all tags together."""
    path = tmp_path / "test.predictions.tsv"
    sentences = [
        [("Anna", "B-PER", "B-PER", 0.7), ("sang", "O", "B-PER", 0.7)],
        [("Rome", "B-LOC", "B-LOC", 0.9)],
        [("so", "O", "O", 0.6), ("it", "O", "O", 0.8)],
    ]
    header = ("word", "gold", "predicted", "probability")
    blocks = [table(header, [])]
    blocks += [table(rows[0], rows[1:]) for rows in sentences]
    path.write_text("\n".join(blocks))
    found = read_predictions(path)
    assert found.confidences == [(0.7, False), (0.9, True), (0.6, True), (0.8, True)]
    assert found.errors(5) == [("O", "B-PER", 0.7, "sang", "Anna sang")]
    assert found.confusion() == (
        ["B-LOC", "B-PER", "O"],
        [[1, 0, 0], [0, 1, 0], [0, 1, 2]],
    )


def test_predictions_of_a_translator(tmp_path):
    run = write_run(tmp_path / "out" / "x" / "seed1")
    rows = [(f"quelle {n}", f"source {n}", f"sauce {n}") for n in range(25)]
    header = ("source", "reference", "translation")
    (run / "test.predictions.tsv").write_text(table(header, rows))
    page = report(tmp_path, run)
    samples = page.tables["Outputs of x/seed1, from all over the test set."]
    assert samples == [list(header), *(list(row) for row in rows[::3])]
    assert not any("Confusion" in label for label in page.pictures)


@pytest.mark.parametrize("first", ["gold", "word\tgold"])
def test_a_test_set_without_examples(tmp_path, first):
    run = write_run(tmp_path / "out" / "x" / "seed1")
    (run / "test.predictions.tsv").write_text(f"{first}\tpredicted\tprobability\n")
    assert len(report(tmp_path, run).pictures) == 5


def test_rare_classes_are_taken_together(tmp_path):
    path = tmp_path / "test.predictions.tsv"
    names = [f"c{n:02d}" for n in range(30)]
    rows = [(name, name, 0.5) for name in names[:20] for _ in range(3)]
    rows += [("c25", "c26", 0.5), ("c25", "c00", 0.5)]
    path.write_text(table(rows[0], rows[1:]))
    classes, counts = read_predictions(path).confusion()
    assert classes == [*names[:20], OTHERS]
    assert counts[20] == [1, *[0] * 19, 1]
    assert counts[1][:3] == [0, 3, 0]


def test_calibration_by_hand(tmp_path):
    path = tmp_path / "test.predictions.tsv"
    rows = [("a", "a", 1.0), ("a", "b", 0.92), ("a", "a", 0.31), ("a", "b", 0.39)]
    path.write_text(table(rows[0], rows[1:]))
    found = read_predictions(path)
    low, high = found.calibration()
    assert low == pytest.approx((0.35, 0.5, 2))
    assert high == pytest.approx((0.96, 0.5, 2))
    assert found.calibration_error() == pytest.approx((2 * 0.15 + 2 * 0.46) / 4)


def coordinates(picture):
    """The points of each curve."""
    return [
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall(r'points="([^"]*)"', str(picture))
    ]


@pytest.mark.parametrize("log", [False, True])
def test_points_are_where_their_values_belong(log):
    line = svg.Line("x", [(0, 1.0), (50, 10.0), (100, 100.0)], 0)
    ((first, middle, last),) = coordinates(svg.line_chart("y", [line], "x", log))
    bottom, top = svg.HEIGHT - svg.BOTTOM, svg.TOP
    assert first[0] == svg.LEFT
    assert last == (svg.WIDTH - svg.RIGHT, top)
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2)
    share = 0.5 if log else 0.1  # a linear axis begins at 0
    assert middle[1] == pytest.approx(bottom - share * (bottom - top), abs=0.06)
    assert first[1] == pytest.approx(bottom - (0 if log else 0.01) * (bottom - top), abs=0.06)


@pytest.mark.parametrize("value", [0.0, 5.0, -2.0])
def test_constant_curves(value):
    picture = svg.line_chart("y", [svg.Line("x", [(1, value), (2, value)], 0)], "x", log=True)
    ((first, last),) = coordinates(picture)
    assert first[1] == last[1]
    assert svg.TOP <= first[1] <= svg.HEIGHT - svg.BOTTOM


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (3, 97, [20, 40, 60, 80]),
        (-5, 5, [-4, -2, 0, 2, 4]),
        (7, 7, [7]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert svg.ticks(low, high) == expected


def test_numbers_are_short():
    values = (0, 0.00095, 1e-4, 0.5, 12.3456, 2500, 123456.0)
    assert [svg.short(v) for v in values] == [
        "0", "9.5e-4", "1e-4", "0.5", "12.35", "2,500", "1.2e5"
    ]  # fmt: skip
    assert [svg.short(v) for v in svg.log_ticks(0.3, 30)] == ["0.5", "1", "2", "5", "10", "20"]
    assert svg.log_ticks(0.001, 1e4) == pytest.approx([10.0**n for n in range(-3, 5)])


def test_names_differ(tmp_path):
    folders = [tmp_path / part for part in ("a/x/seed1", "a/x/seed2", "b/x/seed1")]
    assert names_of(folders[:2]) == ["x/seed1", "x/seed2"]
    assert names_of(folders) == ["a/x/seed1", "a/x/seed2", "b/x/seed1"]
    assert names_of(folders[:1]) == ["x/seed1"]


def test_what_differs_comes_first():
    rows = compared({"a": {"p": "1", "q": "2"}, "b": {"p": "1", "q": "3", "r": "4"}})
    assert rows == [
        ("q", ["2", "3"], True), ("r", ["", "4"], True), ("p", ["1", "1"], False)
    ]  # fmt: skip


def test_mistakes(tmp_path, capsys):
    run, empty = write_run(tmp_path / "out" / "x" / "seed1"), tmp_path / "empty"
    empty.mkdir()
    out = tmp_path / "report.html"
    predictions, record = run / "test.predictions.tsv", run / "run.json"
    good = predictions.read_text()
    for argv, error in (
        ([tmp_path / "none"], f"{tmp_path / 'none'} is no folder; give that of a run"),
        ([run, empty], f"{empty} holds no train.log, run.json or test.json; give the folder of"),
        ([run, "--output", empty], f"cannot write {empty}: it is a folder; name a file"),
    ):
        assert cli.main(["report", "--output", str(out), *map(str, argv)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: {error}")
        assert said.count("\n") == 1
    for path, text, error in (
        (predictions, good + "a\tb\n", r"tsv is damaged: a line has 2 columns, not 5 \(line 6\)"),
        (predictions, good.replace("0.9\t", "much\t"), r"line 3 has the probability 'much'; eval"),
        (predictions, good.replace("0.9\t", "nan\t"), r"line 3 has the probability 'nan'; eval"),
        (predictions, "", r"predictions.tsv is empty"),
        (predictions, "word\ttag\n", r"tsv is damaged: its first line names no tags"),
        (record, "{", r"run.json is damaged \(.*\); remove it, and evaluate again"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=error):
            read_run(run, "test")
        predictions.write_text(good)
    assert not out.exists()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_legible(tmp_path, browser, scheme):
    """Contrast of 4.5 at least (WCAG 1.4.3, AA), and nothing wider than a phone."""
    runs = [write_run(tmp_path / name / "seed1") for name in "abcdefgh"]
    report(tmp_path, *runs)
    with browser.new_context(
        color_scheme=scheme, viewport={"width": 360, "height": 640}
    ) as context:
        page = context.new_page()
        page.goto((tmp_path / "report.html").as_uri())
        contrast, where = page.evaluate(CONTRAST)
        assert contrast >= 4.5, where
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_without_predictions_it_says_so(tmp_path, capsys):
    run = write_run(tmp_path / "out" / "x" / "seed1")
    (run / "test.predictions.tsv").unlink()
    page = report(tmp_path, run)
    assert f"{run} has no test.predictions.tsv: no errors or samples" in capsys.readouterr().out
    assert len(page.pictures) == 5

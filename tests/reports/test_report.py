"""``casrnn report`` shows the contents of a run's folder on one page."""

import json

import pytest
from browsing import CONTRAST

from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.report.command import comparison, short_names
from fairseq_casrnn.report.run_files import read_run

from .common import EVIL, ROWS, STAMP, log, report, write_run


def test_page_of_a_run(tmp_path, capsys):
    run = write_run(tmp_path / "out" / "x" / "seed1")
    page = report(tmp_path, run)
    assert capsys.readouterr().out == f"report: {tmp_path / 'report.html'}\n"
    assert page.tables["On the test set. Percentages, except perplexity."] == [
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
    samples = page.tables["Outputs of x/seed1, sampled from the whole test set."]
    assert samples[1:] == [[g, f, f"{p:.4f}", *rest] for g, f, p, *rest in ROWS]
    command = "fairseq-train d --user-dir /u --seed 1 --save-dir o/s --arch x --lr 1e-3"
    assert [text.strip() for text in page.pre] == [command]
    settings = page.tables["Options of the training."]
    assert ["--lr", "1e-3"] in settings
    assert ["data", "d"] in settings
    environment = page.tables["Machine, versions and duration, where the runs recorded them."]
    assert ["parameters", "1,234"] in environment
    assert ["seconds of training", "12.3"] in environment


def test_page_is_self_contained_without_scripts(tmp_path):
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
    page = report(tmp_path, *runs, runs[0])  # one run is given twice
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
            {"subset": "test", "accuracy": 2.0, "options": "--lenpen 2"},  # an experiment
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
        "# the command",
        "casrnn train classification x",
        "# the fairseq command it ran",
        record["training"],
        "# evaluation",
        "casrnn evaluate x --subset valid",
        "casrnn evaluate x",
    ]


def test_scores_of_a_recipe(tmp_path):
    """Perplexities are only in ``results.jsonl``, in which the last line of a run counts."""
    run = tmp_path / "out" / "lm" / "seed2"
    run.mkdir(parents=True)
    (run / "train.log").write_text(log([1.0, 0.5]))
    lines = [
        {"arch": "lm", "seed": 2, "test": 9.0},
        {"arch": "lm", "seed": 2, "valid": 4.7, "test": 4.6},
        {"arch": "lm", "seed": 2, "valid": 3.0, "test": 3.0, "options": "--lenpen 2"},
        {"arch": "lm", "seed": 2, "accuracy": 8.0, "subset": "train"},
        {"arch": "lm", "seed": 1, "test": 1.0},
        {"arch": "other", "seed": 2, "test": 2.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"arch": "lm", "se'
    (tmp_path / "out" / "results.jsonl").write_text(text)
    assert read_run(run, "test").scores == {"valid": 4.7, "test": 4.6}
    page = report(tmp_path, run)
    assert "Its folder does not say how it was trained." in (tmp_path / "report.html").read_text()
    assert page.pre == []


def test_curves_have_the_finest_resolution(tmp_path):
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
    """A training with fairseq-train alone has its validations in ``run.json``."""
    run = tmp_path / "x" / "seed1"
    run.mkdir(parents=True)
    history = [{"epoch": n, "updates": 7 * n, "loss": 4 - n, "ppl": 2.0 ** (4 - n)} for n in (1, 2)]
    (run / "run.json").write_text(json.dumps({"validation": [*history, {}]}))
    curves = read_run(run, "test").curves
    assert curves["valid", "loss"] == [(7, 3), (14, 2)]
    assert curves["valid", "ppl"] == [(7, 8), (14, 4)]
    assert report(tmp_path, run).pictures[1].startswith("Perplexity. By updates. x/seed1, valid")


def test_short_names_are_unique(tmp_path):
    folders = [tmp_path / part for part in ("a/x/seed1", "a/x/seed2", "b/x/seed1")]
    assert short_names(folders[:2]) == ["x/seed1", "x/seed2"]
    assert short_names(folders) == ["a/x/seed1", "a/x/seed2", "b/x/seed1"]
    assert short_names(folders[:1]) == ["x/seed1"]


def test_differing_options_come_first():
    rows = comparison({"a": {"p": "1", "q": "2"}, "b": {"p": "1", "q": "3", "r": "4"}})
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
        ([tmp_path / "none"], f"{tmp_path / 'none'} is not a folder; give that of a run"),
        ([run, empty], f"{empty} holds no train.log, run.json or test.json; give the folder of"),
        ([run, "--output", empty], f"cannot write {empty}: it is a folder; name a file"),
    ):
        assert cli.main(["report", "--output", str(out), *map(str, argv)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: {error}")
        assert said.count("\n") == 1
    for path, text, error in (
        (predictions, good + "a\tb\n", r"tsv is damaged: line 6 has 2 columns, not 5; eval"),
        (predictions, good.replace("0.9\t", "much\t"), r"line 3 has the probability 'much'; eval"),
        (predictions, good.replace("0.9\t", "nan\t"), r"line 3 has the probability 'nan'; eval"),
        (predictions, "", r"predictions.tsv is empty"),
        (predictions, "word\ttag\n", r"tsv is damaged: line 1 has 2 columns, not 3"),
        (record, "{", r"run.json is damaged \(.*\); remove it, and evaluate again"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=error):
            read_run(run, "test")
        predictions.write_text(good)
    assert not out.exists()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_legible(tmp_path, browser, scheme):
    """The contrast is at least 4.5 (WCAG 1.4.3, AA), and nothing is wider than a phone."""
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
    (run / "test.json").write_text('{"valid": 20.0, "test": 21.0}')
    report(tmp_path, run)
    assert " has no " not in capsys.readouterr().out  # a language model has no predictions
    (run / "test.json").unlink()
    report(tmp_path, run)
    assert f"{run} has no scores on test; evaluate it first" in capsys.readouterr().out
    report(tmp_path, run, "--subset", "valid")
    assert "evaluate it with --subset valid first" in capsys.readouterr().out

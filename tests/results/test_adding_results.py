"""``casrnn results add``: the rows it writes, and runs that it refuses."""

import json
from pathlib import Path

import pytest

from fairseq_casrnn import cli

EVALUATION = {"checkpoint": "best", "subset": "test", "accuracy": 70.0}


def add(*arguments):
    return cli.main(["results", "add", *map(str, arguments)])


def test_the_row_of_a_run(project, capsys):
    assert add(project.run()) == 0
    (row,) = project.rows()
    assert row == {
        "table": "test",
        "system": "pear",
        "seed": 1,
        "metrics": {"valid_accuracy": 72.5, "accuracy": 70.25},
        "curves": {"valid_accuracy": {"1": 60.0, "2": 72.5}},
        "vectors": "none",
        "precision": "float32",
        "parameters": 1234567,
        "minutes": 1.5,
        "machine": "2 cores, Z80, none",
        "threads": 1,
        "load": 0.5,
        "date": "2026-11-26",
        "command": "casrnn run train fruit.yaml --arch pear",
        "evaluation": "evaluate.sh",
        "commit": "abc123",
        "versions": {"torch": "2.13.0"},
        "data": {"checksum": "1 2", "train": 70},
    }
    assert capsys.readouterr().out == "results/fruit.jsonl: pear with seed 1\n"


def test_options_of_a_row(project):
    training = "fairseq-train data --encoder-embed-path /data/glove.txt --lr 1"
    run = project.run(recipe="", command="", system="", training=training, device="H100")
    options = ["--table", "fruit/other", "--setting", "units=100", "--setting", "λ=.5"]
    assert add(run, *options, "--reduced", "a tenth", "--note", "Stopped.") == 0
    (row,) = project.rows()
    assert (row["table"], row["system"]) == ("other", "cas_lstm_sentence_encoder")
    assert row["settings"] == {"units": "100", "λ": ".5"}
    assert (row["reduced"], row["note"], row["vectors"]) == ("a tenth", "Stopped.", "glove.txt")
    command = "fairseq-train data --encoder-embed-path glove.txt --lr 1"
    assert (row["device"], row["command"]) == ("H100", command)
    assert "curves" not in row


def test_a_run_is_added_once(project, capsys):
    run = project.run()
    assert add(run) == 0
    assert add(run) == 2
    assert "lines 1 and 2 are both of pear with seed 1; tell them apart" in capsys.readouterr().err
    assert add(run, "--setting", "units=100") == 0
    assert add(project.run(seed=2)) == 0
    assert len(project.rows()) == 3


def test_variables_of_the_recipe_become_settings(project):
    """Systems of other sizes would otherwise be averaged together."""
    command = "CASRNN_X='a b' HIDDEN=150 casrnn run train fruit.yaml HIDDEN=9"
    run = project.run(command=command)
    assert add(run, "--setting", "λ=.5") == 0
    assert add(run, "--setting", "units=100") == 0
    assert [row["settings"] for row in project.rows()] == [
        {"units": "150", "λ": ".5"},
        {"units": "100"},
    ]


def test_commands_have_no_absolute_paths(project):
    root = "/home/ann/checkout"
    training = f"fairseq-train {root}/data --user-dir {root}/fairseq_casrnn --lr 1"
    command = (
        f"X=/a/b casrnn run train {root}/examples/fruit.yaml --data=/disk/d --vectors /disk/v.txt "
        f"--out ../out --mix /disk/e:0.5 '/disk/last one' {root}2/z a/b --"
    )
    run = project.run(training=training, command=command)
    assert add(run) == 0
    assert project.rows()[0]["command"] == (
        "X=b casrnn run train examples/fruit.yaml --data=d --vectors v.txt "
        "--out ../out --mix e:0.5 'last one' z a/b"
    )


def predictions(run, *found, truth="aabb"):
    lines = (f"{true}\t{one}\t0.5\n" for true, one in zip(truth, found, strict=True))
    (Path(run) / "test.predictions.tsv").write_text("".join(lines))


def test_runs_are_compared_on_their_sentences(project, capsys):
    """The baseline's run is the one with the same seed, or the one given."""
    plum, other, pear = project.run("plum"), project.run("plum", 2), project.run()
    assert add(pear) == 0  # there are no predictions yet
    predictions(plum, *"bbaa")
    predictions(other, *"aabb")
    predictions(pear, *"aabb")
    assert add(plum, pear, "--setting", "units=100") == 0
    assert add(pear, "--baseline", other, "--setting", "units=200") == 0
    _, baseline, *rows = project.rows()
    assert "paired" not in baseline
    assert [row["paired"] for row in rows] == [
        {"plum": {"test": "McNemar", "p": p}} for p in (0.125, 1.0)
    ]
    predictions(plum, *"aabb", truth="abab")
    assert add(pear, "--setting", "units=300") == 2
    assert "are of different sentences; evaluate both again" in capsys.readouterr().err
    assert add(pear, "--baseline", pear, "--setting", "units=300") == 2
    assert f"--baseline {pear} is not a run of plum, the table's base" in capsys.readouterr().err
    (Path(other) / "test.predictions.tsv").unlink()
    assert add(pear, "--baseline", other, "--setting", "units=300") == 2
    assert "have no predictions in common; evaluate both" in capsys.readouterr().err
    assert len(project.rows()) == 4


def test_a_very_small_p_is_not_rounded_to_zero(project):
    plum, pear = project.run("plum"), project.run()
    for run, found in ((plum, "b"), (pear, "a")):
        predictions(run, *(found * 20), truth="a" * 20)
    assert add(pear) == 0
    (row,) = project.rows()
    assert row["paired"]["plum"]["p"] == pytest.approx(2**-19, rel=1e-4)


@pytest.mark.parametrize("system", ["plum", "pear"])
def test_predictions_of_another_checkpoint_are_not_compared(project, capsys, system):
    """The file of predictions has those of the last evaluation."""
    folders = {name: project.run(name) for name in ("plum", "pear")}
    for folder in folders.values():
        predictions(folder, *"aabb")
    path = Path(folders[system], "run.json")
    content = json.loads(path.read_text())
    best = content["evaluations"][0]
    ema = best | {"checkpoint": "ema", "accuracy": 60.0}
    path.write_text(json.dumps(content | {"evaluations": [best, ema]}))
    assert add(folders["pear"], "--checkpoint", "best") == 2
    expected = f"the predictions for test in {folders[system]} are of checkpoint ema, which was"
    assert expected in capsys.readouterr().err
    experiment = ema | {"options": "--lenpen 2"}  # writes no predictions
    path.write_text(json.dumps(content | {"evaluations": [ema, best, experiment]}))
    assert add(folders["pear"], "--checkpoint", "best") == 0


def test_rows_are_added_after_a_last_line_without_a_line_end(project):
    assert add(project.run(seed=2)) == 0
    project.path.write_text(project.path.read_text().rstrip("\n"))
    assert add(project.run()) == 0
    assert [row["seed"] for row in project.rows()] == [2, 1]


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"package": {"version": "1"}}, [], "was not trained in a checkout of this package"),
        (
            {"package": {"commit": "abc", "modified": True}},
            [],
            "trained with changes that are not in commit abc; commit them and train again",
        ),
        ({"finished": False}, [], "was interrupted; train on to its end"),
        ({"evaluations": []}, [], "has no evaluation on test; evaluate it first"),
        ({"evaluations": [{**EVALUATION, "subset": "valid"}]}, [], "has no evaluation on test"),
        ({"evaluations": [{**EVALUATION, "finished": False}]}, [], "has no evaluation on test"),
        ({"evaluations": [{**EVALUATION, "options": "--lenpen 2"}]}, [], "has no evaluation on t"),
        ({"evaluations": [{"subset": "test"}]}, [], "the evaluation has no number 'accuracy'"),
        ({"best": {}}, [], "the evaluation has no number 'valid_accuracy'"),
        (  # the best checkpoint's number belongs to other weights
            {"evaluations": [{**EVALUATION, "checkpoint": "ema"}]},
            [],
            "no number 'valid_accuracy', a column of the table; evaluate checkpoint ema with --s",
        ),
        (
            {"evaluations": [EVALUATION, {**EVALUATION, "checkpoint": "last"}]},
            [],
            "has 2 evaluations on test (checkpoint best; checkpoint last); choose one with --check",
        ),
        (
            {"evaluations": [EVALUATION, {**EVALUATION, "cache": 2000}]},
            [],
            "has 2 evaluations on test (checkpoint best; checkpoint best, cache 2000); remove the",
        ),
        ({"seed": None}, [], "run.json has no seed"),
        ({"recipe": "x/y"}, [], "a run of x/y; choose one with --table"),
        (
            {},
            ["--table", "fruit/x"],
            "--table fruit/x does not exist; choose from fruit/test, fruit/",
        ),
        ({}, ["--setting", "units"], "--setting units is not NAME=VALUE"),
        ({}, ["--setting", "minutes=3"], "a setting has the name of the field 'minutes'"),
        ({}, ["--checkpoint", "last"], "has no evaluation on test of checkpoint last; evaluate it"),
    ],
)
def test_runs_that_are_refused(changes, options, message, project, capsys):
    """A valid run before it is not added either."""
    assert add(project.run(seed=2), project.run(**changes), *options) == 2
    assert message in capsys.readouterr().err
    assert project.rows() == []


def test_a_run_named_from_inside_its_folder(project, monkeypatch):
    """Its baseline is found beside it, too."""
    for system in ("plum", "pear"):
        run = project.run(system)
        predictions(run, *"aabb")
    monkeypatch.chdir(run)
    assert add(".", "--results", project.path.parent) == 0
    assert "plum" in project.rows()[0]["paired"]


def test_a_folder_without_a_record(project, tmp_path, capsys):
    assert add(tmp_path) == 2
    assert "has no run.json; train and evaluate it with this version" in capsys.readouterr().err
    assert add(project.run(), "--results", tmp_path / "docs") == 2
    assert "holds no page (NAME.yaml)" in capsys.readouterr().err


def test_choice_of_an_evaluation(project):
    last = {**EVALUATION, "checkpoint": "last", "accuracy": 1.0, "seconds": 2}
    valid = {"checkpoint": "last", "subset": "valid", "accuracy": 71.5}
    other = {"checkpoint": "ema", "subset": "valid", "accuracy": 9.0}
    evaluations = [EVALUATION, last, valid, other]
    assert add(project.run(evaluations=evaluations), "--checkpoint", "last") == 0
    metrics = {"valid_accuracy": 71.5, "accuracy": 1.0, "seconds": 2}
    assert project.rows()[0]["metrics"] == metrics

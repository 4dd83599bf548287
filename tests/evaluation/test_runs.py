"""Evaluation of runs of classifiers and taggers: scores, files and records."""

import json
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch

from fairseq_casrnn.data.originals import write_originals
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import evaluate_classifier, evaluate_tagger
from fairseq_casrnn.evaluation.prediction_files import CLASSES
from fairseq_casrnn.evaluation.runs import write_errors

PROBABILITIES = [[0.9, 0.1], [0.25, 0.75], [0.4, 0.6], [0.3, 0.7]]


def test_a_classification_by_hand(tmp_path, monkeypatch):
    """Of no, no, yes, yes all but the second are right; rows of the matrix are true classes."""
    asked = []
    dataset = SimpleNamespace(labels=torch.tensor([0, 0, 1, 1]))
    hub = SimpleNamespace(
        classes=["no", "yes"],
        task=SimpleNamespace(read=lambda subset: asked.append(subset) or dataset, unseen={}),
        of_dataset=lambda _, batch_size: asked.append(batch_size) or torch.tensor(PROBABILITIES),
    )
    monkeypatch.setattr(
        evaluate_classifier, "load_hub", lambda kind, path, data: asked.append(data) or hub
    )
    found = evaluate_classifier.classify(tmp_path, tmp_path / "x.pt", "valid", 3)
    assert asked == [str(tmp_path / "data-bin"), "valid", 3]
    assert found["confusion"] == {"no": {"no": 1, "yes": 1}, "yes": {"no": 0, "yes": 2}}
    assert (found["accuracy"], found["sentences"]) == (75, 4)
    assert found["predictions"] == [
        ("no", "no", 0.9), ("no", "yes", 0.75), ("yes", "yes", 0.6), ("yes", "yes", 0.7),
    ]  # fmt: skip


def test_a_class_that_training_does_not_have(tmp_path, monkeypatch, capsys):
    """An unknown class has its own row, and its sentences count as errors."""
    dataset = SimpleNamespace(labels=torch.tensor([0, -1, 1, 1]))
    hub = SimpleNamespace(
        classes=["no", "yes"],
        task=SimpleNamespace(read=lambda subset: dataset, unseen={"test": "1 label(s) of test"}),
        of_dataset=lambda *_: torch.tensor(PROBABILITIES),
    )
    monkeypatch.setattr(evaluate_classifier, "load_hub", lambda *_: hub)
    found = evaluate_classifier.classify(tmp_path, tmp_path / "x.pt", "test")
    assert found["confusion"]["<unk>"] == {"no": 0, "yes": 1, "<unk>": 0}
    assert found["accuracy"] == 75
    assert found["predictions"][1] == ("<unk>", "yes", 0.75)
    assert capsys.readouterr().err == "warning: 1 label(s) of test\n"


def options(data, checkpoint):
    """The options of an evaluation."""
    return Namespace(
        data=data, checkpoint=checkpoint, subset="test", batch_size=64, unconstrained_tags=False
    )


def write_run(folder, maximize=True, last=9.0):
    """A run whose checkpoints have weights 2 (metric 0.2) and 4 (metric 0.4)."""
    folder.mkdir(parents=True)
    state = {
        "cfg": {"checkpoint": {"maximize_best_checkpoint_metric": maximize}},
        "extra_state": {"previous_training_time": 12.34},
    }
    for name, weight in (("_last", last), (".best_x_0.2", 2.0), (".best_x_0.4", 4.0)):
        path = folder / f"checkpoint{name}.pt"
        torch.save({**state, "model": {"w": torch.tensor([weight])}}, path)
    return folder


@pytest.fixture(params=["classify", "tag"])
def program(request, monkeypatch):
    """(module, metric, calls); the score is the weight in the checkpoint."""
    asked = []

    def score(data, path, subset, batch_size, unconstrained_tags=False):
        assert not unconstrained_tags
        asked.append((data, subset, batch_size))
        found = {"sentences": 3, "seconds": 0.5, metric: float(torch.load(path)["model"]["w"])}
        return {**others, **found}

    if request.param == "classify":
        module, metric = evaluate_classifier, "accuracy"
        others = {"macro_f1": 0.0, "predictions": [("a", "b", 0.5)], "confusion": {"a": {"a": 3}}}
    else:
        module, metric = evaluate_tagger, "f1"
        others = dict.fromkeys(("accuracy", "precision", "recall"), 0.0)
        others |= {"words": 5, "rows": [[("w", "O", "B-X")]], "confidence": [0.5], "report": None}
    monkeypatch.setattr(module, request.param, score)
    return module, metric, asked


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size", "0"], "--batch-size is 0; it must be at least 1"),
        (["--baseline", "b"], "--baseline b is not among the evaluated systems (a); train it"),
        (["--arch", "b"], "holds no run of b with seed 1; train it first, or choose others"),
    ],
)
def test_wrong_options(options, message, tmp_path, program, capsys):
    module, _, asked = program
    write_run(tmp_path / "a" / "seed1")
    write_run(tmp_path / "b" / "seed01")  # results of seed 1 would go to another folder
    assert module.main(["--data", str(tmp_path), "--out", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err
    assert not asked
    assert not (tmp_path / "results.jsonl").exists()


@pytest.mark.parametrize(("maximize", "best"), [(True, 4), (False, 2)])
def test_the_best_checkpoint_by_the_runs_metric(tmp_path, program, maximize, best):
    module, metric, _ = program
    run = write_run(tmp_path / "a" / "seed1", maximize)
    assert module.evaluate(run, options(tmp_path, "best:1"))[metric] == best


def test_record_of_an_evaluation(tmp_path, program, capsys):
    """The split, the checkpoint and the duration are recorded, and a table compares systems."""
    module, metric, asked = program
    for name, values in (("a", (70.0, 72.0)), ("b", (60.0, 61.0))):
        for seed, value in enumerate(values, start=1):
            write_run(tmp_path / name / f"seed{seed}", last=value)
    data = tmp_path / "data"
    command = ["--data", data, "--out", tmp_path, "--checkpoint", "last", "--subset", "valid"]
    command += ["--batch-size", 7, "--baseline", "b"]
    assert module.main(list(map(str, command))) == 0
    assert asked == [(data, "valid", 7)] * 4
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(line["arch"], line["seed"], line[metric]) for line in lines] == [
        ("a", 1, 70), ("a", 2, 72), ("b", 1, 60), ("b", 2, 61),
    ]  # fmt: skip
    common = {"checkpoint": "last", "subset": "valid", "seconds": 0.5, "train_seconds": 12.3}
    assert all(line.items() >= common.items() for line in lines)
    assert {path.name for path in (tmp_path / "a" / "seed1").glob("valid.*")} >= {"valid.json"}
    printed = capsys.readouterr().out.splitlines()
    if module is evaluate_classifier:
        assert printed.pop() == (
            "a against b, seed 2: only the first is right on 0 sentences, only the second on 0, "
            "p = 1 (McNemar's exact test, two-sided)"
        )
        assert printed.pop().startswith("a against b, seed 1: only the first")
    else:
        assert printed.pop() == (
            "a against b, seed 2: p = 1 (approximate randomization of sentences, two-sided)"
        )
        assert printed.pop().startswith("a against b, seed 1: p = 1 ")
    assert printed[-3].endswith(" on valid, mean ± standard deviation:")
    assert printed[-2] == "b  60.50 ± 0.71  (2 runs)"
    assert printed[-1].startswith("a  71.00 ± 1.41  (2 runs)  p = 0.0")


def test_each_run_is_compared_with_the_baseline(tmp_path, monkeypatch, capsys):
    """Of four sentences, a has the first three right and b the last; seed 2 has no baseline."""
    answers = {"a/seed1": "nnyn", "a/seed2": "yynn", "b/seed1": "yyny"}

    def classify(data, path, subset, batch_size):
        found = answers[f"{path.parent.parent.name}/{path.parent.name}"]
        rows = [(truth, answer, 0.5) for truth, answer in zip("nnyy", found, strict=True)]
        scores = {"accuracy": 50.0, "macro_f1": 50.0, "sentences": 4}
        return {**scores, "predictions": rows, "confusion": {"n": {"n": 1}}}

    monkeypatch.setattr(evaluate_classifier, "classify", classify)
    for name in answers:
        write_run(tmp_path / name)
    command = ["--data", str(tmp_path), "--out", str(tmp_path), "--checkpoint", "last"]
    assert evaluate_classifier.main([*command, "--baseline", "b"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if " against b, seed " in line] == [
        "a against b, seed 1: only the first is right on 3 sentences, only the second on 1, "
        "p = 0.62 (McNemar's exact test, two-sided)"
    ]
    assert evaluate_classifier.main(command) == 0
    assert "against" not in capsys.readouterr().out
    assert not list(tmp_path.glob("*/*/test.errors.tsv"))  # there is no original text


TAGS = [[("rome", "B-LOC", "O"), ("0th", "O", "O")], [("it", "O", "B-LOC")]]


def test_the_original_text_beside_predictions(tmp_path, program, monkeypatch, capsys):
    """Predictions and errors show it if it exists; errors are sorted by probability."""
    module, metric, _ = program
    if module is evaluate_classifier:
        kind, originals = "classify", [{"line": 2, "text": "A"}, {"line": 3, "text": "B"}]
        more = {"predictions": [("a", "b", 0.5), ("b", "a", 0.75)], "confusion": {"a": {"a": 0}}}
        rows = ["a\tb\t0.5\t2\tA", "b\ta\t0.75\t3\tB"]
        predictions = ["gold\tpredicted\tprobability\tline\ttext", *rows]
        errors, what = [predictions[0], *rows[::-1]], "errors"
    else:
        kind = "tag"
        originals = [{"line": 1, "words": ["Rome", "5th"]}, {"line": 4, "words": ["It"]}]
        more = {"words": 3, "rows": TAGS, "confidence": [0.25, 0.125], "report": None}
        predictions = [
            "word\tgold\tpredicted\tprobability", "", "Rome\tB-LOC\tO\t0.25",
            "5th\tO\tO\t0.25", "", "It\tO\tB-LOC\t0.125",
        ]  # fmt: skip
        errors = [
            "gold\tpredicted\tprobability\tword\tline\tsentence",
            "B-LOC\tO\t0.25\tRome\t1\tRome 5th", "O\tB-LOC\t0.125\tIt\t4\tIt",
        ]  # fmt: skip
        what = "words with a wrong tag"
    score = getattr(module, kind)
    monkeypatch.setattr(module, kind, lambda *args: {**score(*args), **more})
    run = write_run(tmp_path / "a" / "seed1")
    write_originals(tmp_path / "data-bin", {"test": originals})
    result = module.evaluate(run, options(tmp_path, "last"))
    assert result[metric] == 9
    assert (run / "test.predictions.tsv").read_text().splitlines() == predictions
    assert (run / "test.errors.tsv").read_text().splitlines() == errors
    *_, line, files, last = capsys.readouterr().out.splitlines()
    assert line.startswith("a seed 1: ")
    assert files == f"predictions: {run}/test.predictions.tsv"
    assert last == f"2 {what}, the most confident first: {run}/test.errors.tsv"
    write_originals(tmp_path / "data-bin", {"test": originals[:1]})
    with pytest.raises(UserError, match="must have 2 JSON objects, one for each binarised"):
        module.evaluate(run, options(tmp_path, "last"))


def test_number_of_errors(tmp_path, capsys):
    path = tmp_path / "test.errors.tsv"
    for count, wanted in (
        (0, "no errors"),
        (1, f"1 word with a wrong tag: {path}"),
        (2, f"2 words with a wrong tag, the most confident first: {path}"),
    ):
        wrong = [("a", "b", number / 4) for number in range(count)]
        write_errors(tmp_path, "test", CLASSES, wrong, "word{} with a wrong tag")
        assert capsys.readouterr().out.splitlines()[1] == wanted
        assert [line.split("\t")[2] for line in path.read_text().splitlines()[1:]] == [
            str(value) for *_, value in wrong[::-1]
        ]

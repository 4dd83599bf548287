"""Evaluations in ``run.json``, and the command lines in it."""

import os

import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import runs
from fairseq_casrnn.recipes.training import Training
from fairseq_casrnn.runs import environment, record


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    """Unset this package's environment variables, which are recorded with a command."""
    for name in [name for name in os.environ if name.startswith("CASRNN_")]:
        monkeypatch.delenv(name)


def test_an_evaluation_replaces_one_with_the_same_settings(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/x/fairseq_casrnn/cli.py", "evaluate", "a b"])
    (tmp_path / "a" / "seed1").mkdir(parents=True)
    for beam, bleu in ((5, 1.0), (10, 2.0), (5, 3.0)):
        runs.record_result(tmp_path, "a", 1, {"checkpoint": "best", "beam": beam, "bleu": bleu})
    found = record.read(tmp_path / "a" / "seed1")["evaluations"]
    assert [(one["beam"], one["bleu"]) for one in found] == [(10, 2.0), (5, 3.0)]
    assert found[0]["command"] == "casrnn evaluate 'a b'"
    assert found[0]["package"] == environment.commit()
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged"),
        ("[]", "not the record of a run"),
        ('{"seed": "1"}', r"damaged \('seed'\)"),
        ('{"evaluations": [1]}', r"damaged \('evaluations'\)"),
    ],
)
def test_a_damaged_record(content, message, tmp_path):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match=message):
        record.add_evaluation(tmp_path, {"bleu": 1.0})
    assert (tmp_path / "run.json").read_text() == content


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/x/fairseq_casrnn/cli.py", "casrnn"),
        ("/x/bin/casrnn", "casrnn"),
        ("/x/bin/fairseq-train", "fairseq-train"),
        ("/x/fairseq_cli/hydra_train.py", "fairseq-hydra-train"),
        (
            "/fairseq_casrnn/y/fairseq_casrnn/evaluation/bleu.py",
            "python -m fairseq_casrnn.evaluation.bleu",
        ),
    ],
)
def test_command_lines(path, expected, monkeypatch):
    monkeypatch.setattr("sys.argv", [path, "--lr", "1"])
    assert environment.command_line() == f"{expected} --lr 1"
    monkeypatch.setenv("CASRNN_ENGINE", "cpp")
    monkeypatch.setenv("EPOCHS", "7 8")
    monkeypatch.setenv("HIDDEN", "")
    found = environment.command_line(("EPOCHS", "HIDDEN"))
    assert found == f"CASRNN_ENGINE=cpp EPOCHS='7 8' {expected} --lr 1"


def test_a_recipe_records_its_command_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["casrnn", "run", "train", "recipe.yaml"])
    monkeypatch.setenv("EPOCHS", "7")
    seen = []

    class Programs:
        dry_run = False

        def train(self, log, *arguments):
            seen.append(record.read(log.parent))
            return 1

    training = Training("a", "1", str(tmp_path), str(tmp_path), [], "fruit/recipe", ("EPOCHS",))
    with pytest.raises(SystemExit):
        training.train(Programs())
    command = "EPOCHS=7 casrnn run train recipe.yaml"
    assert seen == [{"system": "a", "recipe": "fruit/recipe", "command": command}]

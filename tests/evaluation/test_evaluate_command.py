"""``casrnn evaluate``: the direction of each metric, and comparison with a baseline."""

import argparse

import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import evaluate_command, evaluate_lm, evaluate_translation

SCORES = {"a/seed1": 20.0, "a/seed2": 22.0, "b/seed1": 25.0, "b/seed2": 28.0}
TEST = "one-tailed paired t-test, 2 pairs"


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    """``evaluate(kind, …)`` evaluates models of a kind, whose runs have SCORES."""
    for name in SCORES:
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "checkpoint_last.pt").touch()

    def call(kind, *options):
        monkeypatch.setattr(evaluate_command, "prepared_kind", lambda folder: kind)
        parser = argparse.ArgumentParser()
        evaluate_command.add_arguments(parser)
        evaluate_command.run(parser.parse_args([str(tmp_path), *options]))

    return call


def score(metric):
    return lambda run, args: {metric: SCORES[f"{run.parent.name}/{run.name}"]}


def test_perplexities_are_better_if_lower(evaluate, monkeypatch, capsys):
    monkeypatch.setattr(evaluate_lm, "evaluate", score("test"))
    evaluate("language-model", "--baseline", "b")
    title, base, ours = capsys.readouterr().out.splitlines()
    assert title == "perplexity on test, mean ± standard deviation:"
    assert base == "b  26.50 ± 2.12  (2 runs)"
    assert ours == f"a  21.00 ± 1.41  (2 runs)  p = 0.029 against b ({TEST})"


def test_bleu_is_better_if_higher(evaluate, monkeypatch, capsys):
    monkeypatch.setattr(evaluate_translation, "evaluate", score("bleu"))
    evaluate("translation", "--baseline", "a")
    title, base, ours = capsys.readouterr().out.splitlines()
    assert title == "BLEU (tokenised) on test, mean ± standard deviation:"
    assert base.startswith("a  21.00")
    assert ours == f"b  26.50 ± 2.12  (2 runs)  p = 0.029 against a ({TEST})"


def test_no_table_of_a_single_run(evaluate, monkeypatch, capsys):
    monkeypatch.setattr(evaluate_translation, "evaluate", score("bleu"))
    evaluate("translation", "--arch", "a", "--seed", "2")
    assert capsys.readouterr().out == ""


def test_no_deviation_of_single_runs(evaluate, monkeypatch, capsys):
    monkeypatch.setattr(evaluate_translation, "evaluate", score("bleu"))
    evaluate("translation", "--seed", "2")
    assert capsys.readouterr().out.splitlines() == [
        "BLEU (tokenised) on test:",
        "a  22.00  (1 run)",
        "b  28.00  (1 run)",
    ]


@pytest.mark.parametrize("kind", ["translation", "language-model"])
def test_kinds_whose_subset_cannot_be_chosen(evaluate, kind):
    with pytest.raises(UserError, match="drop --subset"):
        evaluate(kind, "--subset", "valid")

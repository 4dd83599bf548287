"""Generated runs, and a page for them."""

import json
from types import SimpleNamespace

import pytest

PAGE = """
title: Fruit
about: Pears are best.
tables:
  test:
    title: Test set
    recipe: fruit/recipe
    variables: {HIDDEN: units}
    labels: {pear: Pear}
    metrics: {valid_accuracy: validation accuracy, accuracy: test accuracy, seconds: s}
    optional: [seconds]
    digits: {accuracy: 2}
    best: {accuracy: max}
    baseline: plum
    compare: accuracy
    paper: {the paper's: {pear: 70.5}}
    order: [plum, pear]
    curves: {valid_accuracy: Validation accuracy by epoch}
  other:
    metrics: {accuracy: accuracy}
"""


def run_record(system="pear", seed=1, accuracy=70.25, **changes):
    """The content of run.json after training and evaluation."""
    content = {
        "system": system,
        "recipe": "fruit/recipe",
        "command": f"casrnn run train fruit.yaml --arch {system}",
        "training": "fairseq-train data",
        "arch": "cas_lstm_sentence_encoder",
        "seed": seed,
        "parameters": 1234567,
        "precision": "highest",
        "device": "cpu",
        "machine": {"cpu": "Z80", "instructions": "none", "cores": 2, "threads": 1},
        "package": {"version": "0.1.0", "commit": "abc123"},
        "versions": {"torch": "2.13.0"},
        "data": {"folder": "/x", "checksum": "1 2", "train": 70},
        "date": "2026-11-26",
        "seconds": 90.0,
        "load": 0.5,
        "finished": True,
        "best": {"epoch": 2, "accuracy": 72.5},
        "validation": [{"epoch": 1, "accuracy": 60.0}, {"epoch": 2, "accuracy": 72.5}],
        "evaluations": [
            {"checkpoint": "best", "subset": "test", "accuracy": accuracy, "command": "evaluate.sh"}
        ],
    }
    return content | changes


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A checkout with the page ``fruit``; ``project.run(…)`` writes a run's folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "fruit.yaml").write_text(PAGE)
    rows = tmp_path / "results" / "fruit.jsonl"
    rows.write_text("")

    def run(system="pear", seed=1, *args, **changes):
        folder = tmp_path / "out" / system / f"seed{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        content = run_record(system, seed, *args, **changes)
        (folder / "run.json").write_text(json.dumps(content))
        return str(folder)

    return SimpleNamespace(
        run=run,
        path=rows,
        page=tmp_path / "docs" / "results" / "fruit.md",
        rows=lambda: [json.loads(line) for line in rows.read_text().splitlines()],
    )

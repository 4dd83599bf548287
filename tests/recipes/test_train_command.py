"""``casrnn train``: names of architectures, settings, and the commands it suggests next."""

import json
from pathlib import Path

import pytest

from fairseq_casrnn import cli
from fairseq_casrnn.recipes.recipe import load
from fairseq_casrnn.recipes.train_command import (
    TOKENS,
    evaluate_command,
    recipe_path,
    recipe_variables,
    use_command,
)
from fairseq_casrnn.recipes.training import Training


def prepared(folder, kind, notes):
    """A folder that looks as if ``casrnn prepare`` had made it."""
    where = folder / ("text" if kind == "translation" else "data-bin")
    (folder / "data-bin").mkdir(parents=True)
    where.mkdir(exist_ok=True)
    program = {"program": f"casrnn prepare {kind}"}
    (folder / "data-bin" / "options.json").write_text(json.dumps(program))
    (where / "prepare.json").write_text(json.dumps(notes))
    return folder


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        ("classification", "foo", "unknown system foo; choose from lstm, bilstm, bilstm_att, "),
        (
            "classification",
            "bicas_lstm_sentence_encoder",
            "--arch bicas_lstm_sentence_encoder is not an architecture for this kind of data "
            "(classification); did you mean cas_lstm_sentence_encoder or ",
        ),
        (
            "classification",
            "cas_lstm_tagger",
            "--arch cas_lstm_tagger is not an architecture for this kind of data (classification)",
        ),
        (
            "tagging",
            "cas_lstm_sentence_encoder",
            "--arch cas_lstm_sentence_encoder is not an architecture for this kind of data (tagg",
        ),
        ("language-model", "cas_lstm_iwslt", "this kind of data (language model); did you mean "),
        ("language-model", "lstn", "--arch lstn is not a language model, whose names contain _lm"),
        (
            "translation",
            "cas_lstm_iwslt_tiny",
            "(translation); did you mean cas_lstm_iwslt or cas_lstm_",
        ),
        ("translation", "my_lstm_iwslt", "_iwslt? (that of a plugin needs --user-dir)\n"),
        ("translation", "cas_lstm_lm_ptb", "is not an architecture for this kind of data (trans"),
        ("language-model", "x_lm", "this kind of data (language model); choose from cas_lstm_lm, "),
    ],
)
def test_unknown_names(kind, name, error, dry, tmp_path, capsys):
    """A dry run has the same errors as a training, and neither creates files."""
    folder = prepared(
        tmp_path / "x",
        kind,
        {"train sentences": 50, "train": "50 sentences", "spans": "none", TOKENS: 9000},
    )
    assert cli.main(["train", kind, str(folder), "--arch", name, *dry]) == 2
    captured = capsys.readouterr()
    assert error in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not (folder / "out").exists()


def test_dry_run_of_another_architecture(tmp_path, capsys):
    folder = prepared(tmp_path / "x", "translation", {TOKENS: 9000})
    command = ["train", "translation", str(folder), "--arch", "cas_lstm_tiny", "--dry-run"]
    assert cli.main(command) == 0
    assert "--arch cas_lstm_tiny " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "instead"),
    [("--seed=2", "--seed"), ("--save-dir", "--out"), ("--arch", "--arch"), ("-a", "--arch")],
)
def test_options_after_the_dashes_that_contradict_the_folder(option, instead, tmp_path, capsys):
    folder = prepared(tmp_path / "x", "translation", {TOKENS: 9000})
    assert cli.main(["train", "translation", str(folder), "--dry-run", "--", option, "2"]) == 2
    name = option.partition("=")[0]
    assert f"error: {name} after -- contradicts the folder" in (err := capsys.readouterr().err)
    assert f"give {instead} before -- instead\n" in err


def test_only_language_models_carry_state(tmp_path, capsys):
    folder = prepared(tmp_path / "x", "translation", {TOKENS: 9000})
    assert cli.main(["train", "translation", str(folder), "--carry-state"]) == 2
    assert "--carry-state is for language models, not for translation" in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_help_lists_the_systems(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "classification: default bicas2; systems: lstm, bilstm, bilstm_att, " in text
    assert "translation: default cas_lstm_iwslt; systems: cas_lstm_iwslt, dg_lstm_iwslt, " in text
    assert "language-model: default dg_lstm_lm_ptb)" in text


def test_next_commands(tmp_path):
    folder, run = Path("my data"), Path("other/bicas2/seed1")
    assert evaluate_command(folder, None, ["cnn"]) == "casrnn evaluate 'my data'"
    assert evaluate_command(folder, Path("other"), ["cnn", "lstm", "bilstm"]) == (
        "casrnn evaluate 'my data' --out other --baseline cnn"
    )
    assert use_command("classification", folder, run) == (
        'echo "your text" | casrnn predict --path other/bicas2/seed1'
    )
    assert use_command("tagging", folder, run).endswith(" | casrnn tag --path other/bicas2/seed1")
    assert use_command("language-model", folder, run).startswith(
        "casrnn perplexity 'my data/data-bin' --path other/"
    )
    assert use_command("language-model", folder, run).endswith(" --sentence-reset")
    assert use_command("language-model", folder, run, carry_state=True).endswith("/seed1")
    (tmp_path / "data-bin" / "input1").mkdir(parents=True)
    assert use_command("classification", tmp_path, run) == (
        r"printf 'first text\tsecond text\n' | casrnn predict --path other/bicas2/seed1"
    )


def test_next_commands_follow_the_last_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Training, "train", lambda self, programs: print("trained", self.name))
    folder = prepared(tmp_path / "x", "classification", {"train sentences": 50, TOKENS: 9000})
    command = ["train", "classification", str(folder), "--arch", "cnn,bilstm", "--seed", "1,2"]
    assert cli.main(command) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "fairseq-train" not in line]
    assert lines == [
        *("trained cnn", "trained cnn", "trained bilstm", "trained bilstm"),
        f"next: casrnn evaluate {folder} --baseline cnn",
        f'next: echo "your text" | casrnn predict --path {folder}/out/bilstm/seed2',
    ]


def test_settings_by_size():
    """Translation trains for 5,000 updates, limited to 10 to 60 epochs but at least 300 updates."""
    for tokens, updates in ((1000, 300), (50_000, 3600), (100_000, 5000), (1_000_000, 12_000)):
        assert recipe_variables("translation", {TOKENS: tokens}) == {"UPDATES": str(updates)}
    for count, batch, patience in ((1999, 8, 10), (2000, 32, 5), (49_999, 32, 5), (50_000, 64, 3)):
        found = recipe_variables("classification", {"train sentences": count})
        assert (found["BATCH"], found["PATIENCE"]) == (str(batch), str(patience))
    found = recipe_variables("tagging", {"train": "1999 sentences", "spans": "BIOES"})
    assert found == {"METRIC": "f1", "BATCH": "8", "PATIENCE": "10"}


def test_the_environment_does_not_change_settings_by_size(monkeypatch):
    given = recipe_variables("classification", {"train sentences": 100})
    before = load(recipe_path("classification"), **given)
    monkeypatch.setenv("BATCH", "77")
    assert load(recipe_path("classification"), **given) == before

"""examples/new_cell: a cell defined outside of the package, in every role."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_lines.conftest import write_corpus
from command_lines.programs import fairseq
from helpers import assert_close, rand

from fairseq_casrnn import cli, plugin, register_cell
from fairseq_casrnn.cells import FAMILIES
from fairseq_casrnn.cells.cas_lstm import CASOptions
from fairseq_casrnn.cells.stacked_lstm import LSTMCell
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.runs import environment

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "new_cell"
PAGE = ROOT / "docs" / "adding-a-cell.md"
CHECK = """
import sys
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq_cli import generate, train
sys.argv = ["fairseq-train", *sys.argv[1:]]
train.cli_main()
for name in ("", "_lm", "_sentence_encoder", "_tagger", "_iwslt", "_lm_ptb"):
    assert f"coupled_lstm{name}" in ARCH_MODEL_REGISTRY
models, _ = checkpoint_utils.load_model_ensemble(["save/checkpoint_last.pt"])
print(type(models[0].decoder.rnn.cells[0]).__name__)
"""


def test_training_with_a_cell_from_outside(tmp_path):
    write_corpus(tmp_path)
    prefixes = ("--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid")
    fairseq("preprocess", "-s", "xx", "-t", "yy", *prefixes, "--destdir", tmp_path / "data")
    options = ["--optimizer", "adam", "--max-tokens", "200", "--max-epoch", "1", "--cpu"]
    command = ["data", "--user-dir", EXAMPLE, "--arch", "coupled_lstm_tiny", "--save-dir", "save"]
    done = subprocess.run(
        [sys.executable, "-c", CHECK, *command, *options, "--num-workers", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "CoupledCell"


DOCUMENTED = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
ROLES = """
import new_cell
from language_models.common import build, random_tokens
from models.sentences import batch, encoder
from models.taggers import spelling, tagger

rows = batch()
for cell, options in (("coupled_lstm", {}), ("leaky_lstm", {"leak": "0.25"})):
    for model, inputs in (
        (build(f"{cell}_lm_tiny", **options).double(), (random_tokens(3, 5),)),
        (encoder(cell, encoder_layers=2, **options), (rows,)),
        (tagger(cell, encoder_layers=2, **options), (rows, spelling(rows))),
    ):
        found = model(*inputs)
        (found[0] if isinstance(found, tuple) else found).square().sum().backward()
        (stack,) = (m for m in model.modules() if hasattr(m, "cells"))
        assert all(p.grad.abs().max() > 0 for p in stack.parameters())
        assert getattr(stack.cells[1], "leak", 0.25) == 0.25
        print(cell, type(model).__name__, type(stack.cells[1]).__name__)
"""


@pytest.mark.full
def test_a_cell_from_outside_in_all_roles():
    """The cell of the documentation, with an option and a parameter, works in all roles, too."""
    done = subprocess.run(
        [sys.executable, "-c", DOCUMENTED + ROLES],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(EXAMPLE.parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kinds = [line.rpartition(" ")[2] for line in done.stdout.splitlines()]
    assert kinds == ["CoupledCell"] * 3 + ["LeakyCell"] * 3


def test_layer_with_a_cell_from_outside():
    """The layer works without fairseq; a new process is used since cells cannot be unregistered."""
    script = f"import sys; sys.path.insert(0, {str(EXAMPLE.parent)!r}); import new_cell, torch"
    script += "; from fairseq_casrnn import layers; layer = layers.build('coupled_lstm', 3, 4, 2)"
    script += "; layer(torch.ones(5, 2, 3), lengths=[5, 2])[0].sum().backward()"
    script += "; print('fairseq' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_step_of_the_cell(monkeypatch):
    """With i = 1 - f it computes the same as an LSTM."""
    monkeypatch.setattr("fairseq_casrnn.register_cell", lambda *_: None)
    namespace = {}
    exec((EXAMPLE / "__init__.py").read_text(encoding="utf-8"), namespace)
    f, g, o = rand(3, 2, 4)
    h, c = rand(2, 2, 4, seed=1)
    zero = torch.zeros(2, 12, dtype=torch.float64)
    found = namespace["CoupledCell"]().step(torch.cat([f, g, o], -1), zero, h, c)
    gates = torch.cat([-f, f, g, o], -1)  # σ(-f) = 1 - σ(f)
    assert_close(found, LSTMCell().step(gates, torch.zeros_like(gates), h, c))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("cas_lstm", "there already is a cell 'cas_lstm'"), ("My-Cell", "is invalid; use lower-case")],
)
def test_names_that_are_refused(name, sentence):
    with pytest.raises(UserError, match=sentence):
        register_cell(name, LSTMCell)


def test_options_need_a_function():
    with pytest.raises(UserError, match=r"give register_cell a function make_cell\(k, options\)"):
        register_cell("needs_options", LSTMCell, CASOptions)
    assert "needs_options" not in FAMILIES


COMMANDS = """
import sys
from fairseq_casrnn import cli
plugin = sys.argv[1]
for command in (
    "prepare translation --train train.xx train.yy --out own --bpe-operations 0",
    f"train translation own --arch coupled_lstm_tiny --user-dir {plugin} -- --max-epoch 1",
    f"train translation own --arch coupled_lstm_tiny --seed 2 --user-dir {plugin} --dry-run",
    f"translate --path own/out/coupled_lstm_tiny/seed1 --user-dir {plugin} --input empty",
):
    assert cli.main(command.split()) == 0, command
"""


def test_commands_with_a_plugin(tmp_path, capsys):
    write_corpus(tmp_path)
    (tmp_path / "empty").write_text("\n")
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, EXAMPLE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # in the two commands that are suggested next
    assert done.stdout.count(f"--user-dir {EXAMPLE}") == 2
    assert done.stdout.count(f"CASRNN_USER_DIR={EXAMPLE} fairseq-train") == 2
    run = tmp_path / "own" / "out" / "coupled_lstm_tiny" / "seed1"
    assert cli.main(["translate", "--path", str(run)]) == 2
    assert "is of the model coupled_lstm_tiny, which is not one of this" in capsys.readouterr().err
    assert cli.main(["serve", "--path", str(run)]) == 2
    assert "give its plugin, as with --user-dir in training" in capsys.readouterr().err


def test_a_plugin_that_does_not_exist(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(plugin.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"^CASRNN_USER_DIR is .*none, which is not a folder"):
        plugin.import_plugin()
    for folder in ("", str(tmp_path / "none")):
        assert cli.main(["pack", "x.pt", "--output", "y", "--user-dir", folder]) == 2
        assert f"--user-dir '{folder}' is not a folder; give that of" in capsys.readouterr().err


def test_suggested_commands_with_a_plugin_are_quoted(monkeypatch):
    monkeypatch.setenv(plugin.VARIABLE, "/a b/mgu")
    printed = f"{plugin.assignment()}printenv {plugin.VARIABLE}"
    done = subprocess.run(["sh", "-c", printed], capture_output=True, text=True, check=True)
    assert done.stdout == "/a b/mgu\n"
    assert plugin.plugin_options() == ["--user-dir", "/a b/mgu"]
    monkeypatch.setattr("sys.argv", ["casrnn", "train", "--user-dir", "mgu"])
    assert environment.command_line() == "casrnn train --user-dir mgu"
    monkeypatch.setattr("sys.argv", ["fairseq-train", "data"])
    assert environment.command_line() == "CASRNN_USER_DIR='/a b/mgu' fairseq-train data"

"""The tagging recipes from raw files to a table, on generated corpora."""

import importlib
import json
import os
import re
import shlex
import subprocess
import warnings
from collections.abc import Callable
from typing import NamedTuple

import pytest
from command_lines.programs import checkpoint
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from models.taggers import make_task
from recipe_runs import EXAMPLES, run, train
from seqeval.metrics import f1_score
from tagged_corpora import write_conll03, write_pos
from tiers import mostly_full

from fairseq_casrnn.evaluation import evaluate_tagger
from fairseq_casrnn.evaluation.prediction_files import WORDS, as_lines, read_table
from fairseq_casrnn.report.run_files import read_run

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]


class Recipe(NamedTuple):
    """What differs between recipes.

    Attributes:
        write: writes the raw files.
        metric: by which a checkpoint is selected; f1 for spans.
        free: whether its results were measured with --unconstrained-tags.
        options: of prepare.sh.
    """

    write: Callable
    metric: str
    free: bool = False
    options: tuple[str, ...] = ()


RECIPES = {
    "conll03": Recipe(write_conll03, "f1", free=True),
    "pos": Recipe(write_pos, "accuracy"),
}
SYSTEMS = {
    "lstm": "stacked_lstm",
    "bilstm": "stacked_lstm",
    "bilstm2": "stacked_lstm",
    "bilstm2_apart": "stacked_lstm",
    "bigru2": "stacked_gru",
    "bicas2": "cas_lstm",
    "bihighway2": "highway_lstm",
    "bidg2": "dg_lstm",
    "bisecond2": "second_order_lstm",
    "shortcut": "shortcut_lstm",
    "residual": "shortcut_lstm",
    "slstm": "sentence_state_lstm",
}


def conlleval_lines(path):
    """Run the documentation's commands for conlleval on a file of predictions."""
    pages = (EXAMPLES / "conll03" / "README.md", EXAMPLES.parent / "docs" / "taggers.md")
    (command,) = {re.search("`(tail [^`]+)`", page.read_text())[1] for page in pages}
    return subprocess.check_output(
        command.replace("FILE", shlex.quote(str(path))), shell=True, text=True
    )


def test_words_with_spaces_for_conlleval(tmp_path):
    sentences = [[("2 1/2", "O", "B-X", 0.5), ("=a", "B-X", "B-X", 0.5)], [("b", "O", "O", 1.0)]]
    path = tmp_path / "test.predictions.tsv"
    path.write_text("\n".join([as_lines([WORDS]), *map(as_lines, sentences)]))
    assert conlleval_lines(path) == "2_1/2 O B-X\n'=a B-X B-X\n\nb O O\n"


@pytest.mark.parametrize("recipe", RECIPES)
def test_prepare_train_evaluate(recipe, tmp_path, recorded, capsys):
    """A tiny model is trained for one epoch with each recipe's own settings."""
    write, metric, free, given = RECIPES[recipe]
    spans = metric == "f1"
    raw, data, out = write(tmp_path / "raw"), tmp_path / "data", tmp_path / "out"
    ((module, *args),) = recorded(f"{recipe}/prepare.sh", "--raw", raw, "--out", data, *given)
    assert module == f"fairseq_casrnn.data.corpora.{recipe}"
    assert importlib.import_module(module).main(args) == 0
    where = ("--data", data, "--out", out)
    (command,) = recorded(f"{recipe}/train.sh", "--tiny", *where)
    train(command)
    ((module, *args),) = recorded(f"{recipe}/evaluate.sh", *where, "--seed", 1)
    assert module == "fairseq_casrnn.evaluation.evaluate_tagger"
    decoding = "--unconstrained-tags"
    assert ((decoding in command), (decoding in args)) == (free, free)
    capsys.readouterr()
    assert evaluate_tagger.main(args) == 0
    printed = capsys.readouterr().out
    result = json.loads((out / "results.jsonl").read_text())
    name = metric.replace("f1", "F1")
    assert f"seed 1: {name} {result[metric]:.2f}" in printed
    assert ("micro avg" in printed) == spans
    assert ("accuracy of tags in IOB2" in printed) == spans
    folder = out / "cas_lstm_tagger_tiny" / "seed1"
    assert checkpoint(folder / "checkpoint_best.pt")["extra_state"]["best"] >= 0
    table = read_table(folder / "test.predictions.tsv")
    assert table.header == ["word", "gold", "predicted", "probability"]
    assert len(table.rows) == result["words"]
    assert len(table.sentences()) == result["sentences"]
    assert result.get("constrained_tags") is (not free if spans else None)
    assert len(read_run(folder, "test").predictions.confidences) == result["sentences"]
    if spans:  # as its evaluation script expects: IOB2, and one space between columns
        blocks = conlleval_lines(folder / "test.predictions.tsv").split("\n\n")
        rows = [[line.split(" ") for line in block.splitlines()] for block in blocks]
        assert {len(row) for sentence in rows for row in sentence} == {3}
        assert [len(sentence) for sentence in rows] == [len(one) for one in table.sentences()]
        truth, found = ([[row[i] for row in sentence] for sentence in rows] for i in (1, 2))
        assert list(zip(truth, found, strict=True)) == table.pairs()
        assert {tag[0] for tags in (*truth, *found) for tag in tags} <= set("BIO")
        assert f1_score(truth, found) * 100 == pytest.approx(result["f1"], abs=0.01)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ner")
    raw, out = write_conll03(folder / "raw"), folder / "data"
    module = importlib.import_module("fairseq_casrnn.data.corpora.conll03")
    assert module.main(["--raw", str(raw), "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize("system", mostly_full(SYSTEMS, "bilstm", "slstm"))
def test_systems(system, data, tmp_path, recorded):
    """Every named system is a model with HIDDEN units that can be built."""
    (command,) = recorded(
        "conll03/train.sh", "--arch", system, "--data", data, "--out", tmp_path / "out", "--",
        "--encoder-embed-dim", 6, HIDDEN="4", STEPS="3",
    )  # fmt: skip
    parser = options.get_training_parser()
    with warnings.catch_warnings(action="ignore"):
        args = options.parse_args_and_arch(parser, command[1:])
        cfg = convert_namespace_to_omegaconf(args)
    assert cfg.model._name == f"{SYSTEMS[system]}_tagger"
    rnn = build_model(cfg.model, make_task()).encoder.body.rnn
    assert set(getattr(rnn, "hidden_sizes", None) or [rnn.hidden_size]) == {4}
    # With routed cells, training does not stop early, and its final routing is nearly hard.
    assert cfg.checkpoint.patience == (-1 if system == "bisecond2" else 5)
    if system == "bisecond2":
        assert rnn.temperature_at(cfg.optimization.max_epoch) <= 1e-3
    if system == "slstm":
        assert rnn.num_steps == 3
    elif system not in ("shortcut", "residual"):
        assert rnn.num_layers == (2 if "2" in system else 1)
        assert rnn.num_directions == 1 + system.startswith("bi")


@pytest.mark.parametrize("script", ["prepare", "train", "evaluate"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_help(recipe, script):
    path = EXAMPLES / recipe / f"{script}.sh"
    assert os.access(path, os.X_OK)
    program = "python -m fairseq_casrnn.data" if script == "prepare" else f"casrnn run {script} "
    assert run(path, "--help").startswith(f"usage: {program}")


def test_mistakes(tmp_path):
    (tmp_path / "data-bin").mkdir()
    error = run("pos/train.sh", "--data", tmp_path, "--arch", "bilstm,bert", status=2)
    assert error.startswith("error: unknown system bert; choose from lstm, bilstm, ")
    error = run("pos/train.sh", "--data", tmp_path / "none", status=2)
    assert "is not prepared; run prepare.sh" in error

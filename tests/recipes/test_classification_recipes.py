"""The classification recipes from raw files to a table, on generated corpora."""

import importlib
import json
import os
import shutil
import warnings
from pathlib import Path

import pytest
from command_lines.programs import checkpoint
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from labelled_corpora import (
    write_mr,
    write_mrpc,
    write_plain_nli,
    write_reviews,
    write_rte,
    write_sick,
    write_sst,
    write_trec,
)
from models.sentences import make_task
from recipe_runs import EXAMPLES, run, stub_python, train
from tiers import mostly_full

from fairseq_casrnn.evaluation import evaluate_classifier

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]
RECIPES = {
    "mr": (write_mr, ()),
    "sst": (write_sst, ()),
    "trec": (write_trec, ("--valid-size", "9")),
    "nli": (write_plain_nli, ("--train-on-dev", "--valid-size", "9")),
    "paraphrase": (write_mrpc, ("--corpus", "mrpc", "--valid-size", "9")),
    "sick": (write_sick, ()),
    "rte": (write_rte, ("--valid-size", "9")),
}
SCRIPTS = [EXAMPLES / name / f"{step}.sh" for name in RECIPES for step in ("train", "evaluate")]
SCRIPTS += [EXAMPLES / "sst" / "prepare.sh", EXAMPLES / "reviews16" / "run_table.sh"]
SCRIPTS += [EXAMPLES / "mr" / "run_folds.sh", EXAMPLES / "mr" / "run_curves.sh"]
SCRIPTS += [EXAMPLES / "sick" / "run_lambda.sh"]
SYSTEMS = {
    "lstm": "stacked_lstm",
    "bilstm": "stacked_lstm",
    "bilstm_att": "stacked_lstm",
    "bilstm2": "stacked_lstm",
    "bilstm3": "stacked_lstm",
    "bilstm2_apart": "stacked_lstm",
    "cas2": "cas_lstm",
    "cas3": "cas_lstm",
    "bicas2": "cas_lstm",
    "bicas3": "cas_lstm",
    "bihighway2": "highway_lstm",
    "bidg2": "dg_lstm",
    "shortcut": "shortcut_lstm",
    "residual": "shortcut_lstm",
    "slstm": "sentence_state_lstm",
    "slstm_att": "sentence_state_lstm",
    "cnn": "cnn",
    "transformer": "transformer",
}


TWO_WAYS = ("bi", "shortcut", "residual")


def prepared(recorded, recipe, tmp_path):
    write, options = RECIPES[recipe]
    raw = write(tmp_path / "raw")
    arguments = ("--raw", raw, "--out", tmp_path / "data", *options)
    ((module, *args),) = recorded(f"{recipe}/prepare.sh", *arguments)
    assert module == f"fairseq_casrnn.data.corpora.{recipe}"
    assert importlib.import_module(module).main(args) == 0
    return tmp_path / "data"


@pytest.mark.parametrize("recipe", mostly_full(RECIPES, "mr", "nli"))
def test_prepare_train_evaluate(recipe, tmp_path, recorded, capsys):
    """A tiny model is trained for one epoch with each recipe's own settings."""
    data, out = prepared(recorded, recipe, tmp_path), tmp_path / "out"
    where = ("--data", data, "--out", out)
    (command,) = recorded(f"{recipe}/train.sh", "--tiny", *where)
    train(command)
    ((module, *args),) = recorded(f"{recipe}/evaluate.sh", *where, "--seed", 1)
    assert module == "fairseq_casrnn.evaluation.evaluate_classifier"
    assert evaluate_classifier.main(args) == 0
    result = json.loads((out / "results.jsonl").read_text())
    printed = capsys.readouterr().out
    assert f"seed 1: accuracy {result['accuracy']:.2f}, macro-F1" in printed
    note = json.loads((data / "data-bin" / "prepare.json").read_text())
    assert result["sentences"] in (note.get("test pairs"), note.get("test sentences"))
    folder = out / "cas_lstm_sentence_encoder_tiny" / "seed1"
    assert checkpoint(folder / "checkpoint_best.pt")["extra_state"]["best"] > 0
    header, *lines = (folder / "test.predictions.tsv").read_text().splitlines()
    assert header == "gold\tpredicted\tprobability"
    rows = [line.split("\t") for line in lines]
    right = sum(truth == predicted for truth, predicted, _ in rows)
    assert result["accuracy"] == pytest.approx(100 * right / result["sentences"], abs=0.01)
    confusion = json.loads((folder / "test.json").read_text())["confusion"]
    assert sum(confusion[name][name] for name in confusion) == right


def test_a_finished_training_is_not_repeated(mr_data, tmp_path, recorded):
    """A training that stopped early is finished, too; only more epochs continue it."""
    where = ("--data", mr_data, "--out", tmp_path / "out", "--arch", "cnn")
    assert len(recorded("mr/train.sh", *where)) == 1
    assert recorded("mr/train.sh", *where) == []
    assert "is finished" in run("mr/train.sh", *where)
    assert len(recorded("mr/train.sh", *where, "--seeds", 2)) == 1
    assert len(recorded("mr/train.sh", *where, "--", "--max-epoch", 99)) == 1


def test_resuming_with_other_options_or_data_is_refused(mr_data, tmp_path, recorded):
    """The best checkpoint could otherwise come from the old options."""
    out = ("--out", tmp_path / "out", "--arch", "cnn")
    # a failed call, perhaps with a wrong option, does not fix the options
    assert len(recorded("mr/train.sh", "--data", mr_data, *out, "--", "--lr", 0.25)) == 1
    assert len(recorded("mr/train.sh", "--data", mr_data, *out)) == 1
    (tmp_path / "out" / "cnn" / "seed1" / "checkpoint_last.pt").touch()  # as training does
    assert recorded("mr/train.sh", "--data", mr_data, *out) == []
    assert len(recorded("mr/train.sh", "--data", mr_data, *out, "--", "--max-epoch=99")) == 1
    assert len(recorded("mr/train.sh", "--data", mr_data, *out, "--", "--max-epoch")) == 1
    assert len(recorded("mr/train.sh", "--data", mr_data, *out)) == 1
    refused = run("mr/train.sh", "--data", mr_data, *out, "--", "--lr", 0.5, status=2)
    assert "cnn/seed1 was started with other options (--lr 1e-3 instead of 0.5); repeat" in refused
    copy = shutil.copytree(mr_data, tmp_path / "copy")
    link = tmp_path / "link"
    link.mkdir()
    (link / "data-bin").symlink_to(copy / "data-bin")
    for same in (copy, link):
        assert recorded("mr/train.sh", "--data", same, *out) == []
    with open(copy / "data-bin" / "input0" / "singletons.txt", "a") as file:
        file.write("another\n")
    for other in (copy, link):
        refused = run("mr/train.sh", "--data", other, *out, status=2)
        assert "was started with other data; give another --out, or delete" in refused
    assert (tmp_path / "out" / "cnn" / "seed1" / "finished").exists()


def test_a_longer_training_is_unfinished_until_it_ends(mr_data, tmp_path):
    """Unfinished checkpoints would otherwise be evaluated as the end of the first training."""
    where = ("--data", mr_data, "--out", tmp_path / "out", "--arch", "cnn")
    folder, python = tmp_path / "out" / "cnn" / "seed1", tmp_path / "python"
    finished, last = folder / "finished", folder / "checkpoint_last.pt"

    def training(script):
        return {"PYTHON": stub_python(python, script)}

    assert "nothing left" not in run("mr/train.sh", *where, **training(f"touch {last}"))
    first = finished.read_text()
    longer = (*where, "--", "--max-epoch", 99)
    # a call that fails before training leaves the first one finished
    run("mr/train.sh", *longer, status=2, **training("exit 2"))
    assert finished.read_text() == first
    run("mr/train.sh", *longer, status=3, **training(f"[ -e {finished} ] && exit 9; exit 3"))
    assert finished.read_text() == first
    run("mr/train.sh", *longer, status=3, **training(f"touch {last}; exit 3"))
    assert not finished.exists()
    printed = run("mr/train.sh", *where, **training(""))
    assert (
        "cnn with seed 1 had nothing left to train: its checkpoints have at least as many"
        in printed
    )
    assert finished.read_text() == first
    stopped = "echo 'no gain in the last 5 validations: the training stays stopped'"
    printed = run("mr/train.sh", *longer, **training(stopped))
    assert "nothing left to train: it stopped early because of --patience" in printed
    printed = run("mr/train.sh", *where, **training(""))
    # a call may not repeat the reason of an earlier one
    assert "its checkpoints have at least as many epochs" in printed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("script", ["mr/train.sh", "mr/evaluate.sh"])
@pytest.mark.parametrize("name", ["../../x", "cnn,../x", "..", "/x", "a/b"])
def test_names_of_systems_cannot_be_paths(script, name, mr_data, tmp_path):
    out = tmp_path / "a" / "out"
    message = run(script, "--data", mr_data, "--out", out, "--arch", name, status=2)
    assert message.startswith(f"error: --arch '{name.split(',')[-1]}' is not an architecture")
    assert not list(tmp_path.iterdir())


def test_out_that_cannot_be_written(mr_data, tmp_path):
    (tmp_path / "file").touch()
    refused = run("mr/train.sh", "--data", mr_data, "--out", tmp_path / "file", status=2)
    assert refused == f"error: --out {tmp_path}/file cannot be written; give another folder\n"


def test_options_for_evaluation_are_refused(mr_data, tmp_path):
    """Only recipes whose evaluation calls a program of fairseq accept options for it."""
    where = ("--data", mr_data, "--out", tmp_path)
    refused = run("mr/evaluate.sh", *where, "--", "--max-tokens", 500, status=2)
    assert refused == "error: this step accepts no options after --; see --help\n"


def test_a_run_is_not_evaluated_on_other_data(mr_data, tmp_path, recorded):
    """With --vocabulary all, folds share a dictionary but train on the others' test sets."""
    out = ("--out", tmp_path / "out")
    recorded("mr/train.sh", "--data", mr_data, *out, "--arch", "cnn,bilstm", "--seeds", 2)
    for run_of in tmp_path.glob("out/*/seed*"):
        (run_of / "checkpoint_last.pt").touch()
    other = shutil.copytree(mr_data, tmp_path / "other")
    with open(other / "data-bin" / "label" / "train.bin", "ab") as file:
        file.write(b"\0")
    assert len(recorded("mr/evaluate.sh", "--data", mr_data, *out)) == 1
    refused = run("mr/evaluate.sh", "--data", other, *out, status=2)
    assert f"was trained on other data than {other} and may have seen" in refused
    (tmp_path / "out" / "bilstm" / "seed2" / "identity").unlink()  # as if trained without train.sh
    chosen = ("--arch", "bilstm", "--seed", 2)
    assert len(recorded("mr/evaluate.sh", "--data", other, *out, *chosen)) == 1
    run("mr/evaluate.sh", "--data", other, *out, "--arch", "bilstm", "--seed", 1, status=2)
    both = ("--arch", "cnn,bilstm", "--seed", 2)
    run("mr/evaluate.sh", "--data", other, *out, *both, status=2)
    # the training has not saved a checkpoint
    (tmp_path / "out" / "cnn" / "seed2" / "checkpoint_last.pt").unlink()
    assert len(recorded("mr/evaluate.sh", "--data", other, *out, *both)) == 1


def test_resuming_with_another_mixed_in_corpus_is_refused(mr_data, tmp_path, recorded):
    extra = shutil.copytree(mr_data, tmp_path / "extra") / "data-bin"
    where = ("--data", mr_data, "--out", tmp_path / "out", "--arch", "cnn", "--")
    mixes = (("--mix", f"{extra}:0.5"), (f"--mix={extra}:0.5",))
    for number, mix in enumerate(mixes):
        assert len(recorded("mr/train.sh", *where, *mix)) == 1
        (tmp_path / "out" / "cnn" / "seed1" / "checkpoint_last.pt").touch()
        assert recorded("mr/train.sh", *where, *mix) == []
        with open(extra / "input0" / "singletons.txt", "a") as file:
            file.write(f"another{number}\n")
        refused = run("mr/train.sh", *where, *mix, status=2)
        assert "was started with other options (another --mix); repeat the" in refused
        shutil.rmtree(tmp_path / "out")
    (nowhere,) = recorded("mr/train.sh", *where, "--mix", f"{tmp_path}/none:0.5")
    assert f"{tmp_path}/none:0.5" in nowhere


def test_errors_of_training_appear_on_stderr(mr_data, tmp_path):
    where = ("--data", mr_data, "--out", tmp_path / "out", "--arch", "cnn")
    error = run("mr/train.sh", *where, "--", "--lr-scheduler", "nope", status=2)
    assert error.startswith("error: ")
    assert error in (tmp_path / "out" / "cnn" / "seed1" / "train.log").read_text()
    assert not (tmp_path / "out" / "cnn" / "seed1" / "finished").exists()


@pytest.fixture(scope="module")
def mr_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mr")
    raw, out = write_mr(folder / "raw", 20), folder / "data"
    module = importlib.import_module("fairseq_casrnn.data.corpora.mr")
    assert module.main(["--raw", str(raw), "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize(
    "system",
    mostly_full(SYSTEMS, "bilstm_att", "bicas2", "residual", "slstm", "cnn", "transformer"),
)
def test_systems(system, mr_data, tmp_path, recorded):
    """Every named system is a model with HIDDEN units that can be built."""
    (command,) = recorded(
        "mr/train.sh", "--arch", system, "--data", mr_data, "--out", tmp_path / "out", "--",
        "--encoder-embed-dim", 6, HIDDEN="4",
    )  # fmt: skip
    parser = options.get_training_parser()
    with warnings.catch_warnings(action="ignore"):
        args = options.parse_args_and_arch(parser, command[1:])
        cfg = convert_namespace_to_omegaconf(args)
    assert cfg.model._name == f"{SYSTEMS[system]}_sentence_encoder"
    model = build_model(cfg.model, make_task(2))
    rnn = getattr(model.encoder.body, "rnn", None)
    if rnn is not None:
        sizes = getattr(rnn, "hidden_sizes", None) or [rnn.hidden_size]
        assert set(sizes) == {4}
        depth = getattr(rnn, "num_layers", 1)
        assert depth == int("".join(filter(str.isdigit, system)) or 1)
        assert model.encoder.body.directions == (2 if system.startswith(TWO_WAYS) else 1)


def test_folds(recorded, mr_data, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for fold in (0, 3):
        (data / f"fold{fold}").symlink_to(mr_data)
    where = ("--raw", "RAW", "--data", data, "--out", tmp_path / "out", "--folds", "0,3")
    more = ("--arch", "cnn", "--seeds", 2, "--", "--max-epoch", 2)
    prepared = ["--vocabulary", "all", "--no-lowercase"]
    commands = recorded("mr/run_folds.sh", *where, *prepared, *more)
    assert [command[0].rpartition(".")[2] for command in commands] == [
        *("mr", "train", "train", "evaluate_classifier") * 2,
        "tables",
    ]
    assert commands[4][1:] == [
        *("--out", str(data / "fold3"), "--raw", "RAW", *prepared, "--fold", "3")
    ]
    assert commands[6][-2:] == ["--max-epoch", "2"]
    assert str(tmp_path / "out" / "fold3" / "cnn" / "seed2") in commands[6]
    assert commands[7][commands[7].index("--seed") :][:3] == ["--seed", "1", "2"]


@pytest.mark.full
def test_review_sets_in_one_command(tmp_path):
    """All steps run in separate processes."""
    raw = write_reviews(tmp_path / "raw", ("books",), train=240)
    printed = run(
        "reviews16/run_table.sh", "--raw", raw, "--set", "books", "--tiny",
        "--vocabulary", "all", "--valid-size", 100,
        "--data", tmp_path / "data", "--out", tmp_path / "out",
    )  # fmt: skip
    assert "valid sentences: 100\n" in printed
    header, _, row, average = printed.splitlines()[-4:]
    assert header == "| set | cas_lstm_sentence_encoder_tiny |"
    assert row.startswith("| books | ")
    assert average.removeprefix("| **average**") == row.removeprefix("| books")


@pytest.mark.parametrize(
    ("script", "folder", "subset", "wanted"),
    [
        ("mr/run_curves.sh", "steps-03", "valid", ["--num-steps", "3"]),
        (
            "mr/run_curves.sh",
            "nodes-0",
            "valid",
            ["--num-sentence-nodes", "0", "--pooling", "mean"],
        ),
        ("sick/run_lambda.sh", "lambda-trainable", "test", ["--lam", "trainable"]),
        ("sick/run_lambda.sh", "lambda-0.75", "test", ["--lam", "0.75"]),
    ],
)
def test_variants(script, folder, subset, wanted, mr_data, tmp_path, recorded):
    """Each variant has its own folder and appends its options to the system's; a table follows."""
    where = ("--data", mr_data, "--out", tmp_path, "--seeds", 2)
    *runs, table = recorded(script, *where, "--", "--max-epoch", 3)
    assert table == [
        *("fairseq_casrnn.evaluation.tables", "sets", str(tmp_path)),
        *("--subset", subset, "--no-average"),
    ]
    trained = [run for run in runs if run[0] == "fairseq_cli.train"]
    evaluated = [run for run in runs if run[0] == "fairseq_casrnn.evaluation.evaluate_classifier"]
    assert len(trained) == 2 * len(evaluated)
    folders = [Path(run[run.index("--save-dir") + 1]) for run in trained]
    assert len(set(folders)) == len(folders)
    mine = [run for run in trained if f"{tmp_path}/{folder}/" in " ".join(run)]
    assert [run[-2 - len(wanted) :] for run in mine] == [[*wanted, "--max-epoch", "3"]] * 2
    (mine,) = [run for run in evaluated if str(tmp_path / folder) in run]
    assert mine[mine.index("--subset") + 1] == subset
    assert mine[mine.index("--seed") + 1 :][:2] == ["1", "2"]


def test_some_variants(mr_data, tmp_path, recorded):
    where = ("--data", mr_data, "--out", tmp_path)
    *runs, _ = recorded("mr/run_curves.sh", *where, "--variant", "nodes-0,steps-03")
    folders = [
        Path(run[run.index("--save-dir") + 1]).parts[len(tmp_path.parts)]
        for run in runs
        if run[0] == "fairseq_cli.train"
    ]
    assert folders == ["steps-03", "nodes-0"]
    error = run("mr/run_curves.sh", *where, "--variant", "steps-03,nodes", status=2)
    assert error.startswith("error: there is no variant nodes; choose from steps-01 steps-03 ")
    assert error.count("\n") == 1
    error = run("sick/run_lambda.sh", *where, "--subset", "dev", status=2)
    assert error.endswith(" has no split 'dev'; choose --subset from train, valid and test\n")
    assert "of lstm lambda-0.25 " in run("sick/run_lambda.sh", "--help")


@pytest.mark.parametrize(
    "script",
    mostly_full(SCRIPTS, *SCRIPTS[-3:]),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_help(script):
    assert os.access(script, os.X_OK)
    shown = run(script, "--help")
    step = {"prepare.sh": "python -m ", "run_table.sh": "casrnn run table "}
    assert shown.startswith(f"usage: {step.get(script.name, 'casrnn run ')}")


@pytest.mark.full
def test_mistakes(tmp_path):
    raw, out = ("--raw", tmp_path), ("--out", tmp_path / "out", "--data", tmp_path / "data")
    for script, arguments in (
        ("mr/run_folds.sh", (*raw, *out)),  # its reader does not have the option either
        ("reviews16/run_table.sh", (*raw, *out)),
        ("sst/train.sh", ()),
    ):
        error = run(script, "--bogus", *arguments, status=2)
        assert error.startswith("error: unrecognized arguments: --bogus")
        assert error.count("\n") == 1
    missing = run("mr/run_folds.sh", *out, status=2)
    assert missing == "error: the following arguments are required: --raw; see --help\n"
    assert not list(tmp_path.iterdir())
    (tmp_path / "data-bin").mkdir()
    error = run("mr/train.sh", "--data", tmp_path, "--arch", "slstm,magic", status=2)
    assert error.startswith("error: unknown system magic")

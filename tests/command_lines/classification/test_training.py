"""Sentence classification with fairseq's command-line programs."""

import contextlib
import json
import re
import shutil

import pytest
import torch
from fairseq.data import Dictionary, data_utils
from labelled_corpora import write_mr, write_trec
from sklearn.metrics import f1_score

from fairseq_casrnn.data.corpora import mr, trec
from fairseq_casrnn.diagnostics.explain import explain, explained
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.evaluate_classifier import classify
from fairseq_casrnn.evaluation.runs import choose_checkpoint, training_seconds

from ..programs import checkpoint, fairseq
from .common import prepare, train

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]


def test_training_learns_and_records_the_confusion_matrix(trained, data):
    result = json.loads((trained / "validation.json").read_text())
    assert result["accuracy"] > 90
    assert result["sentences"] == 10
    rows = result["confusion"]
    right = sum(rows[name][name] for name in rows)
    assert result["accuracy"] == pytest.approx(100 * right / 10)
    assert (trained / "checkpoint_best.pt").exists()
    found = classify(data.parent, trained / "checkpoint_best.pt", "test", batch_size=3)
    truth, predicted, _ = zip(*found["predictions"], strict=True)
    assert found["macro_f1"] == round(100 * f1_score(truth, predicted, average="macro"), 2)
    assert found["sentences"] == 10


def test_validate(trained, data):
    """fairseq-validate finds the same accuracy as the training logged."""
    done = fairseq(
        "validate", data, "--task", "sentence_classification", "--path",
        trained / "checkpoint_best.pt", "--cpu", "--batch-size", 4, "--num-workers", 0,
        "--log-format", "json",
    )  # fmt: skip
    (record,) = done.records("valid_accuracy")
    best = checkpoint(trained / "checkpoint_best.pt")["extra_state"]["best"]
    assert float(record["valid_accuracy"]) == best


def test_early_stopping_on_accuracy(data, tmp_path):
    done = train(data, tmp_path, "cas_lstm", 40, "--patience", 2)
    assert "early stop since valid performance hasn't improved for last 2 runs" in done.log
    extra = checkpoint(tmp_path / "checkpoint_last.pt")["extra_state"]
    assert extra["train_iterator"]["epoch"] < 20


def test_unknown_best_checkpoint_metric(data, tmp_path):
    message = r"gives no 'f2', which --best-checkpoint-metric asks for"
    with pytest.raises(UserError, match=message), explained():
        train(data, tmp_path, "cas_lstm", 1, "--best-checkpoint-metric", "f2")


def test_resumed_training_is_the_uninterrupted_one(data, tmp_path):
    """Resuming is exact although --mix draws other sentences in each epoch."""
    mix = ["--mix", f"{data}:0.3"]
    train(data, tmp_path / "whole", "cas_lstm", 3, *mix)
    for epochs in (1, 3):
        train(data, tmp_path / "parts", "cas_lstm", epochs, *mix)
    whole, parts = (
        checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts")
    )
    for name, tensor in whole["model"].items():
        assert tensor.equal(parts["model"][name]), name


@pytest.mark.full
def test_training_seconds_sum_over_interruptions(data, tmp_path):
    """Seconds are read from the checkpoint, since a killed training logs no duration."""
    run = tmp_path / "cnn" / "seed1"
    train(data, run, "cnn", 1)
    first = training_seconds(run)
    state = torch.load(run / "checkpoint_last.pt", weights_only=False)
    assert 0 < first == round(state["extra_state"]["previous_training_time"], 1)
    state["extra_state"]["previous_training_time"] = 1000.0
    torch.save(state, run / "checkpoint_last.pt")
    train(data, run, "cnn", 2)
    assert 1000 < training_seconds(run) < 1000 + 100


def test_best_checkpoints_have_the_highest_accuracy(data, tmp_path):
    train(data, tmp_path, "cas_lstm", 5, "--keep-best-checkpoints", 3)
    kept = {float(path.stem.rpartition("_")[2]): path for path in tmp_path.glob("*.best_*")}
    assert len(kept) > 1
    averaged = checkpoint(choose_checkpoint(tmp_path, "best:1"))
    best = checkpoint(kept[max(kept)])
    assert all(tensor.equal(averaged["model"][name]) for name, tensor in best["model"].items())


def test_evaluation_of_the_training_set(data, tmp_path):
    """The evaluation reads the training set in its order, without the mixed-in corpus."""
    options = ["--mix", f"{data}:0.3", "--forget-singletons", 0.9]
    train(data, tmp_path, "cas_lstm", 1, *options)
    found, again = (
        classify(data.parent, tmp_path / "checkpoint_best.pt", "train")["predictions"]
        for _ in range(2)
    )
    assert found == again
    dictionary = Dictionary.load(str(data / "label" / "dict.txt"))
    labels = data_utils.load_indexed_dataset(str(data / "label" / "train"), dictionary)
    assert [truth for truth, _, _ in found] == [dictionary[int(label[0])] for label in labels]


def test_mixing_in_another_corpus(data, tmp_path, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    raw = other / "raw"
    write_mr(raw, 30)
    with open(raw / "rt-polarity.neg", "ab") as file:
        # gives the words of the other corpus other indices
        file.write(b"wholly unheard words\n" * 3)
    extra = prepare(mr, raw, other)
    done = train(data, tmp_path, "cas_lstm", 1, "--mix", f"{extra}:0.25")
    assert f"mixing in 12 of 49 sentences of {extra}" in done.log


def test_pairs_are_not_mixed_with_single_sentences(data, pair_data, tmp_path):
    kinds = {data: "single sentences", pair_data: "pairs of sentences"}
    for ours, theirs in ((data, pair_data), (pair_data, data)):
        wanted = f"{theirs} holds {kinds[theirs]} and {ours} {kinds[ours]}; give --mix a folder of"
        with pytest.raises(UserError, match=re.escape(wanted)):
            train(ours, tmp_path, "cas_lstm", 1, "--mix", f"{theirs}:0.5")
    with pytest.raises(UserError, match=r"nowhere/input0/dict\.txt does not exist"):
        train(pair_data, tmp_path, "cas_lstm", 1, "--mix", f"{tmp_path / 'nowhere'}:0.5")


def test_an_unknown_class_in_the_mixed_in_corpus(data, tmp_path):
    extra = prepare(trec, write_trec(tmp_path / "raw"), tmp_path / "trec", "--valid-size", 9)
    with pytest.raises(UserError, match=r"sentence 1 \(NUM\): its label is not one of"):
        train(data, tmp_path / "run", "cas_lstm", 1, "--mix", f"{extra}:0.5")


def test_a_validation_sentence_that_is_too_long(data, tmp_path):
    with pytest.raises(Exception, match="Size of sample") as caught:
        train(data, tmp_path, "cas_lstm", 1, "--max-positions", 3)
    message = r"sentence \d+ of 'valid' has \d+ tokens, more than the model's --max-positions 3"
    assert re.search(message, explain(caught.value))


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("mix", ["nowhere", "x:0", "x:1.5", ":0.5"])
def test_malformed_mix_option(data, tmp_path, mix):
    with pytest.raises(UserError, match="--mix is"):
        train(data, tmp_path, "cas_lstm", 1, "--mix", mix)


def test_programs_that_do_not_support_classifiers(data, trained, tmp_path):
    """fairseq-generate and fairseq's own classification task refuse a classifier."""
    where = ("--path", trained / "checkpoint_best.pt", "--task", "sentence_classification")
    with pytest.raises(UserError, match="a sentence classifier generates no text; use casrnn pred"):
        fairseq("generate", data, *where, "--cpu")
    with pytest.raises(Exception, match="Interpolation key") as caught:
        train(data, tmp_path, "cas_lstm", 1, "--task", "sentence_prediction")
    assert "--task and --criterion do not fit: the task needs a crit" in explain(caught.value)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("part", "message"),
    [("label", "lists the classes in another order"), ("input0", "is not the dictionary that the")],
)
def test_resuming_with_other_data_is_refused(data, trained, tmp_path, part, message):
    """Indices would mean other words or classes. With new weights, other classes are fine."""
    other = shutil.copytree(data, tmp_path / "other")
    lines = (other / part / "dict.txt").read_text().splitlines()
    (other / part / "dict.txt").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    run = shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(UserError, match=message):
        train(other, run, "cas_lstm", 9)
    start = ("--finetune-from-model", trained / "checkpoint_best.pt")
    with pytest.raises(UserError, match=message) if part == "input0" else contextlib.nullcontext():
        train(other, tmp_path / "new", "cas_lstm", 1, *start)
    assert (tmp_path / "new" / "checkpoint_best.pt").exists() == (part == "label")
    train(data, run, "cas_lstm", 9)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("option", "value", "before"),
    [("--pooling", "mean", "max"), ("--mlp-activation", "tanh", "relu"), ("--lam", "0.25", "0.5")],
)
def test_resuming_with_another_function_is_refused(trained, data, tmp_path, option, value, before):
    """fairseq loads weights wherever their shapes fit; a new training may start from them."""
    run = shutil.copytree(trained, tmp_path / "run")
    message = f"training to be resumed has {option} {before}, not {option} {value}; give it"
    with pytest.raises(UserError, match=message):
        train(data, run, "cas_lstm", 9, option, value)
    start = ("--finetune-from-model", trained / "checkpoint_best.pt")
    train(data, tmp_path / "new", "cas_lstm", 1, option, value, *start)

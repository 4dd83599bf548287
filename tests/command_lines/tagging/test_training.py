"""Taggers with fairseq's command-line programs."""

import json
import shutil
from unittest import mock

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.trainer import Trainer
from seqeval.metrics import accuracy_score, f1_score

from fairseq_casrnn.data.spans import as_iob2
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.evaluate_tagger import tag
from fairseq_casrnn.models.tagger import Tagger

from ..programs import assert_same_training, checkpoint, fairseq
from .common import train

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]


def test_a_tagger_learns_names(trained, data):
    """A tagger recognises an unseen name by its spelling and context; F1 equals seqeval's."""
    checkpoint = trained / "checkpoint_best.pt"
    found = tag(data.parent, checkpoint, "test", batch_size=3)
    assert found["constrained_tags"]
    assert all(0 < value <= 1 for value in found["confidence"])
    again = tag(data.parent, checkpoint, "test")  # in other batches
    assert again["confidence"] == pytest.approx(found["confidence"], rel=1e-4)
    free = tag(data.parent, checkpoint, "test", unconstrained_tags=True)
    assert not free["constrained_tags"]
    truth = [as_iob2([row[1] for row in sentence]) for sentence in found["rows"]]
    best = [as_iob2([row[2] for row in sentence]) for sentence in found["rows"]]
    assert found["f1"] > 90
    assert found["f1"] == round(100 * f1_score(truth, best), 2)
    assert found["accuracy"] == round(100 * accuracy_score(truth, best), 2)
    assert found["sentences"] == 15
    result = json.loads((trained / "validation.json").read_text())
    assert result["f1"] > 90
    assert set(result) == {"accuracy", "precision", "recall", "f1", "num_updates"}


def test_validate(trained, data):
    """fairseq-validate finds the same F1 as the training logged, however the data is batched."""
    scores = []
    for size in (2, 12):
        done = fairseq(
            "validate", data, "--task", "sequence_tagging", "--path",
            trained / "checkpoint_best.pt", "--cpu", "--batch-size", size, "--num-workers", 0,
            "--log-format", "json",
        )  # fmt: skip
        (record,) = done.records("valid_f1")
        scores.append(float(record["valid_f1"]))
    best = checkpoint(trained / "checkpoint_best.pt")["extra_state"]["best"]
    assert scores == [best, best]


@pytest.mark.full
@pytest.mark.parametrize("name", ["sentence_state_lstm", "shortcut_lstm", "second_order_lstm"])
def test_other_taggers(name, data, tmp_path):
    done = train(data, tmp_path, name, 2, "--tagger-output", "softmax")
    first, second = (float(record["valid_loss"]) for record in done.records("valid_loss"))
    assert second < first
    found = tag(data.parent, tmp_path / "checkpoint_last.pt", "valid")
    last = json.loads((tmp_path / "validation.json").read_text())
    assert found["f1"] == pytest.approx(last["f1"], abs=0.011)


@pytest.mark.full
def test_resumed_training_is_the_uninterrupted_one(data, tmp_path):
    more = ["--forget-singletons", 0.5, "--encoder-dropout-in", 0.2]
    train(data, tmp_path / "whole", "cas_lstm", 3, *more)
    for epochs in (1, 3):
        train(data, tmp_path / "parts", "cas_lstm", epochs, *more)
    paths = (tmp_path / name / "checkpoint_last.pt" for name in ("whole", "parts"))
    assert_same_training(*paths)


@pytest.mark.parametrize("validation", [(), ("--disable-validation",)])
def test_weights_that_are_not_finite_replace_no_checkpoint(trained, data, tmp_path, validation):
    """The F1 of NaN weights might be the best so far, and in the first epoch always is.

    Nothing is saved without validation either.
    """
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*.pt")}
    step = Trainer.train_step

    def spoiling(trainer, *args, **kwargs):
        result = step(trainer, *args, **kwargs)
        with torch.no_grad():
            trainer.get_model().output.bias[0] = float("nan")
        return result

    options = ("--encoder-bidirectional", "--batch-size", 1000, *validation)
    with (
        mock.patch.object(Trainer, "train_step", spoiling),
        pytest.raises(UserError, match=r"diverged: after \d+ updates the weights output.bias"),
    ):
        train(data, tmp_path, "cas_lstm", 16, *options)
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*.pt")} == before


def test_a_validation_loss_that_is_not_finite_replaces_no_checkpoint(trained, data, tmp_path):
    """Finite weights give such a loss if half precision or a running variance overflows."""
    forward = Tagger.forward

    def overflowing(model, *args, **kwargs):
        emissions, loss = forward(model, *args, **kwargs)
        return emissions, loss if model.training else loss * float("inf")

    with (
        mock.patch.object(Tagger, "forward", overflowing),
        pytest.raises(UserError, match=r"diverged: after \d+ updates the validation loss is inf"),
    ):
        train(data, tmp_path)
    assert not list(tmp_path.glob("*.pt"))
    assert not (tmp_path / "validation.json").exists()


def test_data_of_fairseq_preprocess(tmp_path):
    """The data is a pair of parallel text files with parts of speech, for which there is no F1.

    Validation has a tag that training lacks, and still runs.
    """
    text, tags = "a dog saw it .\nit barked\n\n", "DT NN VB PR .\nPR VB\n\n"
    for name, content in (("words", text), ("tags", tags)):
        (tmp_path / name).write_text(content)
        (tmp_path / f"valid.{name}").write_text(f"{content}{'oh' if name == 'words' else 'UH'}\n")
    for part, name in (("input0", "words"), ("label", "tags")):
        fairseq(
            "preprocess", "--only-source", "--trainpref", tmp_path / name, "--validpref",
            tmp_path / f"valid.{name}", "--destdir", tmp_path / "data" / part, "--workers", 1,
        )  # fmt: skip
    metric = ("--best-checkpoint-metric", "accuracy", "--char-filters", 0)
    done = train(tmp_path / "data", tmp_path / "run", "cas_lstm", 30, *metric)
    last = done.records("valid_accuracy")[-1]
    assert float(last["valid_accuracy"]) == 87.5
    assert 0 < float(last["valid_loss"]) < 1
    assert done.log.count("1 tag(s) of valid do not occur in training") == 1
    assert "valid_f1" not in last
    shown = Dictionary.load(str(tmp_path / "data" / "label" / "dict.txt")).symbols
    assert any(symbol.startswith("madeupword") for symbol in shown)
    state = checkpoint(tmp_path / "run" / "checkpoint_last.pt")
    assert state["task_state"]["classes"] == ["PR", "VB", ".", "DT", "NN"]


def test_data_without_the_spelling_of_words(tmp_path, data):
    shutil.copytree(data, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "spelling")
    with pytest.raises(UserError, match="--char-filters needs the words' characters, but the"):
        train(tmp_path / "data", tmp_path / "run")


def test_programs_that_do_not_support_taggers(data, trained, tmp_path):
    where = ("--path", trained / "checkpoint_best.pt", "--task", "sequence_tagging")
    with pytest.raises(UserError, match="a tagger generates no text; use casrnn tag for"):
        fairseq("generate", data, *where, "--cpu")
    with pytest.raises(UserError, match="--criterion sequence_tagging needs --task sequence_tagg"):
        fairseq(
            "train", data, "--task", "sentence_classification", "--criterion", "sequence_tagging",
            "--arch", "cas_lstm_sentence_encoder_tiny", "--optimizer", "adam", "--lr", 1,
            "--save-dir", tmp_path, "--cpu", "--max-epoch", 1, "--batch-size", 4,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("criterion", "arch", "message"),
    [
        ("sequence_tagging", "cas_lstm_sentence_encoder_tiny", "sentence encoders need --task sen"),
        (
            "sentence_classification",
            "cas_lstm_tagger_tiny",
            "--criterion sentence_classification n",
        ),
        (
            "cross_entropy",
            "cas_lstm_tagger_tiny",
            "--criterion cross_entropy does not fit --task sequence_tagging; give --criterion seq",
        ),
    ],
)
def test_incompatible_task_criterion_and_model(data, tmp_path, criterion, arch, message):
    with pytest.raises(UserError, match=message):
        fairseq(
            "train", data, "--task", "sequence_tagging", "--criterion", criterion, "--arch", arch,
            "--optimizer", "adam", "--lr", 1, "--save-dir", tmp_path, "--cpu", "--max-epoch", 1,
            "--batch-size", 4,
        )  # fmt: skip

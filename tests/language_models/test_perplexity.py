"""``casrnn perplexity``, and the scores that it is computed from."""

import math
import re
import shutil
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from command_lines.programs import fairseq
from fairseq.data import Dictionary
from fairseq.models import MODEL_REGISTRY
from models.common import dictionary

from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import lm_scores, perplexity, sentence_scores
from fairseq_casrnn.evaluation.evaluate_lm import evaluate
from fairseq_casrnn.inference import lm_inputs, loading
from fairseq_casrnn.patches import install
from fairseq_casrnn.patches.table import TABLE
from fairseq_casrnn.recurrence import choice

from .common import random_model, random_tokens
from .conftest import train
from .test_stateful_task import independent


@torch.no_grad()
def test_scores_of_sentences():
    """The scores do not depend on the order of sentences and on batches."""
    model, words = random_model("cas_lstm"), dictionary()
    sentences = [
        torch.cat([row[:n], torch.tensor([2])])
        for n, row in zip((3, 0, 7, 1, 3), random_tokens(5, 7), strict=True)
    ]
    scores = lm_scores.score_sentences(model, words, sentences)
    expected = []
    for sentence in sentences:
        source = torch.cat([torch.tensor([2]), sentence[:-1]])
        table = model(source[None])[0][0].log_softmax(-1)
        expected.append(float(table.gather(1, sentence[:, None]).sum()))
    assert scores.tokens == sum(len(sentence) for sentence in sentences)
    assert scores.sentences() == pytest.approx(expected, rel=1e-5)
    assert scores.loss == pytest.approx(-sum(expected) / scores.tokens, rel=1e-5)
    assert scores.perplexity == pytest.approx(math.exp(scores.loss))


@pytest.mark.parametrize("streams", [1, 3])
def test_scores_of_streams(monkeypatch, streams):
    """Reading in pieces gives the scores of one pass, without the first token of each stream.

    The text contains the padding symbol, which is treated as any other word.
    """
    monkeypatch.setattr(lm_scores, "BATCH_TOKENS", 8)
    model, words = random_model("dg_lstm"), dictionary()
    text = random_tokens(1, 29)[0]
    text[14] = words.pad()
    scores = lm_scores.read_streams(model, words, text.split([9, 11, 9]), streams).scores
    expected = []
    for stream in text.tensor_split(streams):
        table = model(stream[None, :-1])[0][0].log_softmax(-1)
        expected += [math.nan, *table.gather(1, stream[1:, None]).squeeze(1).tolist()]
    assert scores.log_probs == pytest.approx(np.array(expected), rel=1e-5, nan_ok=True)
    assert scores.tokens == 29 - streams
    assert sum(scores.sentences()) == pytest.approx(-scores.loss * scores.tokens)


def test_a_model_trained_with_bos(data, tmp_path, capsys):
    """As in fairseq-eval-lm, <s> comes before each sentence and is not predicted."""
    options = ["--task", "language_modeling", "--sample-break-mode", "eos", "--add-bos-token"]
    options += ["--cpu", "--num-workers", "0", "--max-tokens", "99"]
    training = ["--arch", "cas_lstm_lm_tiny", "--optimizer", "adam", "--lr", "0.03"]
    fairseq("train", data, *options, *training, "--max-epoch", "1", "--save-dir", tmp_path)
    path = tmp_path / "checkpoint_last.pt"
    expected = fairseq("eval_lm", data, *options, "--path", path, "--gen-subset", "test").log
    command = ["perplexity", str(data), "--path", str(path), "--sentence-reset"]
    assert cli.main(command) == 0
    found = re.search(r"perplexity ([\d.]+)", capsys.readouterr().out)[1]
    assert found == re.search(r"Perplexity: ([\d.]+)", expected)[1]
    model, task = loading.load_language_model(path, data)
    sentences = lm_inputs.read_sentences(data, "test", task.dictionary)
    scores = lm_scores.score_sentences(model, task.dictionary, sentences).sentences()
    lines = [task.dictionary.string(sentence) for sentence in sentences]
    others = sentence_scores.score(model, task.dictionary, lines)
    assert [others[line] for line in lines] == pytest.approx(scores, rel=1e-5)


def test_eval_lm_of_no_tokens(data, checkpoint):
    """fairseq-eval-lm would report a perplexity of 1."""
    install.apply(patch for patch in TABLE if patch.where == "eval_lm")
    options = ["--task", "stateful_language_modeling", "--sentence-reset", "--cpu"]
    shards = ["--gen-subset", "test", "--num-shards", "3", "--num-workers", "0", "--shard-id"]
    fairseq("eval_lm", data, "--path", checkpoint, *options, *shards, "0")
    with pytest.raises(UserError, match="no token was evaluated: all text is longer than"):
        fairseq("eval_lm", data, "--path", checkpoint, *options, *shards, "2")


@torch.no_grad()
def test_scores_of_streams_with_bos():
    model, words = random_model("cas_lstm"), dictionary()
    model.reads_bos = True
    text = random_tokens(1, 15)[0]
    scores = lm_scores.read_streams(model, words, [text], 2).scores
    expected = []
    for stream in text.tensor_split(2):
        source = torch.cat([torch.tensor([words.bos()]), stream[:-1]])
        table = model(source[None])[0][0, 1:].log_softmax(-1)
        expected += [math.nan, *table.gather(1, stream[1:, None]).squeeze(1).tolist()]
    assert scores.log_probs == pytest.approx(np.array(expected), rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("options", [[], ["--sentence-reset"], ["--streams", "3"]])
def test_command(data, checkpoint, tmp_path, capsys, options):
    scores = tmp_path / "scores"
    command = ["perplexity", data, "--path", checkpoint, "--scores", scores, *options]
    assert cli.main([str(part) for part in command]) == 0
    streams = 3 if "--streams" in options else 1
    count, value = independent(checkpoint, data, "test", "--sentence-reset" in options, streams)
    assert capsys.readouterr().out == (
        f"tokens {count}, loss {math.log(value):.4f} nats ({math.log2(value):.4f} bits), "
        f"perplexity {value:.2f}\n"
    )
    rows = [line.split("\t") for line in scores.read_text().splitlines()]
    lines = (data.parent / "test").read_text().splitlines()
    counts = [int(row[0]) for row in rows]
    assert sum(counts) == count
    if "--sentence-reset" in options:
        assert counts == [len(line.split()) + 1 for line in lines]
    loss = -sum(float(row[1]) for row in rows) / count
    assert math.exp(loss) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({"sentence_reset": True}, True),
        ({"sentence_reset": False, "sample_break_mode": "none"}, False),
        ({"sample_break_mode": "eos"}, True),
        ({"sample_break_mode": "none"}, False),
    ],
)
def test_training_on_single_sentences_is_recognised(options, warns):
    task = SimpleNamespace(args=SimpleNamespace(**options))
    assert perplexity.reads_single_sentences(task) is warns


def test_warning_of_a_model_of_single_sentences(data, tmp_path, capsys):
    train(data, tmp_path, "--sentence-reset", "--max-update", "1")
    command = ["perplexity", str(data), "--path", str(tmp_path / "checkpoint_last.pt")]
    assert cli.main(command) == 0
    assert "was trained on single sentences and has not learnt" in capsys.readouterr().err
    assert cli.main([*command, "--sentence-reset"]) == 0
    assert not capsys.readouterr().err


@torch.no_grad()
def test_soft_routing_is_that_of_training():
    model, words = random_model("second_order_lstm"), dictionary()
    model.decoder.rnn.temperature.fill_(0.5)
    sentences = list(random_tokens(3, 5))
    hard = lm_scores.score_sentences(model, words, sentences)
    perplexity.enable_soft_routing(model, "x.pt")
    soft = lm_scores.score_sentences(model, words, sentences)
    assert np.abs(soft.log_probs - hard.log_probs).max() > 1e-3
    trained = lm_scores.score_sentences(model.train(), words, sentences)
    assert soft.log_probs == pytest.approx(trained.log_probs)


@torch.no_grad()
def test_soft_routing_option(data, capsys, monkeypatch):
    words = Dictionary.load(str(data / "dict.txt"))
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words, begin_epoch=None)
    task.args = SimpleNamespace(sentence_reset=False)
    model = random_model("second_order_lstm", task=task)
    monkeypatch.setattr(perplexity, "load_language_model", lambda *_: (model, task))
    printed = []
    for options in ([], ["--soft-routing"]):
        assert cli.main(["perplexity", str(data), "--path", "x.pt", *options]) == 0
        printed.append(capsys.readouterr().out)
    sentences = lm_inputs.read_sentences(data, "test", words)
    soft = lm_scores.read_streams(model.train(), words, sentences).scores
    assert printed[1] == f"{soft}\n" != printed[0]


def test_a_runs_folder(data, checkpoint, tmp_path):
    with pytest.raises(UserError, match=f"there is no checkpoint at {tmp_path}"):
        loading.load_language_model(tmp_path, data)
    shutil.copy(checkpoint, tmp_path / "checkpoint_last.pt")
    model, _ = loading.load_language_model(tmp_path, data)
    tokens, (same, _) = random_tokens(2, 5), loading.load_language_model(checkpoint, data)
    assert torch.equal(model(tokens)[0], same(tokens)[0])


def test_a_checkpoint_from_before_an_option(data, checkpoint, tmp_path):
    """fairseq adds missing options of models, but not of named architectures."""
    state = torch.load(checkpoint)
    for name in ("embed_dropout", "weight_dropout", "locked_dropout"):
        del state["cfg"]["model"][name]
    torch.save(state, tmp_path / "older.pt")
    assert state["cfg"]["model"]["_name"] == "cas_lstm_lm_tiny"
    model, _ = loading.load_language_model(tmp_path / "older.pt", data)
    assert model.decoder.embed_dropout == 0
    newer, _ = loading.load_language_model(checkpoint, data)
    tokens = random_tokens(2, 5)
    assert torch.equal(model(tokens)[0], newer(tokens)[0])


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_that_are_not_finite(data, checkpoint, tmp_path, capsys, value):
    """NaN scores would leave tokens out, and the rest would have a plausible perplexity."""
    state = torch.load(checkpoint)
    state["model"]["decoder.embed_tokens.weight"][5, 2] = float(value)
    torch.save(state, tmp_path / "damaged.pt")
    assert cli.main(["perplexity", str(data), "--path", str(tmp_path / "damaged.pt")]) == 2
    error = capsys.readouterr().err
    assert f"checkpoint {tmp_path}/damaged.pt has weights in decoder.embed_tokens.weight" in error
    assert error.count("\n") == 1


def test_nan_probabilities():
    model, words = random_model("cas_lstm"), dictionary()
    with torch.no_grad():
        model.decoder.embed_tokens.weight[5] = float("nan")
    with pytest.raises(UserError, match="probabilities are not numbers"):
        lm_scores.score_sentences(model, words, [torch.tensor([4, 5, 6, 2])])


def test_perplexity_beyond_floats():
    scores = lm_scores.Scores(np.array([-1e3, -1e3]), np.array([2]))
    assert str(scores).endswith("perplexity inf")


def test_evaluation_of_runs(data, checkpoint, tmp_path, caplog):
    (tmp_path / "data-bin").symlink_to(data)
    caplog.set_level("INFO")
    choice.logged.clear()
    result = evaluate(
        checkpoint.parent,
        Namespace(data=tmp_path, checkpoint="last", sentence_reset=True, cache=None),
    )
    assert not caplog.messages  # a recipe's output has no other lines
    for subset in ("valid", "test"):
        count, value = independent(checkpoint, data, subset, sentences=True)
        assert result[f"{subset}_tokens"] == count
        assert result[subset] == pytest.approx(value, abs=1e-4)
    assert result["mode"] == "sentences"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["{data}", "--path", "x.pt"], "checkpoint x.pt does not exist"),
        (["{tmp}", "--path", "{checkpoint}"], "dict.txt not found in {tmp}; name the folder"),
        (["{data}", "--path", "{data}/dict.txt"], "dict.txt cannot be read: it is truncated"),
        (["{data}", "--path", "{checkpoint}", "--subset", "dev"], "there is no 'dev' in {data}"),
        (["{data}", "--path", "{checkpoint}", "--streams", "0"], "--streams is 0"),
        (
            ["{data}", "--path", "{checkpoint}", "--streams", "99"],
            "streams of at least two tokens; lower --streams",
        ),
        (
            ["{data}", "--path", "{checkpoint}", "--streams", "2", "--sentence-reset"],
            "--streams is for a continuous text",
        ),
        (["{other}", "--path", "{checkpoint}"], "other is not the dictionary"),
        (["{data}", "--path", "{checkpoint}", "--soft-routing"], "which {checkpoint} is not; drop"),
        (["{data}", "--path", "{checkpoint}", "--scores", "/no/file"], "cannot write /no/file"),
        (["{data}", "--path", "{checkpoint}", "--scores", "{tmp}"], "{tmp}: it is a folder; name"),
        (["{data}", "--path", "{other}/mt.pt"], "other/mt.pt is a translation model, not a langu"),
    ],
)
def test_mistakes(data, checkpoint, tmp_path, capsys, options, message):
    other = tmp_path / "other"
    other.mkdir()
    (other / "dict.txt").write_text("a 1\nb 1\n")
    state = torch.load(checkpoint)
    state["cfg"]["model"]["_name"] = "cas_lstm_tiny"
    torch.save(state, other / "mt.pt")
    names = {"data": data, "checkpoint": checkpoint, "tmp": tmp_path, "other": other}
    assert cli.main(["perplexity", *(option.format(**names) for option in options)]) == 2
    error = capsys.readouterr().err
    assert message.format(**names) in error
    assert error.count("\n") == 1


def test_a_prepared_folder(data, checkpoint, tmp_path, capsys):
    """A folder of casrnn prepare stands for its data-bin."""
    (tmp_path / "data-bin").symlink_to(data)
    printed = []
    for folder in (data, tmp_path):
        command = [str(folder), "--path", str(checkpoint), "--cache", "5", "--cache-weight", "0.1"]
        assert cli.main(["perplexity", *command, "--cache-flatness", "1"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_a_packed_model(data, checkpoint, tmp_path, capsys):
    model = tmp_path / "model.casrnn"
    command = ["pack", str(checkpoint), "--data", str(data), "--output", str(model)]
    assert cli.main(command) == 0
    capsys.readouterr()
    printed = []
    for path in (checkpoint, model):
        assert cli.main(["perplexity", str(data), "--path", str(path), "--sentence-reset"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    for path in (model, checkpoint, checkpoint.parent):
        loaded = MODEL_REGISTRY["cas_lstm_lm"].from_pretrained(path)
        assert loaded.task.dictionary == Dictionary.load(str(data / "dict.txt"))

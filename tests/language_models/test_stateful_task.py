"""The task stateful_language_modeling, through fairseq's programs."""

import math
import re

import pytest
import torch
from command_lines.programs import fairseq
from fairseq import checkpoint_utils
from fairseq.data import data_utils

from fairseq_casrnn.diagnostics.explain import explain
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.runs import record

from .conftest import train


@torch.no_grad()
def independent(checkpoint, data, subset, sentences=False, streams=1):
    """(tokens, perplexity) of one float64 pass over each stream or sentence."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(data)}
    )
    model.double().eval()
    text = [s.long() for s in data_utils.load_indexed_dataset(str(data / subset), task.dictionary)]
    eos = torch.tensor([task.dictionary.eos()])
    rows = [torch.cat([eos, sentence]) for sentence in text]
    if not sentences:
        rows = torch.cat(text).tensor_split(streams)
    total, count = 0.0, 0
    for row in rows:
        logits = model(row[None, :-1])[0][0].double()
        total -= float(logits.log_softmax(-1).gather(1, row[1:, None]).sum())
        count += len(row) - 1
    return count, math.exp(total / count)


def size(data, subset):
    """The number of tokens in the text, including line ends."""
    lines = (data.parent / subset).read_text().splitlines()
    return sum(len(line.split()) + 1 for line in lines)


def evaluated(done):
    """(tokens, perplexity) as fairseq-eval-lm logs them."""
    tokens = re.search(r"Evaluated ([\d,]+) tokens", done.log)[1]
    return int(tokens.replace(",", "")), float(re.search(r"Perplexity: ([\d.]+)", done.log)[1])


def test_the_record_of_the_data(data, tmp_path):
    train(data, tmp_path, epochs=1)
    found = record.read(tmp_path)["data"]
    assert found["folder"] == str(data)
    assert found["checksum"].count(" ") == 1


@pytest.mark.parametrize("sentences", [False, True])
def test_validation_counts_every_token_once(data, tmp_path, sentences):
    """The logged loss is exact, although batches differ in size and the state is carried."""
    options = ["--sentence-reset"] if sentences else []
    done = train(data, tmp_path, *options, "--dropout", 0, epochs=1)
    valid = done.records("valid_loss")[-1]
    checkpoint = tmp_path / "checkpoint_last.pt"
    count, exact = independent(checkpoint, data, "valid", sentences, streams=4)
    saved = torch.load(checkpoint)["extra_state"]
    # logged with three digits
    assert saved["val_loss"] == pytest.approx(math.log2(exact), abs=6e-4)
    assert float(valid["valid_ppl"]) == pytest.approx(exact, abs=0.006)
    training = done.records("train_loss")[-1]
    updates = int(training["train_num_updates"])
    skipped = 0 if sentences else 4  # the first token of each stream
    assert count == size(data, "valid") - skipped
    seen = float(training["train_wpb"]) * updates
    assert seen == pytest.approx(size(data, "train") - skipped, abs=0.06 * updates)


@pytest.mark.parametrize("options", [[], ["--batch-size", 3], ["--sentence-reset"]])
def test_eval_lm(data, checkpoint, options):
    arguments = ["--task", "stateful_language_modeling", "--cpu", "--path", checkpoint, "--bptt", 7]
    done = fairseq(
        "eval_lm", data, *arguments, "--gen-subset", "test", "--num-workers", 0, *options
    )
    streams = 3 if "--batch-size" in options else 1
    exact = independent(checkpoint, data, "test", "--sentence-reset" in options, streams)
    assert evaluated(done) == (exact[0], pytest.approx(exact[1], abs=0.006))


@pytest.mark.full
def test_fairseqs_own_task(data, tmp_path):
    """fairseq's task language_modeling trains, validates and evaluates these models, too."""
    own = ["--task", "language_modeling", "--sample-break-mode", "eos", "--batch-size", 8]
    train_options = ["--cpu", "--optimizer", "adam", "--lr", 0.01, "--num-workers", 0]
    save = ["--max-epoch", 1, "--save-dir", tmp_path, "--arch", "second_order_lstm_lm_tiny"]
    log = ["--log-format", "json"]
    done = fairseq("train", data, *own, *train_options, *save, *log)
    assert done.records("valid_loss")
    checkpoint = tmp_path / "checkpoint_last.pt"
    arguments = ["--cpu", "--path", checkpoint, "--gen-subset", "test", "--num-workers", 0]
    done = fairseq("eval_lm", data, *own, *arguments)
    exact = independent(checkpoint, data, "test", sentences=True)
    assert evaluated(done) == (exact[0], pytest.approx(exact[1], abs=0.006))


@pytest.mark.parametrize("task", ["stateful_language_modeling", "language_modeling"])
def test_sampling(data, checkpoint, task):
    sample = ["--sampling", "--beam", 2, "--nbest", 2, "--max-len-b", 5, "--batch-size", 4]
    arguments = ["--task", task, "--cpu", "--path", checkpoint, "--num-workers", 0]
    if task == "language_modeling":
        arguments += ["--sample-break-mode", "eos"]
        done = fairseq("generate", data, *arguments, *sample, "--gen-subset", "test")
    else:
        arguments += ["--sentence-reset", "--gen-subset", "test"]
        done = fairseq("generate", data, *arguments, *sample)
    assert len(done.lines("H")) == 2 * 9


def test_generation_from_streams_is_refused(data, checkpoint):
    arguments = ["--task", "stateful_language_modeling", "--cpu", "--path", checkpoint]
    with pytest.raises(UserError, match="give --sentence-reset as well"):
        fairseq("generate", data, *arguments, "--batch-size", 4, "--num-workers", 0)


def test_sentences_of_any_length(data, tmp_path):
    """--tokens-per-sample, an option of fairseq's own task, does not limit them."""
    options = ["--sentence-reset", "--tokens-per-sample", 3]
    done = train(data, tmp_path, *options, epochs=1)
    updates = int(done.records("train_loss")[-1]["train_num_updates"])
    seen = float(done.records("train_loss")[-1]["train_wpb"]) * updates
    assert seen == pytest.approx(size(data, "train"), abs=0.06 * updates)
    path = tmp_path / "checkpoint_last.pt"
    arguments = ["--task", "stateful_language_modeling", *options, "--cpu", "--path", path]
    found = fairseq("eval_lm", data, *arguments, "--gen-subset", "test", "--num-workers", 0)
    assert evaluated(found)[0] == size(data, "test")
    with pytest.raises(Exception, match="Size of sample") as caught:
        train(data, tmp_path / "limited", "--sentence-reset", "--max-target-positions", 3)
    sentence = explain(caught.value)
    assert "--max-target-positions 3; split it" in sentence
    assert "source" not in sentence


def test_sentences_of_any_length_in_fairseqs_own_task(data, tmp_path):
    """fairseq would skip longer sentences of the test set, and only log how many."""
    options = ["--task", "language_modeling", "--tokens-per-sample", 3, "--cpu"]
    options += ["--sample-break-mode", "eos", "--num-workers", 0]
    train_options = ["--max-tokens", 100, "--optimizer", "adam", "--max-epoch", 1]
    where = ["--save-dir", tmp_path, "--arch", "cas_lstm_lm_tiny"]
    fairseq("train", data, *options, *train_options, *where)
    path = tmp_path / "checkpoint_last.pt"
    found = fairseq("eval_lm", data, *options, "--path", path, "--gen-subset", "test")
    count, value = independent(path, data, "test", sentences=True)
    assert evaluated(found)[0] == count == size(data, "test")
    assert evaluated(found)[1] == pytest.approx(value, abs=0.011)


def test_validation_that_is_too_short(data, tmp_path):
    """The error comes before the first epoch."""
    options = ["--batch-size-valid", 40, "--bptt", 2]
    message = "the split 'valid' has .* tokens, too few for 40 streams .*; lower --batch-size-valid"
    with pytest.raises(UserError, match=message):
        train(data, tmp_path, *options, epochs=1)
    assert not list(tmp_path.glob("*.pt"))


def test_adaptive_softmax(data, tmp_path):
    """The logged loss includes all words, among them those with index 1 in a cluster."""
    options = ["--adaptive-softmax-cutoff", "8,15", "--criterion", "adaptive_loss"]
    options += ["--ddp-backend", "legacy_ddp", "--dropout", 0]
    train(data, tmp_path, *options, epochs=1)
    path = tmp_path / "checkpoint_last.pt"
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    text = data_utils.load_indexed_dataset(str(data / "valid"), task.dictionary)
    rows = torch.cat([s.long() for s in text]).tensor_split(4)
    assert any(row[1:].eq(cut + 1).any() for row in rows for cut in (8, 15))
    total, count = 0.0, 0
    for row in rows:
        with torch.no_grad():
            output = model.eval()(row[None, :-1])
            found = model.get_normalized_probs(output, log_probs=True)[0]
        total -= float(found.gather(1, row[1:, None]).sum())
        count += len(row) - 1
    saved = torch.load(path)["extra_state"]["val_loss"]
    assert saved == pytest.approx(total / count / math.log(2), abs=6e-4)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bptt", "0"], "--bptt is 0"),
        (["--bptt-jitter", "-1"], "--bptt-jitter is -1"),
        (["--bptt-jitter", "nan"], "--bptt-jitter is nan; it must be a number"),
        (["--bptt-jitter", "inf"], "--bptt-jitter is inf"),
        (["--state-reset-prob", "1.5"], r"--state-reset-prob is 1.5; it must lie in \[0, 1\]"),
        (["--max-tokens", "100"], "--batch-size is the number of streams"),
        (["--bptt", "1000"], r"fewer than --batch-size times --bptt \(4 x 1000\)"),
        (["--batch-size", "40", "--bptt", "1"], "too few for 40 streams"),
        (["--arch", "lstm_lm"], "LSTMLanguageModel does not carry its state from batch to"),
        (["--past-target"], "drop --self-target, --past-target"),
        (["--add-bos-token"], "drop --add-bos-token"),
        (["--max-tokens-valid", "100"], "without --max-tokens and --max-tokens-valid"),
        (["--criterion", "dyck_cross_entropy"], "needs whole strings; give --sentence-reset"),
        (
            ["--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp"],
            "adaptive_loss needs --adaptive-softmax-cutoff",
        ),
    ],
)
def test_mistakes(data, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        train(data, tmp_path, *options)

"""The task stateful_language_modeling, through fairseq's programs."""

import math
import re
import shutil
import socket

import pytest
import torch
from command_lines.programs import assert_same_training, fairseq
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from mistakes.commands import Commands

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import perplexity
from fairseq_casrnn.explain import explain
from fairseq_casrnn.models.language_model import Carried
from fairseq_casrnn.models.progress import Progress

from .conftest import TRAIN, preprocess, train

PLAIN_TASK = [  # training with fairseq's own task
    *("--task", "language_modeling", "--tokens-per-sample", 9, "--max-tokens", 99, "--cpu"),
    *("--num-workers", 0, "--arch", "cas_lstm_lm_tiny", "--optimizer", "adam"),
]


@torch.no_grad()
def independent(checkpoint, data, subset, sentences=False, streams=1):
    """(tokens, perplexity) from one forward pass over each stream or sentence, in double."""
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
    """Tokens of the text, line ends counted."""
    lines = (data.parent / subset).read_text().splitlines()
    return sum(len(line.split()) + 1 for line in lines)


def evaluated(done):
    """(tokens, perplexity) that fairseq-eval-lm logged."""
    tokens = re.search(r"Evaluated ([\d,]+) tokens", done.log)[1]
    return int(tokens.replace(",", "")), float(re.search(r"Perplexity: ([\d.]+)", done.log)[1])


@pytest.mark.parametrize("sentences", [False, True])
def test_validation_counts_every_token_once(data, tmp_path, sentences):
    """The logged loss is the exact one, though the batches are ragged and the state flows."""
    options = ["--sentence-reset"] if sentences else []
    done = train(data, tmp_path, *options, "--dropout", 0, epochs=1)
    valid = done.records("valid_loss")[-1]
    checkpoint = tmp_path / "checkpoint_last.pt"
    count, exact = independent(checkpoint, data, "valid", sentences, streams=4)
    saved = torch.load(checkpoint)["extra_state"]
    assert saved["val_loss"] == pytest.approx(math.log2(exact), abs=6e-4)  # three digits
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


def test_fairseqs_own_task(data, tmp_path):
    """language_modeling by sentences trains, validates and evaluates these models, too."""
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


def test_streams_are_not_continued(data, checkpoint):
    arguments = ["--task", "stateful_language_modeling", "--cpu", "--path", checkpoint]
    with pytest.raises(UserError, match="give --sentence-reset as well"):
        fairseq("generate", data, *arguments, "--batch-size", 4, "--num-workers", 0)


def test_sentences_of_any_length(data, tmp_path):
    """Only --max-target-positions limits them; --tokens-per-sample is of fairseq's own task."""
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


def test_no_limit_in_fairseqs_own_task_either(data, tmp_path):
    """It would leave out longer sentences of a test set, or all of them, and say so in the log."""
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
    """Before the first epoch, not after it."""
    options = ["--batch-size-valid", 40, "--bptt", 2]
    message = "the split 'valid' has .* tokens, too few for 40 streams; .* lower --batch-size-valid"
    with pytest.raises(UserError, match=message):
        train(data, tmp_path, *options, epochs=1)
    assert not list(tmp_path.glob("*.pt"))


@pytest.fixture(scope="module")
def other_words(data, tmp_path_factory):
    """The same text with a dictionary of the same size, in which the words have other numbers."""
    folder = tmp_path_factory.mktemp("other")
    lines = (data / "dict.txt").read_text().splitlines(keepends=True)
    (folder / "dict.txt").write_text("".join(reversed(lines)))
    for split in ("train", "valid", "test"):
        (folder / split).write_text((data.parent / split).read_text())
    return preprocess(folder, "--srcdict", folder / "dict.txt")


def test_other_words(data, other_words, checkpoint, tmp_path):
    other = other_words
    shutil.copy(checkpoint, tmp_path / "checkpoint_last.pt")
    with pytest.raises(UserError, match="other words, or the same in another order"):
        perplexity.load(checkpoint, other)
    with pytest.raises(UserError, match="other words, or the same in another order"):
        train(other, tmp_path, epochs=3)
    # Of fairseq's own task, too.
    own = [*PLAIN_TASK, "--save-dir", tmp_path / "own"]
    fairseq("train", data, *own, "--max-epoch", 1)
    path = tmp_path / "own" / "checkpoint_last.pt"
    perplexity.load(path, data)
    with pytest.raises(UserError, match="other words, or the same in another order"):
        perplexity.load(path, other)
    with pytest.raises(UserError, match="other words, or the same in another order"):
        fairseq("train", other, *own, "--max-epoch", 2)
    fairseq("train", data, *own, "--max-epoch", 2)
    plain = ["--task", "language_modeling", "--path", path, "--gen-subset", "valid", "--cpu"]
    plain += ["--num-workers", 0]
    fairseq("eval_lm", data, *plain)
    with pytest.raises(UserError, match="other words, or the same in another order"):
        fairseq("eval_lm", other, *plain)
    # Checkpoints that have the words apart from the task's state.
    saved = torch.load(path)
    saved["extra_state"]["words"] = saved["extra_state"].pop("task")["words"]
    saved["task_state"] = {}
    torch.save(saved, path)
    with pytest.raises(UserError, match="other words, or the same in another order"):
        perplexity.load(path, other)
    with pytest.raises(UserError, match="other words, or the same in another order"):
        fairseq("train", other, *own, "--max-epoch", 3)
    fairseq("train", data, *own, "--max-epoch", 3)


def test_weights_of_a_model_of_other_words(data, other_words, checkpoint, tmp_path):
    """Where a training starts from weights, of fairseq's own task or ours, they must fit."""
    own = [*PLAIN_TASK, "--max-epoch", 1]
    fairseq("train", data, *own, "--save-dir", tmp_path / "own")
    start = ["--finetune-from-model", tmp_path / "own" / "checkpoint_last.pt"]
    with pytest.raises(UserError, match="other words, or the same in another order"):
        fairseq("train", other_words, *own, *start, "--save-dir", tmp_path / "fine")
    fairseq("train", data, *own, *start, "--save-dir", tmp_path / "fine")
    with pytest.raises(UserError, match="other words, or the same in another order"):
        train(other_words, tmp_path / "carried", "--finetune-from-model", checkpoint, epochs=1)
    train(data, tmp_path / "carried", "--finetune-from-model", checkpoint, epochs=1)


def test_streams_go_on_from_zeros_now_and_then(data, tmp_path, monkeypatch):
    """Each by its own chance, in training alone; the text's start is not counted."""
    original, seen = Carried.before, {True: [], False: []}

    def before(self, decoder):
        state = original(self, decoder)
        if state is not None:
            seen[decoder.training].append(sum(part.pow(2).sum((0, 2)) > 0 for part in state) > 0)
        return state

    monkeypatch.setattr(Carried, "before", before)
    kept = {}
    for probability in (0, 0.4, 1):
        seen[True].clear()
        options = ["--state-reset-prob", probability, "--save-dir", tmp_path / str(probability)]
        train(data, tmp_path, *options, epochs=1)
        kept[probability] = torch.stack(seen[True])  # (batches, streams)
    assert kept[0].all()
    assert not kept[1].any()
    assert 0.45 < kept[0.4].float().mean() < 0.75
    assert any(0 < int(batch.sum()) < 4 for batch in kept[0.4])
    assert torch.stack(seen[False]).all()


@pytest.mark.parametrize(("jitter", "reset"), [(0, 0), (2, 0), (0, 0.3)])
def test_resume_in_the_middle_of_an_epoch(data, tmp_path, jitter, reset):
    """Position and state are in the checkpoint: the end is that of an uninterrupted run."""
    options = ["--bptt-jitter", jitter, "--state-reset-prob", reset, "--arch", "dg_lstm_lm_tiny"]
    train(data, tmp_path / "whole", *options, epochs=2)
    train(data, tmp_path / "parts", *options, "--max-update", 5)
    broken = torch.load(tmp_path / "parts" / "checkpoint_last.pt")["extra_state"]
    assert broken["train_iterator"]["iterations_in_epoch"] == 5
    kept = broken["StatefulLanguageModelingTask"]
    assert [tuple(part.shape) for part in kept["state"]] == [(2, 4, 16)] * 2
    assert all(part.abs().max() > 0 for part in kept["state"])
    train(data, tmp_path / "parts", *options, epochs=2)
    names = ("whole", "parts")
    assert_same_training(*(tmp_path / name / "checkpoint_last.pt" for name in names))


def test_resume_after_an_epoch_whose_last_batches_are_left_out(data, tmp_path):
    options = ["--update-freq", 5, "--skip-remainder-batch", "--bptt-jitter", 2]
    train(data, tmp_path / "whole", *options, epochs=2)
    for epochs in (1, 2):
        train(data, tmp_path / "parts", *options, epochs=epochs)
    names = ("whole", "parts")
    assert_same_training(*(tmp_path / name / "checkpoint_last.pt" for name in names))


def test_validation_on_the_training_text(data, tmp_path):
    """With other streams, in the middle of the epoch: the training does not notice."""
    losses = []
    for subsets in ("valid", "train,valid"):
        options = ["--valid-subset", subsets, "--batch-size-valid", 2, "--bptt-jitter", 2]
        done = train(data, tmp_path / subsets, *options, "--validate-interval-updates", 3)
        losses.append([record["train_loss"] for record in done.records("train_lr")])
    assert losses[0] == losses[1]
    assert_same_training(
        *(tmp_path / name / "checkpoint_last.pt" for name in ("valid", "train,valid"))
    )


def test_adaptive_softmax(data, tmp_path):
    """The logged loss is that of all words, also of those whose number in a cluster is 1."""
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


def test_an_epoch_starts_from_zeros(data, tmp_path):
    """Resumed at an epoch's start, where no state is kept, the run is the same as well."""
    train(data, tmp_path / "whole", epochs=2)
    train(data, tmp_path / "parts", epochs=1)
    train(data, tmp_path / "parts", "--validate-interval-updates", 3, epochs=2)
    names = ("whole", "parts")
    assert_same_training(*(tmp_path / name / "checkpoint_last.pt" for name in names))


def test_resume_with_another_number_of_streams(data, tmp_path):
    train(data, tmp_path, "--max-update", 5)
    with pytest.raises(
        UserError, match="middle of an epoch with 4 streams, but --batch-size times"
    ):
        train(data, tmp_path, "--batch-size", 3)


@pytest.mark.parametrize("bptt", [4, 9])
def test_resume_with_pieces_of_another_length(data, tmp_path, bptt):
    """fairseq counts batches, so that it would go on elsewhere in the text."""
    train(data, tmp_path, "--max-update", 5)
    with pytest.raises(UserError, match=r"after 5 batches of 30 steps together.*--bptt"):
        train(data, tmp_path, "--bptt", bptt)


def test_two_workers(data, tmp_path):
    """Two workers with two streams each do what one does with four; also after an interruption."""
    options = [*TRAIN, "--dropout", 0, "--max-epoch", 2]
    commands = Commands(tmp_path)

    def two(save, *more):
        with socket.socket() as connection:
            connection.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{connection.getsockname()[1]}"
        workers = ["--distributed-world-size", 2, "--distributed-no-spawn", "--batch-size", 2]
        workers += ["--distributed-init-method", address, "--distributed-backend", "gloo"]
        workers += ["--ddp-backend", "legacy_ddp", "--criterion", "fused_cross_entropy"]
        workers += ["--save-dir", tmp_path / save, *more]
        jobs = [
            commands.job("train", data, *options, *workers, "--distributed-rank", rank)
            for rank in range(2)
        ]
        for done in commands.together(jobs):
            assert done.status == 0, done.err[-2000:]
        return torch.load(tmp_path / save / "checkpoint_last.pt")

    one = commands("train", data, *options, "--save-dir", tmp_path / "one")
    assert one.status == 0, one.err[-2000:]
    whole = two("two")
    assert two("parts", "--max-update", 5)["extra_state"]["train_iterator"]["epoch"] == 1
    two("parts")
    commands.close()
    assert_same_training(*(tmp_path / name / "checkpoint_last.pt" for name in ("two", "parts")))
    single = torch.load(tmp_path / "one" / "checkpoint_last.pt")
    for name, tensor in single["model"].items():
        torch.testing.assert_close(whole["model"][name], tensor, rtol=1e-4, atol=1e-5)
    losses = [saved["extra_state"]["val_loss"] for saved in (whole, single)]
    assert losses[0] == pytest.approx(losses[1], abs=1.5e-3)


def test_state_of_a_batch_that_comes_twice():
    first, second = torch.zeros(1, 2, 3), torch.ones(1, 2, 3)
    progress = Progress(6, 12, first, second)
    assert progress.state_at(12, "cpu") is not first
    assert torch.equal(progress.state_at(12, "cpu"), second)
    assert torch.equal(progress.state_at(6, "cpu"), first)
    assert progress.state_at(0, "cpu") is None
    assert progress.state_at(18, "cpu") is None


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
        (["--arch", "lstm_lm"], "LSTMLanguageModel carries no state from batch to batch"),
        (["--past-target"], "drop --self-target, --past-target"),
        (["--add-bos-token"], "drop --add-bos-token"),
        (["--max-tokens-valid", "100"], "neither --max-tokens nor --max-tokens-valid"),
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

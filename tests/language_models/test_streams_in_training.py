"""Streams of text in training: carried state, interruptions, several workers."""

import socket

import pytest
import torch
from command_lines.programs import assert_same_training
from diagnostics.commands import Commands

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.language_decoder import CarriedState
from fairseq_casrnn.runs import record
from fairseq_casrnn.tasks.stream_state import StreamPosition

from .conftest import TRAIN, train


def test_state_reset_prob(data, tmp_path, monkeypatch):
    """Each stream is reset independently, in training only.

    The start of the text does not count.
    """
    original, seen = CarriedState.get, {True: [], False: []}

    def before(self, decoder):
        state = original(self, decoder)
        if state is not None:
            seen[decoder.training].append(sum(part.pow(2).sum((0, 2)) > 0 for part in state) > 0)
        return state

    monkeypatch.setattr(CarriedState, "get", before)
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


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("jitter", "reset"), [(0, 0), (2, 0), (0, 0.3)])
def test_resume_in_the_middle_of_an_epoch(data, tmp_path, jitter, reset):
    """Position and state are restored, so that the result equals that of an uninterrupted run."""
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


def test_resume_after_an_epoch_with_skipped_remainder(data, tmp_path):
    options = ["--update-freq", 5, "--skip-remainder-batch", "--bptt-jitter", 2]
    train(data, tmp_path / "whole", *options, epochs=2)
    for epochs in (1, 2):
        train(data, tmp_path / "parts", *options, epochs=epochs)
    names = ("whole", "parts")
    assert_same_training(*(tmp_path / name / "checkpoint_last.pt" for name in names))


def test_validation_on_the_training_text(data, tmp_path):
    """Validation in the middle of an epoch, with other streams, does not change the training."""
    losses = []
    for subsets in ("valid", "train,valid"):
        options = ["--valid-subset", subsets, "--batch-size-valid", 2, "--bptt-jitter", 2]
        done = train(data, tmp_path / subsets, *options, "--validate-interval-updates", 3)
        losses.append([record["train_loss"] for record in done.records("train_lr")])
    assert losses[0] == losses[1]
    assert_same_training(
        *(tmp_path / name / "checkpoint_last.pt" for name in ("valid", "train,valid"))
    )


def test_an_epoch_starts_from_zeros(data, tmp_path):
    """Resuming at the start of an epoch, where no state is stored, changes nothing."""
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
    """fairseq counts batches, and would continue at another place of the text."""
    train(data, tmp_path, "--max-update", 5)
    with pytest.raises(UserError, match=r"after 5 batches with 30 steps in total.*--bptt"):
        train(data, tmp_path, "--bptt", bptt)


def test_two_workers(data, tmp_path, warm_python):
    """Two workers with two streams each equal one with four, also after an interruption."""
    options = [*TRAIN, "--dropout", 0, "--max-epoch", 2]
    commands = Commands(tmp_path, warm_python)

    def two(save, *more):
        with socket.socket() as connection:
            connection.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{connection.getsockname()[1]}"
        workers = ["--distributed-world-size", 2, "--distributed-no-spawn", "--batch-size", 2]
        workers += ["--distributed-init-method", address, "--distributed-backend", "gloo"]
        workers += ["--ddp-backend", "legacy_ddp", "--criterion", "fused_cross_entropy"]
        workers += ["--save-dir", tmp_path / save, *more]
        started = [
            commands.start("train", data, *options, *workers, "--distributed-rank", rank)
            for rank in range(2)
        ]
        for done in [worker.finish() for worker in started]:
            assert done.status == 0, done.err[-2000:]
        return torch.load(tmp_path / save / "checkpoint_last.pt")

    one = commands("train", data, *options, "--save-dir", tmp_path / "one")
    assert one.status == 0, one.err[-2000:]
    whole = two("two")
    assert two("parts", "--max-update", 5)["extra_state"]["train_iterator"]["epoch"] == 1
    two("parts")
    assert_same_training(*(tmp_path / name / "checkpoint_last.pt" for name in ("two", "parts")))
    for name in ("two", "parts"):
        run = record.read(tmp_path / name)
        assert (run["processes"], run["epochs"], run["finished"]) == (2, 2, True)
    single = torch.load(tmp_path / "one" / "checkpoint_last.pt")
    for name, tensor in single["model"].items():
        torch.testing.assert_close(whole["model"][name], tensor, rtol=1e-4, atol=1e-5)
    losses = [saved["extra_state"]["val_loss"] for saved in (whole, single)]
    assert losses[0] == pytest.approx(losses[1], abs=1.5e-3)


def test_state_of_a_batch_that_comes_twice():
    first, second = torch.zeros(1, 2, 3), torch.ones(1, 2, 3)
    progress = StreamPosition(6, 12, first, second)
    assert progress.state_at(12, "cpu") is not first
    assert torch.equal(progress.state_at(12, "cpu"), second)
    assert torch.equal(progress.state_at(6, "cpu"), first)
    assert progress.state_at(0, "cpu") is None
    assert progress.state_at(18, "cpu") is None

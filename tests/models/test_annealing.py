"""Annealing of the temperature of mixture layers, and warnings where it ends too high."""

import logging
from types import SimpleNamespace

import pytest
from fairseq.models import build_model
from omegaconf import open_dict

from fairseq_casrnn.models import annealing

from .common import make_task, parse

TINY = ("--arch", "second_order_lstm_tiny")


class Trainer(SimpleNamespace):
    """A trainer's attributes that annealing needs; the methods return the current temperature."""

    def __init__(self, *options, kept=None, left_out=False):
        cfg = parse(*TINY, *options)
        if left_out:
            with open_dict(cfg):
                del cfg.model.temperature_decay
                # as in a YAML file, which names the model and not an architecture
                cfg.model._name = "second_order_lstm"
        model = build_model(cfg.model, make_task())
        super().__init__(cfg=cfg, get_model=lambda: model, get_num_updates=lambda: self.update)
        self.rnn = model.encoder.rnn
        if kept is not None:
            annealing.restore_annealing(self, {"epoch": 3, **kept})

    def temperature(self, epoch: int, update: int = 0) -> float:
        self.update = update
        annealing.begin_epoch(None, self, epoch)
        return self.rnn.temperature.item()

    def step(self, update: int) -> float:
        self.update = update
        annealing.begin_update(self)
        return self.rnn.temperature.item()


def warnings(caplog, *options, epochs=(1,)):
    trainer = Trainer(*options)
    with caplog.at_level(logging.WARNING, logger="fairseq_casrnn"):
        for epoch in epochs:
            trainer.temperature(epoch)
    return [record.getMessage() for record in caplog.records if "temperature" in record.message]


# --- auto --------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [2, 5, 25])
def test_the_last_epoch_is_at_the_floor(epochs):
    """The temperature is multiplied by the same factor after each epoch."""
    trainer = Trainer("--max-epoch", str(epochs))
    found = [trainer.temperature(epoch) for epoch in range(1, epochs + 1)]
    assert found[0] == 1
    assert found[-1] == pytest.approx(1e-4)
    assert found[1] == pytest.approx(1e-4 ** (1 / (epochs - 1)))
    assert trainer.temperature(epochs + 1) == found[-1]


def test_auto_is_the_default_without_an_architecture():
    """fairseq-hydra-train only passes the options that the YAML file has."""
    trainer = Trainer("--max-epoch", "3", left_out=True)
    assert [trainer.temperature(n) for n in (1, 2, 3)] == pytest.approx([1, 0.01, 1e-4])


def test_auto_respects_the_given_start_and_floor():
    trainer = Trainer("--temperature", "4", "--temperature-floor", "1", "--max-epoch", "3")
    assert [trainer.temperature(n) for n in (1, 2, 3)] == pytest.approx([4, 2, 1])


def test_the_last_update_is_at_the_floor():
    """Without --max-epoch, annealing depends on the update and not on the epoch."""
    trainer = Trainer("--max-update", "5")
    assert trainer.temperature(1) == 1
    found = [trainer.step(update) for update in range(5)]
    assert found == pytest.approx([1, 0.1, 0.01, 1e-3, 1e-4])
    assert trainer.temperature(7, update=2) == pytest.approx(0.01)
    assert trainer.step(99) == pytest.approx(1e-4)


def test_annealing_ends_with_the_first_limit():
    trainer = Trainer("--max-update", "5", "--max-epoch", "3")
    assert trainer.temperature(1) == 1
    assert trainer.step(4) == pytest.approx(1e-4)
    assert trainer.temperature(3, update=2) == pytest.approx(1e-4)
    assert trainer.temperature(2, update=0) == pytest.approx(0.01)


def test_decay_of_a_training_without_limit():
    trainer = Trainer()
    assert [trainer.temperature(n) for n in (1, 2, 3)] == pytest.approx([1, 0.9, 0.81])


def test_a_numeric_decay_ignores_the_limits():
    trainer = Trainer("--temperature-decay", "0.5", "--max-epoch", "9", "--max-update", "3")
    assert trainer.temperature(3) == 0.25
    assert trainer.step(2) == 0.25


def test_a_resumed_training_keeps_its_annealing():
    """The decay is restored even with another --max-epoch.

    Checkpoints without annealing state had a decay of 0.9.
    """
    begun = Trainer("--max-epoch", "5")
    begun.temperature(1)
    kept = {}
    annealing.save_annealing(begun, kept)
    assert Trainer("--max-epoch", "9", kept=kept).temperature(3) == pytest.approx(0.01)
    assert Trainer("--max-epoch", "9", kept={}).temperature(3) == pytest.approx(0.81)
    given = ("--max-epoch", "9", "--temperature-decay", "0.5")
    assert Trainer(*given, kept=kept).temperature(3) == 0.25


# --- warnings ----------------------------------------------------------------------------------


def test_warning_of_a_high_final_temperature(caplog):
    """0.9^9 = 0.387..."""
    options = ("--temperature-decay", "0.9", "--max-epoch", "10")
    (said,) = warnings(caplog, *options, epochs=(1, 2, 3))
    assert said == (
        "in the last of 10 epochs the temperature is 0.39, at which cells are still mixed, but "
        "evaluation uses hard routing; start a new training with --temperature-decay auto "
        "--temperature-floor 1e-04 to end with hard routing"
    )


def test_warning_for_a_single_epoch_names_the_temperature(caplog):
    (said,) = warnings(caplog, "--max-epoch", "1", "--temperature", "0.5")
    assert said == (
        "in the only epoch the temperature is 0.5, at which cells are still mixed, but evaluation "
        "uses hard routing; train for more epochs, or give --temperature 1e-04"
    )
    caplog.clear()
    assert not warnings(caplog, "--max-epoch", "1", "--temperature", "1e-04")


def test_warning_considers_start_and_floor(caplog):
    """4 · 0.5^11 = 0.00195... is above the limit of 0.001, and half of it is below."""
    options = ("--temperature", "4", "--temperature-decay", "0.5")
    assert "is 0.002," in warnings(caplog, *options, "--max-epoch", "12")[0]
    caplog.clear()
    assert not warnings(caplog, *options, "--max-epoch", "13")
    floor = ("--temperature-floor", "0.02")
    assert "is 0.02," in warnings(caplog, *options, *floor, "--max-epoch", "13")[0]
    caplog.clear()
    assert "is 0.02," in warnings(caplog, *floor, "--max-epoch", "13")[0]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "options",
    [
        (),  # neither --max-epoch nor --max-update is given
        ("--max-epoch", "10"),
        ("--max-update", "10"),
        ("--max-epoch", "1", "--max-update", "10"),
        ("--max-epoch", "100", "--temperature-decay", "0.9"),
        ("--max-epoch", "10", "--temperature-decay", "0.9", "--num-cells", "1"),
    ],
)
def test_no_warning(options, caplog):
    assert not warnings(caplog, *options)

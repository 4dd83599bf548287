"""What is said of a temperature that still mixes cells in the last epoch; evaluation does not."""

import logging

import pytest
from fairseq.models import build_model

from .common import make_task, parse


def warnings(caplog, *options, epochs=(1,)):
    task = make_task()
    cfg = parse("--arch", "second_order_lstm_tiny", *options)
    model = build_model(cfg.model, task)
    with caplog.at_level(logging.WARNING, logger="fairseq_casrnn"):
        for epoch in epochs:
            task.begin_epoch(epoch, model)
    return [record.getMessage() for record in caplog.records if "temperature" in record.message]


def test_says_how_to_end_hard(caplog):
    """0.9^9 = 0.387...; 1e-4^(1/9) = 0.359..."""
    (said,) = warnings(caplog, "--max-epoch", "10", epochs=(1, 2, 3))
    assert said == (
        "in the last of 10 epochs the temperature is 0.39, at which cells are still mixed, but "
        "evaluation routes hard; with --temperature-decay 0.36 --temperature-floor 1e-04 training "
        "ends hard, too"
    )


def test_of_one_epoch_no_decay_is_said(caplog):
    (said,) = warnings(caplog, "--max-epoch", "1", "--temperature", "0.5")
    assert said == (
        "in the only epoch the temperature is 0.5, at which cells are still mixed, but evaluation "
        "routes hard; train for more epochs with a --temperature-decay, or give --temperature 1e-04"
    )
    caplog.clear()
    assert not warnings(caplog, "--max-epoch", "1", "--temperature", "1e-04")


def test_the_start_and_the_floor_count(caplog):
    """4 · 0.5^11 = 0.00195... is above 0.001, half of it is not; a floor may hold it up."""
    options = ("--temperature", "4", "--temperature-decay", "0.5")
    assert "is 0.002," in warnings(caplog, *options, "--max-epoch", "12")[0]
    caplog.clear()
    assert not warnings(caplog, *options, "--max-epoch", "13")
    floor = ("--temperature-floor", "0.02")
    assert "is 0.02," in warnings(caplog, *options, *floor, "--max-epoch", "13")[0]


def test_the_advice_ends_hard(caplog):
    advice = ("--temperature-decay", "0.36", "--temperature-floor", "1e-04")
    assert not warnings(caplog, *advice, "--max-epoch", "10")


@pytest.mark.parametrize(
    "options",
    [
        (),  # no limit of epochs
        ("--max-epoch", "100"),
        ("--max-epoch", "10", "--num-cells", "1"),
    ],
)
def test_silent_where_nothing_is_lost_or_known(options, caplog):
    assert not warnings(caplog, *options)

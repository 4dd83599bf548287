"""Which engine runs (the layer's, the environment's or the default), and that it is logged."""

import logging
from dataclasses import replace

import pytest
import torch
from helpers import ENGINES, B, Case, H, T, assert_close, rand
from models.test_decoder_loop import make

from fairseq_casrnn import recurrence
from fairseq_casrnn.cells.base import Cell
from fairseq_casrnn.cells.stacked_lstm import LSTMCell
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import LSTM, SentenceStateLSTM
from fairseq_casrnn.recurrence import decoding
from fairseq_casrnn.recurrence.choice import logged
from fairseq_casrnn.recurrence.decoder import run_reference


@pytest.mark.parametrize("engine", ENGINES)
def test_the_layer_runs_on_the_chosen_engine(engine, monkeypatch):
    used = []
    for one in recurrence.ENGINES.values():

        def spy(*args, name=one.name, function=one.run):
            used.append(name)
            return function(*args)

        monkeypatch.setattr(one, "run", spy)
    x = rand(T, B, 2, dtype=torch.float32)
    LSTM(2, H, engine=engine)(x)
    monkeypatch.setenv("CASRNN_ENGINE", engine)
    for choice in (None, "auto"):
        LSTM(2, H, engine=choice)(x)
    assert used == [engine] * 3


def test_default_engine(monkeypatch):
    monkeypatch.delenv("CASRNN_ENGINE", raising=False)
    assert recurrence.choose().name in ENGINES
    assert recurrence.choose("auto").name == recurrence.choose().name
    default = recurrence.choose().name
    monkeypatch.setenv("CASRNN_ENGINE", "auto")
    assert recurrence.choose().name == default
    monkeypatch.setenv("CASRNN_ENGINE", "reference")
    assert recurrence.choose("eager").name == "eager"  # the layer's choice takes precedence


def test_unknown_engine(monkeypatch):
    with pytest.raises(
        UserError, match=r"engine 'warp' is unknown; choose from .*reference.*eager"
    ):
        LSTM(2, H, engine="warp")
    monkeypatch.setenv("CASRNN_ENGINE", "warp")
    with pytest.raises(UserError, match=r"^environment variable CASRNN_ENGINE: engine 'warp' is"):
        LSTM(2, H)(rand(T, B, 2, dtype=torch.float32))


def test_the_engine_is_logged_once(caplog):
    logged.clear()
    with caplog.at_level(logging.INFO, logger="fairseq_casrnn"):
        layer = LSTM(2, H, num_layers=3, engine="reference")
        for _ in range(2):
            layer(rand(T, B, 2, dtype=torch.float32))
    lines = [r.getMessage() for r in caplog.records if "engine" in r.getMessage()]
    assert lines == ["recurrence engine: reference"]


@pytest.mark.parametrize("layer", [LSTM, SentenceStateLSTM])
def test_no_engine_is_chosen_before_the_layer_runs(layer, caplog):
    """A layer may be built on the CPU for an engine that runs on GPUs only."""
    logged.clear()
    with caplog.at_level(logging.INFO, logger="fairseq_casrnn"):
        for engine in recurrence.ENGINES:
            layer(2, H, 2, engine=engine)
    assert not caplog.records


class StepOnly(Cell):
    """An LSTM without a forget gate and without a fused forward and backward."""

    ih_blocks = hh_blocks = 3

    def step(self, gx, gh, h, c, *, lower_c=None, mixture=None, params=()):
        i, g, o = (gx + gh).chunk(3, -1)
        c = c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


def test_cells_without_a_kernel_fall_back_to_the_reference(messages):
    gx, weight, zero = rand(T, B, 3 * H), rand(3 * H, H), rand(B, H)
    found = {
        name: recurrence.run(name, StepOnly(), gx.clone(), weight, zero, zero)[0]
        for name in recurrence.installed()
    }
    assert all(torch.equal(hs, found["reference"]) for hs in found.values())
    fallbacks = [m.partition(": ") for m in messages() if "falls back" in m]
    assert {first for first, _, _ in fallbacks} == {
        f"engine '{name}' falls back to 'reference'" for name in found if name != "reference"
    }
    assert all("StepOnly" in reason or "CUDA" in reason for _, _, reason in fallbacks)


def test_empty_batches_and_dtypes_without_a_kernel(messages):
    """Each falls back to the next engine that supports it, not always to ``reference``."""
    if recurrence.default() == "cpp":
        LSTM(2, H, engine="cpp").bfloat16()(rand(T, B, 2, dtype=torch.bfloat16))
        LSTM(2, H, engine="cpp")(rand(T, 0, 2, dtype=torch.float32))
        assert "engine 'cpp' falls back to 'eager': it does not run in torch.bfloat16" in messages()
        assert any("engine 'cpp' falls back to 'reference'" in m for m in messages())


class OtherLSTM(LSTMCell):
    """A subclass, for which the LSTM's kernel must not be used."""


def test_fallback_of_decoders_is_logged_once(messages):
    decode, _ = make(Case("stacked_lstm"))
    decode = replace(decode, layers=[replace(layer, cell=OtherLSTM()) for layer in decode.layers])
    assert_close(decoding.run("cpp", decode), run_reference(decode))
    if "cpp" in recurrence.installed():
        message = "engine 'cpp' falls back to 'eager': it has no kernel for OtherLSTM"
        assert messages().count(message) == 1

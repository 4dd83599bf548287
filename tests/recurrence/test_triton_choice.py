"""When the engine triton runs, and what it says when it does not."""

import importlib.metadata
import importlib.util

import pytest
import torch
from helpers import rand

from fairseq_casrnn import recurrence
from fairseq_casrnn.layers import CASLSTM, LSTM
from fairseq_casrnn.recurrence import cpp, triton_loop


class Plus(type(LSTM(1, 1).cells[0])):
    """Not the LSTM's kernel's business."""


def test_what_the_kernels_do_not_do_is_left_to_the_default(messages, monkeypatch):
    monkeypatch.setattr(triton_loop, "interpreting", lambda: False)
    monkeypatch.setitem(recurrence.ENGINES, "triton", triton_loop.run)
    x = rand(4, 2, 3, dtype=torch.float32)
    layer = CASLSTM(3, 5, engine="triton")
    for _ in range(2):
        output, _ = layer(x)
    layer.engine = recurrence.DEFAULT
    assert torch.equal(output, layer(x)[0])
    reason = "it runs on CUDA tensors, these are on cpu"
    said = f"engine 'triton' leaves this to '{recurrence.DEFAULT}': {reason}"
    assert messages().count(said) == 1


def test_reasons_to_leave_it_to_another(monkeypatch):
    monkeypatch.setattr(triton_loop, "interpreting", lambda: True)
    cell, t = LSTM(1, 1).cells[0], torch.zeros(2)
    assert triton_loop.why_not(cell, (t, None, t)) is None
    assert triton_loop.why_not(cell, (t.half(),), (t, None)) is None  # c from the layer below
    for tensors, states, reason in (
        ((t.half(), t), (), "of several dtypes"),
        ((t,), (t.half(),), "of several dtypes"),
        ((t.long(),), (), "does not run in torch.int64"),
        ((t,), (t.to("meta"),), "on several devices"),
        ((t.to("meta"),), (), "these are on meta"),
    ):
        assert reason in triton_loop.why_not(cell, tensors, states)
    assert triton_loop.why_not(Plus(), (t,)) == "it has no kernel for Plus"


def test_every_cell_has_kernels():
    names = set(cpp.KERNELS.values()) | {"cas_trained"}
    kernels = pytest.importorskip("fairseq_casrnn.recurrence.triton_kernels")
    assert set(kernels.FORWARD) == set(kernels.BACKWARD) == names


def test_default_by_device(monkeypatch):
    monkeypatch.delenv("CASRNN_ENGINE", raising=False)
    monkeypatch.setitem(recurrence.ENGINES, "triton", triton_loop.run)
    assert recurrence.engine_name(None, "cuda") == "eager"  # until it is measured on one
    assert recurrence.engine_name("triton", "cuda") == "triton"
    assert recurrence.engine_name(None, "cpu") == recurrence.DEFAULT != "triton"
    monkeypatch.setenv("CASRNN_ENGINE", "reference")
    assert recurrence.engine_name(None, "cuda") == "reference"


def test_without_triton(messages, monkeypatch):
    monkeypatch.delitem(recurrence.ENGINES, "triton", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reason = "Triton is not installed (pip install triton)"
    for _ in range(2):
        recurrence.engine_name("auto", "cuda")
    assert messages() == ["recurrence engine: eager"]
    x = rand(2, 1, 2, dtype=torch.float32)
    for _ in range(2):
        output, _ = (layer := LSTM(2, 3, engine="triton"))(x)
    other = recurrence.DEFAULT
    said = f"engine 'triton' is not available, '{other}' runs instead: {reason}"
    assert messages().count(said) == 1
    layer.engine = other
    assert torch.equal(output, layer(x)[0])


def test_an_old_triton_is_not_used(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    for version, reason in (("3.5.1", "Triton 3.5.1 is too old"), ("3.10.0", "None")):
        monkeypatch.setattr(importlib.metadata, "version", lambda name, v=version: v)
        assert reason in str(triton_loop.missing())

"""Layers as modules: state_dict, copies, pickles, dtypes and parameter vectors."""

import copy
import io
import pickle

import pytest
import torch
from helpers import (
    LENGTHS,
    B,
    H,
    I,
    T,
    as_tuple,
    assert_close,
    every_case,
    every_engine,
    every_family,
    flat,
    rand,
    rand_state,
)
from torch.nn.utils import parameters_to_vector, vector_to_parameters

pytestmark = pytest.mark.sampled(1)

HALF = {"rtol": 0.05, "atol": 0.05}


def saved(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return file


def by_pickle(layer):
    return pickle.loads(pickle.dumps(layer))


def by_torch(layer):
    return torch.load(saved(layer), weights_only=False)


def run(layer):
    return flat(layer(rand(T, B, I), rand_state(layer), LENGTHS))


@every_case
def test_state_dict(case):
    """The state dict loads with ``weights_only=True`` and determines the layer's results."""
    layer = case.random(bidirectional=True)
    state = torch.load(saved(layer.state_dict()), weights_only=True)
    other = case.random(bidirectional=True, seed=5)
    assert not torch.allclose(run(other)[0], run(layer)[0])
    assert not any(other.load_state_dict(state))
    assert all(torch.equal(a, b) for a, b in zip(run(other), run(layer), strict=True))
    buffers = {"temperature"} if case.name == "second_order_lstm" else set()
    assert set(state) == {name for name, _ in layer.named_parameters()} | buffers


def test_state_dict_of_another_architecture_is_refused():
    """A missing or extra parameter, or one of another size, is an error."""
    from fairseq_casrnn.layers import CASLSTM, DGLSTM, LSTM

    state = CASLSTM(I, H, 2).state_dict()
    for other in (LSTM(I, H, 2), CASLSTM(I, H, 3), DGLSTM(I, H, 2), CASLSTM(I, H + 1, 2)):
        with pytest.raises(RuntimeError, match="Error"):
            other.load_state_dict(state)


@every_case
@pytest.mark.parametrize("duplicate", [copy.deepcopy, by_pickle, by_torch])
def test_copies(case, duplicate):
    """A copy is equal to the original, and training the copy does not change the original."""
    layer = case.random(I, H, 2, bidirectional=True, dropout=0.0, engine="reference").eval()
    twin = duplicate(layer)
    assert type(twin) is type(layer)
    assert repr(twin) == repr(layer)
    assert twin.engine == "reference"
    assert not twin.training
    before = run(layer)
    assert all(torch.equal(a, b) for a, b in zip(run(twin), before, strict=True))
    sum(t.square().sum() for t in run(twin)).backward()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert all(p.grad is None for p in layer.parameters())
    assert all(torch.equal(a, b) for a, b in zip(run(layer), before, strict=True))


@every_case
@every_engine
def test_dtypes(case, engine):
    """``to(dtype)`` converts the module, its results and its zero state."""
    layer = case.random(bidirectional=True, engine=engine)
    exact = run(layer)
    for dtype, tolerance in (
        (torch.float32, {"rtol": 1e-4, "atol": 1e-5}),
        (torch.bfloat16, HALF),
        (torch.float16, HALF),
    ):
        moved = copy.deepcopy(layer).to(dtype)
        state = tuple(s.to(dtype) for s in as_tuple(rand_state(layer)))
        state = state if layer.has_cell else state[0]
        result = flat(moved.eval()(rand(T, B, I, dtype=dtype), state, LENGTHS))
        assert all(t.dtype == dtype for t in result)
        assert all(t.dtype == dtype for t in as_tuple(moved.zero_state(2)))
        if case.name != "second_order_lstm":  # rounding may change its choice of cell
            assert_close([t.double() for t in result], exact, tolerance)
        sum(t.sum() for t in flat(moved.train()(rand(T, B, I, dtype=dtype)))).backward()
        assert all(p.grad.dtype == dtype for p in moved.parameters() if p.grad is not None)
        again = moved.double()
        assert again(rand(T, B, I))[0].dtype == torch.float64


@every_family
def test_parameter_vectors(case):
    layer = case.random(bidirectional=True)
    expected = run(layer)
    vector = parameters_to_vector(layer.parameters())
    assert vector.numel() == sum(p.numel() for p in layer.parameters())
    other = case.random(bidirectional=True, seed=5)
    vector_to_parameters(vector.detach(), other.parameters())
    assert_close(run(other), expected)


@every_family
def test_functional_call(case):
    """``functional_call`` uses the given parameters instead of the layer's own."""
    layer, other = (case.random(bidirectional=True, seed=seed) for seed in (0, 5))
    values = dict(other.named_parameters())
    result = flat(
        torch.func.functional_call(layer, values, (rand(T, B, I), rand_state(layer), LENGTHS))
    )
    assert_close(result, run(other))


@every_family
def test_shared_parameters(case):
    """A parameter shared by two layers is read at each call, not copied when assigned."""
    layer, other = case.random(seed=0), case.random(seed=5)
    layer.weight_hh_l0 = other.weight_hh_l0
    with torch.no_grad():
        other.weight_hh_l0.mul_(2)
    twin = case.random(seed=0)
    with torch.no_grad():
        twin.weight_hh_l0.copy_(other.weight_hh_l0)
    assert_close(run(layer), run(twin))

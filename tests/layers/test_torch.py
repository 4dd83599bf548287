"""LSTM and GRU against ``torch.nn``, and conversion from and to it."""

import pytest
import torch
from helpers import (
    LENGTHS,
    SINGLE,
    B,
    H,
    I,
    T,
    as_tuple,
    assert_close,
    every_engine,
    flat,
    gradients,
    rand,
    rand_state,
    randomize,
    weighted,
)
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import CASLSTM, GRU, LSTM, HighwayLSTM, SecondOrderLSTM

KINDS = {"lstm": (nn.LSTM, LSTM), "gru": (nn.GRU, GRU)}
every_kind = pytest.mark.parametrize("kind", KINDS)
shapes = pytest.mark.parametrize(
    ("depth", "both"), [(1, False), (1, True), (3, False), (3, True)], ids=str
)


def torch_module(kind, depth, both, **kwargs):
    module = KINDS[kind][0](I, H, depth, bidirectional=both, **kwargs)
    return randomize(module.double())


def convert(kind, module, **kwargs):
    return getattr(KINDS[kind][1], f"from_torch_{kind}")(module, **kwargs)


def back(kind, layer):
    return getattr(layer, f"to_torch_{kind}")()


def run(module, x, state, lengths=None):
    """Output, final state and gradients of x and of the state, for a torch module or a layer."""
    x = x.clone().requires_grad_()
    state = tuple(s.clone().requires_grad_() for s in as_tuple(state))
    start = state if len(state) == 2 else state[0]
    packed = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=False)
    output, final = module(packed, start)
    result = (output if lengths is None else output.data, *as_tuple(final))
    return [*result, *gradients(weighted(result), (x, *state))]


@every_kind
@shapes
@every_engine
def test_same_function(kind, depth, both, engine):
    theirs = torch_module(kind, depth, both)
    ours = convert(kind, theirs)
    ours.engine = engine
    assert ours.bias_l0.dtype == torch.float64
    state = rand_state(ours)
    for lengths in (None, LENGTHS):
        assert_close(*(run(module, rand(T, B, I), state, lengths) for module in (ours, theirs)))


@every_kind
@shapes
def test_there_and_back(kind, depth, both):
    """The torch module that comes out computes the same, forward and backward."""
    theirs = torch_module(kind, depth, both)
    ours = convert(kind, theirs)
    again = back(kind, ours)
    assert type(again) is type(theirs)
    assert again.weight_hh_l0.dtype == torch.float64
    state = rand_state(ours)
    assert_close(*(run(module, rand(T, B, I), state) for module in (again, theirs)))
    assert [p.shape for p in again.parameters()] == [p.shape for p in theirs.parameters()]
    third = convert(kind, again)
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, third.state_dict()[name]), name


@every_kind
def test_the_copy_is_independent(kind):
    theirs = torch_module(kind, 2, True)
    ours = convert(kind, theirs)
    before = {name: p.clone() for name, p in ours.state_dict().items()}
    randomize(theirs, seed=9)
    again = back(kind, ours)
    randomize(again, seed=10)
    assert all(torch.equal(before[name], p) for name, p in ours.state_dict().items())


@every_kind
def test_single_precision(kind):
    theirs = torch_module(kind, 2, True).float()
    ours = convert(kind, theirs)
    state = tuple(s.float() for s in as_tuple(rand_state(ours)))
    state = state if kind == "lstm" else state[0]
    x = rand(T, B, I, dtype=torch.float32)
    assert_close(*(run(module, x, state) for module in (ours, theirs)), SINGLE)


@every_kind
def test_settings_are_kept(kind):
    theirs = torch_module(kind, 2, False, dropout=0.3).eval()
    ours = convert(kind, theirs)
    assert ours.dropout == 0.3
    assert not ours.training
    assert back(kind, ours).dropout == 0.3
    assert not back(kind, ours).training
    assert convert(kind, theirs.train()).training


@pytest.mark.parametrize(
    ("kind", "options"),
    [(CASLSTM, {"lam": 0}), (CASLSTM, {"lam": "0"}), (SecondOrderLSTM, {"num_cells": 1})],
)
@every_engine
def test_other_layers_that_can_be_a_plain_lstm(kind, options, engine):
    theirs = torch_module("lstm", 3, False)
    ours = kind.from_torch_lstm(theirs, engine=engine, **options)
    assert type(ours) is kind
    state = rand_state(ours)
    results = [run(m, rand(T, B, I), state, LENGTHS) for m in (ours, theirs, ours.to_torch_lstm())]
    assert_close(results[0], results[1])
    assert_close(results[2], results[1])


@pytest.mark.parametrize("kind", [CASLSTM, HighwayLSTM, SecondOrderLSTM])
@pytest.mark.parametrize("both", [False, True])
def test_one_layer_of_them_converts_as_it_is(kind, both):
    theirs = torch_module("lstm", 1, both)
    ours = kind.from_torch_lstm(theirs)
    state = rand_state(ours)
    results = [run(m, rand(T, B, I), state) for m in (ours, theirs, ours.to_torch_lstm())]
    assert_close(results[0], results[1])
    assert_close(results[2], results[1])


def test_a_converted_cas_starts_as_the_lstm_and_can_leave_it():
    """The vertical gate's weights are zero, not what they happened to be."""
    ours = CASLSTM.from_torch_lstm(torch_module("lstm", 2, False), lam=0)
    for key in ("weight_ih_l1", "weight_hh_l1", "bias_l1"):
        assert not getattr(ours, key)[4 * H :].any()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (CASLSTM, {}),
        (CASLSTM, {"lam": None}),
        (HighwayLSTM, {}),
        (SecondOrderLSTM, {"num_cells": 2}),
    ],
)
def test_layers_that_cannot_be_a_plain_lstm(kind, options):
    name = kind.__name__
    with pytest.raises(UserError, match=rf"^a {name} with these options is not a plain LSTM; "):
        kind.from_torch_lstm(torch_module("lstm", 2, False), **options)
    keywords = {"num_layers": 2, **options}
    with pytest.raises(UserError, match=rf"^torch.nn.LSTM cannot compute what this {name} does$"):
        kind(I, H, **keywords).to_torch_lstm()


def test_subclasses_convert_like_their_base():
    class Own(SecondOrderLSTM):
        pass

    class OwnCAS(CASLSTM):
        pass

    torch_lstm = torch_module("lstm", 2, False)
    assert Own.from_torch_lstm(torch_lstm).options.num_cells == 1
    with pytest.raises(UserError, match="which a OwnCAS cannot do; convert to LSTM"):
        OwnCAS.from_torch_lstm(torch_module("lstm", 2, True), lam=0)


def test_no_conversion_where_there_is_no_such_function():
    for name in ("NormalizedLSTM", "DGLSTM", "GRU"):
        kind = getattr(__import__("fairseq_casrnn.layers", fromlist=[name]), name)
        assert not hasattr(kind, "from_torch_lstm")
        assert not hasattr(kind, "to_torch_lstm")


@every_kind
def test_independent_directions_do_not_convert_above_one_layer(kind):
    ours = KINDS[kind][1](I, H, 2, bidirectional=True)
    with pytest.raises(UserError, match=r"^torch concatenates the directions after every layer"):
        back(kind, ours)
    back(kind, KINDS[kind][1](I, H, 1, bidirectional=True))
    back(kind, KINDS[kind][1](I, H, 2, bidirectional="interleaved"))


def test_a_cas_cannot_interleave_what_torch_interleaves():
    with pytest.raises(UserError, match="which a CASLSTM cannot do; convert to LSTM"):
        CASLSTM.from_torch_lstm(torch_module("lstm", 2, True), lam=0)


@every_kind
def test_torch_modules_that_are_refused(kind):
    other = "gru" if kind == "lstm" else "lstm"
    with pytest.raises(UserError, match=rf"^expected a torch\.nn\.{kind.upper()}"):
        convert(kind, torch_module(other, 1, False))


def test_projections_are_refused():
    with pytest.raises(
        UserError, match=r"^a torch module with projections .* cannot be converted$"
    ):
        LSTM.from_torch_lstm(nn.LSTM(I, H, proj_size=2))


@every_kind
def test_truth_values_other_than_true(kind):
    """1 is as good as True: two independent directions."""
    ours = KINDS[kind][1](I, H, 2, bidirectional=1)
    assert ours.bidirectional is True
    with pytest.raises(UserError, match=r"^torch concatenates"):
        back(kind, ours)


@every_engine
@pytest.mark.parametrize("both", [False, True])
def test_dropout_falls_where_torch_lets_it_fall(both, engine):
    """From the same seed both draw the same mask, between the layers and nowhere else."""
    theirs = torch_module("lstm", 3, both, dropout=0.4)
    ours = LSTM.from_torch_lstm(theirs, engine=engine)
    results = []
    for module in (ours, theirs):
        torch.manual_seed(5)
        results.append(run(module, rand(T, B, I), rand_state(ours)))
    assert_close(*results)
    torch.manual_seed(6)
    assert not torch.allclose(flat(ours(rand(T, B, I), rand_state(ours)))[0], results[0][0])

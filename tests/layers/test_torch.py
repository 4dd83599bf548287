"""LSTM and GRU compared with ``torch.nn``, and converted from and to it."""

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
    ("num_layers", "bidirectional"), [(1, False), (1, True), (3, False), (3, True)], ids=str
)


def torch_module(kind, num_layers, bidirectional, **kwargs):
    module = KINDS[kind][0](I, H, num_layers, bidirectional=bidirectional, **kwargs)
    return randomize(module.double())


def from_torch(kind, module, **kwargs):
    return getattr(KINDS[kind][1], f"from_torch_{kind}")(module, **kwargs)


def to_torch(kind, layer):
    return getattr(layer, f"to_torch_{kind}")()


def run(module, x, state, lengths=None):
    """Return output, final state and gradients of x and state, for a torch module or a layer."""
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
def test_same_function(kind, num_layers, bidirectional, engine):
    theirs = torch_module(kind, num_layers, bidirectional)
    ours = from_torch(kind, theirs)
    ours.engine = engine
    assert ours.bias_l0.dtype == torch.float64
    state = rand_state(ours)
    for lengths in (None, LENGTHS):
        assert_close(*(run(module, rand(T, B, I), state, lengths) for module in (ours, theirs)))


@every_kind
@shapes
def test_round_trip(kind, num_layers, bidirectional):
    """Converting to torch again gives a module that computes the same, forward and backward."""
    theirs = torch_module(kind, num_layers, bidirectional)
    ours = from_torch(kind, theirs)
    again = to_torch(kind, ours)
    assert type(again) is type(theirs)
    assert again.weight_hh_l0.dtype == torch.float64
    state = rand_state(ours)
    assert_close(*(run(module, rand(T, B, I), state) for module in (again, theirs)))
    assert [p.shape for p in again.parameters()] == [p.shape for p in theirs.parameters()]
    third = from_torch(kind, again)
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, third.state_dict()[name]), name


@every_kind
def test_converted_layers_share_no_memory(kind):
    theirs = torch_module(kind, 2, True)
    ours = from_torch(kind, theirs)
    before = {name: p.clone() for name, p in ours.state_dict().items()}
    randomize(theirs, seed=9)
    again = to_torch(kind, ours)
    randomize(again, seed=10)
    assert all(torch.equal(before[name], p) for name, p in ours.state_dict().items())


@every_kind
def test_single_precision(kind):
    theirs = torch_module(kind, 2, True).float()
    ours = from_torch(kind, theirs)
    state = tuple(s.float() for s in as_tuple(rand_state(ours)))
    state = state if kind == "lstm" else state[0]
    x = rand(T, B, I, dtype=torch.float32)
    assert_close(*(run(module, x, state) for module in (ours, theirs)), SINGLE)


@every_kind
def test_settings_are_kept(kind):
    theirs = torch_module(kind, 2, False, dropout=0.3).eval()
    ours = from_torch(kind, theirs)
    assert ours.dropout == 0.3
    assert not ours.training
    assert to_torch(kind, ours).dropout == 0.3
    assert not to_torch(kind, ours).training
    assert from_torch(kind, theirs.train()).training


@pytest.mark.parametrize(
    ("kind", "options"),
    [(CASLSTM, {"lam": 0}), (CASLSTM, {"lam": "0"}), (SecondOrderLSTM, {"num_cells": 1})],
)
@every_engine
def test_layers_that_are_a_plain_lstm_convert(kind, options, engine):
    theirs = torch_module("lstm", 3, False)
    ours = kind.from_torch_lstm(theirs, engine=engine, **options)
    assert type(ours) is kind
    state = rand_state(ours)
    results = [run(m, rand(T, B, I), state, LENGTHS) for m in (ours, theirs, ours.to_torch_lstm())]
    assert_close(results[0], results[1])
    assert_close(results[2], results[1])


@pytest.mark.parametrize("kind", [CASLSTM, HighwayLSTM, SecondOrderLSTM])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_one_layer_of_other_cells_converts(kind, bidirectional):
    theirs = torch_module("lstm", 1, bidirectional)
    ours = kind.from_torch_lstm(theirs)
    state = rand_state(ours)
    results = [run(m, rand(T, B, I), state) for m in (ours, theirs, ours.to_torch_lstm())]
    assert_close(results[0], results[1])
    assert_close(results[2], results[1])


def test_converted_cas_has_zero_vertical_gates():
    """The vertical gate's weights are zero instead of random."""
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
def test_layers_that_are_no_plain_lstm_do_not_convert(kind, options):
    name = kind.__name__
    with pytest.raises(UserError, match=rf"^a {name} with these options is not a plain LSTM; "):
        kind.from_torch_lstm(torch_module("lstm", 2, False), **options)
    keywords = {"num_layers": 2, **options}
    with pytest.raises(UserError, match=rf"^torch.nn.LSTM cannot compute what this {name} does$"):
        kind(I, H, **keywords).to_torch_lstm()


def test_subclasses_convert_like_their_base():
    class OwnSecondOrder(SecondOrderLSTM):
        pass

    class OwnCAS(CASLSTM):
        pass

    torch_lstm = torch_module("lstm", 2, False)
    assert OwnSecondOrder.from_torch_lstm(torch_lstm).options.num_cells == 1
    with pytest.raises(UserError, match="which a OwnCAS cannot do; convert to LSTM"):
        OwnCAS.from_torch_lstm(torch_module("lstm", 2, True), lam=0)


def test_cells_without_a_torch_counterpart_have_no_conversion():
    for name in ("NormalizedLSTM", "DGLSTM", "GRU"):
        kind = getattr(__import__("fairseq_casrnn.layers", fromlist=[name]), name)
        assert not hasattr(kind, "from_torch_lstm")
        assert not hasattr(kind, "to_torch_lstm")


@every_kind
def test_independent_directions_do_not_convert_above_one_layer(kind):
    ours = KINDS[kind][1](I, H, 2, bidirectional=True)
    with pytest.raises(UserError, match=r"^torch concatenates the directions after every layer"):
        to_torch(kind, ours)
    to_torch(kind, KINDS[kind][1](I, H, 1, bidirectional=True))
    to_torch(kind, KINDS[kind][1](I, H, 2, bidirectional="interleaved"))


def test_bidirectional_torch_lstm_does_not_convert_to_cas():
    with pytest.raises(UserError, match="which a CASLSTM cannot do; convert to LSTM"):
        CASLSTM.from_torch_lstm(torch_module("lstm", 2, True), lam=0)


@every_kind
def test_other_torch_modules_are_refused(kind):
    other = "gru" if kind == "lstm" else "lstm"
    with pytest.raises(UserError, match=rf"^expected a torch\.nn\.{kind.upper()}"):
        from_torch(kind, torch_module(other, 1, False))


def test_projections_are_refused():
    with pytest.raises(
        UserError, match=r"^a torch module with projections .* cannot be converted$"
    ):
        LSTM.from_torch_lstm(nn.LSTM(I, H, proj_size=2))


@every_kind
def test_bidirectional_may_be_1(kind):
    """1 means True, which is two independent directions."""
    ours = KINDS[kind][1](I, H, 2, bidirectional=1)
    assert ours.bidirectional is True
    with pytest.raises(UserError, match=r"^torch concatenates"):
        to_torch(kind, ours)


@every_engine
@pytest.mark.parametrize("bidirectional", [False, True])
def test_dropout_masks_equal_torchs(bidirectional, engine):
    """From the same seed both draw the same masks, only between the layers."""
    theirs = torch_module("lstm", 3, bidirectional, dropout=0.4)
    ours = LSTM.from_torch_lstm(theirs, engine=engine)
    results = []
    for module in (ours, theirs):
        torch.manual_seed(5)
        results.append(run(module, rand(T, B, I), rand_state(ours)))
    assert_close(*results)
    torch.manual_seed(6)
    assert not torch.allclose(flat(ours(rand(T, B, I), rand_state(ours)))[0], results[0][0])

"""Conventions of ``torch.nn.LSTM``: layouts, factory keywords, no biases, empty batches."""

import warnings

import pytest
import torch
from helpers import (
    LENGTHS,
    B,
    H,
    I,
    L,
    T,
    as_tuple,
    assert_close,
    every_case,
    every_engine,
    every_family,
    every_other,
    flat,
    gradients,
    rand,
    rand_state,
    randomize,
    weighted,
)
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from fairseq_casrnn import layers
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import (
    CASLSTM,
    GRU,
    LSTM,
    SecondOrderLSTM,
    SentenceStateLSTM,
    ShortcutStackedLSTM,
)

pytestmark = pytest.mark.sampled(1)

OTHERS = {
    "shortcut": lambda **options: ShortcutStackedLSTM(I, (H, H), **options),
    "sentence state": lambda **options: SentenceStateLSTM(I, H, 3, **options),
}
every_other_layer = pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)


@every_family
@pytest.mark.parametrize("bidirectional", [False, True])
def test_batch_first(case, bidirectional):
    """Only input and output are transposed, not the states or packed sequences."""
    layer = case.random(bidirectional=bidirectional)
    other = case.random(bidirectional=bidirectional, batch_first=True)
    x, state = rand(T, B, I), rand_state(layer)
    output, *expected = flat(layer(x, state, LENGTHS))
    assert_close(
        flat(other(x.transpose(0, 1), state, LENGTHS)), (output.transpose(0, 1), *expected)
    )
    packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    assert_close(
        flat((other(packed, state)[0].data, other(packed, state)[1])),
        flat((layer(packed, state)[0].data, layer(packed, state)[1])),
    )
    with pytest.raises(
        UserError, match=r"expected \(batch, time, 7\), or \(time, 7\) for a single"
    ):
        other(rand(B, T, I + 1))
    with pytest.raises(UserError, match=r"it needs at least one time step"):
        other(rand(B, 0, I))


@every_other_layer
def test_batch_first_in_other_layers(make):
    layer = randomize(make(dtype=torch.float64))
    other = randomize(make(dtype=torch.float64, batch_first=True))
    x = rand(T, B, I)
    output, state = layer(x, LENGTHS)
    found, other_state = other(x.transpose(0, 1), LENGTHS)
    assert_close([found], [output.transpose(0, 1)])
    assert_close(as_tuple(other_state), as_tuple(state))
    assert "batch_first=True" in repr(other)
    packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    assert_close([other(packed)[0].data], [layer(packed)[0].data])
    with pytest.raises(UserError, match=r"expected \(batch, time, 7\)"):
        other(rand(B, T, I + 1))


def test_batch_first_tokens():
    table = torch.arange(6) % 2
    options = {"num_cells": 2, "routing": "assignment", "assignment": table}
    layer = randomize(SecondOrderLSTM(I, H, 2, dtype=torch.float64, **options))
    other = SecondOrderLSTM(I, H, 2, batch_first=True, dtype=torch.float64, **options)
    other.load_state_dict(layer.state_dict())
    x, tokens = rand(T, B, I), torch.randint(6, (T, B))
    output, _ = layer(x, tokens=tokens)
    assert_close([other(x.transpose(0, 1), tokens=tokens.t())[0]], [output.transpose(0, 1)])
    single, _ = other(x[:, 1], tokens=tokens[:, 1])
    assert_close([single], [output[:, 1]])


@every_family
@pytest.mark.parametrize("batch_first", [False, True])
def test_single_sequence(case, batch_first):
    """A sequence (T, I) gives (T, D*H) and (L*D, H), the results of a batch of one."""
    layer = case.random(bidirectional=True, batch_first=batch_first)
    x, state = rand(T, 1, I), rand_state(layer, 1)
    single = tuple(part.squeeze(1) for part in as_tuple(state))
    found = flat(layer(x.squeeze(1), single if layer.has_cell else single[0]))
    expected = flat(layer(x.transpose(0, 1) if batch_first else x, state))
    assert [t.dim() for t in found] == [2] * len(found)
    assert_close(
        found, [t.squeeze(0 if batch_first and i == 0 else 1) for i, t in enumerate(expected)]
    )
    assert_close(flat(layer(x.squeeze(1)))[:1], flat(layer(x.squeeze(1), None))[:1])


@every_other_layer
def test_single_sequence_in_other_layers(make):
    layer = make(dtype=torch.float64)
    x = rand(T, 1, I)
    output, state = layer(x)
    found, other_state = layer(x.squeeze(1))
    assert_close([found], [output.squeeze(1)])
    dim = 0 if isinstance(layer, SentenceStateLSTM) else 1
    assert_close(as_tuple(other_state), [t.squeeze(dim) for t in as_tuple(state)])


@every_case
@every_engine
def test_without_biases(case, engine):
    """A layer without bias parameters computes what biases of zero give."""
    layer = case.random(bidirectional=True, engine=engine, bias=False)
    full = case.random(bidirectional=True, engine=engine)
    names = {name for name, _ in full.named_parameters() if name.startswith("bias")}
    assert {name for name, _ in layer.named_parameters()} | names == {
        name for name, _ in full.named_parameters()
    }
    assert layer.bias_l0 is None
    with torch.no_grad():
        for name, parameter in full.named_parameters():
            if name in names:
                parameter.zero_()
            else:
                parameter.copy_(getattr(layer, name))
    results = []
    for module in (layer, full):
        x = rand(T, B, I).requires_grad_()
        result = flat(module(x, rand_state(full), LENGTHS))
        leaves = [x, *(getattr(module, name) for name, _ in layer.named_parameters())]
        results.append([*result, *gradients(weighted(result), leaves)])
    assert_close(*results)
    assert "bias=False" in repr(layer)
    if engine == "reference":
        layer.reset_parameters()  # works without bias parameters
        one_way = case.random(bias=False)
        output, _ = one_way.step(rand(B, I), one_way.zero_state(B))
        assert_close([output], [one_way(rand(1, B, I))[0][0]])


@every_family
def test_device_and_dtype(case):
    layer = case.layer(device="meta", dtype=torch.float64)
    assert all(t.is_meta and t.dtype == torch.float64 for t in layer.state_dict().values())
    layer.to_empty(device="cpu").reset_parameters()
    assert all(t.isfinite().all() for t in layer.state_dict().values())
    assert layer(rand(T, B, I))[0].isfinite().all()


@every_other_layer
def test_device_and_dtype_in_other_layers(make):
    layer = make(device="meta", dtype=torch.bfloat16)
    assert all(p.is_meta and p.dtype == torch.bfloat16 for p in layer.parameters())


def test_reset_parameters_resets_buffers():
    """``reset_parameters`` fills the temperature and the assignment of a layer made on meta."""
    layer = SecondOrderLSTM(I, H, temperature=0.5, device="meta")
    layer.to_empty(device="cpu")
    layer.temperature.fill_(float("nan"))
    layer.reset_parameters()
    assert layer.temperature == 0.5
    with torch.device("meta"):
        layer = SecondOrderLSTM(I, H, routing="assignment", assignment=[0, 1, 1])
    layer.to_empty(device="cpu")
    layer.assignment.fill_(7)
    layer.reset_parameters()
    assert layer.assignment.tolist() == [0, 1, 1]


@every_family
@every_other
def test_empty_batch(case, engine):
    """Results are empty and gradients are zero, as with nn.LSTM."""
    layer = case.random(bidirectional=True, engine=engine)
    for lengths in (None, [], torch.empty(0, dtype=torch.long)):
        for state in (None, rand_state(layer, 0)):
            x = rand(T, 0, I).requires_grad_()
            result = flat(layer(x, state, lengths))
            assert [t.shape for t in result] == [
                (T, 0, 2 * H),
                *[(2 * L, 0, H)] * (len(result) - 1),
            ]
            grads = gradients(weighted(result), [x, *layer.parameters()])
            assert all(g.eq(0).all() for g in grads)
    with pytest.raises(UserError, match=r"lengths has shape \(1,\); expected \(0,\)"):
        layer(rand(T, 0, I), lengths=[2])


@every_other_layer
@every_engine
def test_empty_batch_in_other_layers(make, engine):
    layer = make(engine=engine, dtype=torch.float64)
    output, state = layer(rand(T, 0, I))
    assert output.shape == (T, 0, layer.output_size)
    assert all(part.numel() == 0 for part in as_tuple(state))
    output.sum().backward()


@every_family
@every_engine
def test_default_device(case, engine):
    """A layer on the CPU works while torch's default device is another."""
    layer = case.random(bidirectional=True, engine=engine)
    x, state = rand(T, B, I), rand_state(layer)
    expected = flat(layer(x, state, LENGTHS))
    torch.set_default_device("meta")
    try:
        for lengths in (LENGTHS, torch.tensor(LENGTHS, device="cpu")):
            result = flat(layer(x, state, lengths))
            assert_close(result, expected)
            sum(t.sum() for t in result).backward()
    finally:
        torch.set_default_device(None)


@every_other_layer
@every_engine
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
def test_default_device_in_other_layers(make, engine, lengths):
    layer = make(engine=engine, dtype=torch.float64)
    x = rand(T, B, I)
    expected = layer(x, lengths)
    torch.set_default_device("meta")
    try:
        output, state = layer(x, lengths)
        output.sum().backward()
    finally:
        torch.set_default_device(None)
    assert_close([output, *as_tuple(state)], [expected[0], *as_tuple(expected[1])])


@every_engine
@pytest.mark.parametrize("recompute", [False, True])
def test_lengths_may_be_overwritten_after_the_call(engine, recompute):
    """A data loader may fill the same buffer with the next batch before the backward pass."""
    layer = SentenceStateLSTM(I, H, 3, engine=engine, recompute=recompute, dtype=torch.float64)
    stack = randomize(CASLSTM(I, H, 2, bidirectional=True, engine=engine, dtype=torch.float64))
    for module in (layer, stack):
        results = []
        for overwrite in (False, True):
            lengths = torch.tensor(LENGTHS)
            result = module(rand(T, B, I), lengths=lengths)
            if overwrite:
                lengths.fill_(T)
            loss = weighted([result[0], *as_tuple(result[1])])
            results.append(gradients(loss, module.parameters()))
        assert_close(*results)


def test_flatten_parameters():
    for layer in (LSTM(I, H), ShortcutStackedLSTM(I, (H,))):
        assert layer.flatten_parameters() is None


def test_dropout_with_one_layer_warns():
    for make in (LSTM, GRU, CASLSTM):
        with pytest.warns(UserWarning, match="dropout is 0.2, but it acts between layers"):
            make(I, H, 1, dropout=0.2)
    with warnings.catch_warnings(action="error"):
        LSTM(I, H, 2, dropout=0.2)
        LSTM(I, H, 1)
        assert layers.build("stacked_lstm", I, H, 1, dropout=0.2).dropout == 0.0


def test_lam_is_read_only():
    layer = CASLSTM(I, H, 2, lam=0.25)
    assert layer.lam == 0.25
    with pytest.raises(AttributeError, match="lam"):
        layer.lam = 0.9


@pytest.mark.parametrize(
    "kind", [(nn.LSTM, LSTM, "lstm"), (nn.GRU, GRU, "gru")], ids=["lstm", "gru"]
)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_conversion_keeps_layout_and_biases(kind, bias, batch_first):
    torch_kind, own_kind, name = kind
    theirs = torch_kind(I, H, 2, bias=bias, batch_first=batch_first, dtype=torch.float64)
    ours = getattr(own_kind, f"from_torch_{name}")(theirs)
    again = getattr(ours, f"to_torch_{name}")()
    x = rand(B, T, I)
    assert_close(flat(ours(x)), flat(theirs(x)))
    assert_close(flat(again(x)), flat(theirs(x)))
    assert (again.bias, again.batch_first) == (bias, batch_first) == (ours.bias, ours.batch_first)

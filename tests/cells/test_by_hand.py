"""Known results: an open or closed gate turns one cell into another, or gives a known number."""

import math

import pytest
import torch
from helpers import (
    ENGINES,
    LENGTHS,
    B,
    Case,
    H,
    I,
    T,
    assert_close,
    every_engine,
    flat,
    gradients,
    rand,
    rand_state,
    randomize,
    weighted,
)

from fairseq_casrnn.layers import (
    CASLSTM,
    DGLSTM,
    GRU,
    LSTM,
    HighwayLSTM,
    NormalizedLSTM,
    SecondOrderLSTM,
)

CLOSED, OPEN = -1e4, 1e4  # their sigmoids are 0 and 1 in double precision


def block(parameter, n):
    """Return gate block n of a weight or bias."""
    return parameter[n * H : (n + 1) * H]


def set_gate(layer, n, value, layers=None):
    """Fix gate n at σ(value) for all inputs, in the given layers and all directions."""
    with torch.no_grad():
        for k in range(layer.num_layers) if layers is None else layers:
            for suffix in layer.suffixes:
                w_ih, w_hh, bias, _ = layer.layer_parameters(k, suffix)
                for tensor in (w_ih, w_hh):
                    block(tensor, n).zero_()
                block(bias, n).fill_(value)


def as_lstm(layer):
    """Return a stacked LSTM with the first four blocks of each parameter of ``layer``."""
    plain = LSTM(
        I, H, layer.num_layers, bidirectional=layer.bidirectional, engine="reference"
    ).double()
    state = layer.state_dict()
    plain.load_state_dict({key: state[key][: 4 * H] for key in plain.state_dict()})
    return plain


def assert_is_lstm(layer):
    """Outputs and gradients of x and of the state equal those of the LSTM within the layer."""
    plain = as_lstm(layer)
    results = []
    for module in (layer, plain):
        x = rand(T, B, I).requires_grad_()
        state = tuple(s.requires_grad_() for s in rand_state(layer))
        result = flat(module(x, state, LENGTHS))
        results.append([*result, *gradients(weighted(result), (x, *state))])
    assert_close(*results)


def assert_is_not_lstm(layer):
    x, state = rand(T, B, I), rand_state(layer)
    assert not torch.allclose(layer(x, state)[0], as_lstm(layer)(x, state)[0], atol=1e-3)


def close_vertical_gate(layer):
    set_gate(layer, 4, CLOSED, layers=[1, 2])


def lower_lam_logit(layer):
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("lam_logit"):
                parameter.fill_(CLOSED)


def set_depth_gate(layer, value=CLOSED):
    """Fix gate d, which has no block in weight_hh, at σ(value) above the bottom layer."""
    with torch.no_grad():
        for k in range(1, layer.num_layers):
            for suffix in layer.suffixes:
                block(getattr(layer, f"weight_ih_l{k}{suffix}"), 4).zero_()
                block(getattr(layer, f"bias_l{k}{suffix}"), 4).fill_(value)
                getattr(layer, f"depth_peephole_l{k}{suffix}").zero_()


def zero_peepholes(layer):
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("peephole"):
                parameter.zero_()


def equalize_cells(layer):
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if not name.startswith("attention"):
                parameter.copy_(torch.cat([parameter[: 4 * H]] * layer.options.num_cells))


# Layers, and the change of parameters that turns each into a plain LSTM.
LSTM_LIMITS = {
    "cas-one-layer": (CASLSTM, 1, {}, []),
    "highway-one-layer": (HighwayLSTM, 1, {}, []),
    "dg-one-layer": (DGLSTM, 1, {}, [zero_peepholes]),
    "cas-lam-0": (CASLSTM, 3, {"lam": 0}, []),
    "cas-vertical-gate": (CASLSTM, 3, {"lam": None}, [close_vertical_gate]),
    "cas-trainable-lam": (CASLSTM, 3, {"lam": "trainable"}, [lower_lam_logit]),
    "highway-depth-gate": (HighwayLSTM, 3, {}, [set_depth_gate]),
    "dg-depth-gate": (DGLSTM, 3, {}, [zero_peepholes, set_depth_gate]),
    "second-order-one-cell": (SecondOrderLSTM, 3, {"num_cells": 1}, []),
    "second-order-equal-cells": (SecondOrderLSTM, 2, {"num_cells": 3}, [equalize_cells]),
}


@every_engine
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("limit", LSTM_LIMITS)
def test_becomes_an_lstm(limit, bidirectional, engine):
    kind, depth, options, changes = LSTM_LIMITS[limit]
    layer = randomize(
        kind(I, H, depth, bidirectional=bidirectional, engine=engine, **options).double()
    )
    for change in changes:
        assert_is_not_lstm(layer)
        change(layer)
    for training in (True, False):
        assert_is_lstm(layer.train(training))


@every_engine
@pytest.mark.parametrize(("logit", "lam"), [(0.0, 0.5), (math.log(3), 0.75), (-math.log(3), 0.25)])
def test_trainable_lam_is_the_sigmoid_of_its_logit(logit, lam, engine):
    trained = randomize(CASLSTM(I, H, 3, lam="trainable", engine=engine).double())
    fixed = randomize(CASLSTM(I, H, 3, lam=lam, engine=engine).double())
    with torch.no_grad():
        for k in (1, 2):
            getattr(trained, f"lam_logit_l{k}").fill_(logit)
    fixed.load_state_dict({k: v for k, v in trained.state_dict().items() if "lam" not in k})
    x = rand(T, B, I)
    assert_close(flat(trained(x)), flat(fixed(x)))


@every_engine
def test_cas_with_lam_one_drops_the_past_cell(engine):
    """With λ = 1 the upper layer's initial cell affects nothing; with λ < 1 every element does."""
    for lam, drops in ((1, True), (0.5, False)):
        layer = randomize(CASLSTM(I, H, 2, lam=lam, engine=engine).double())
        h_0, c_0 = rand_state(layer)
        result = flat(layer(rand(T, B, I), (h_0, c_0.requires_grad_())))
        (grad,) = gradients(weighted(result), [c_0])
        assert grad[0].all()
        assert (not grad[1].any()) if drops else grad[1].all()


@every_engine
def test_highway_and_dg_agree_without_peepholes(engine):
    """These peepholes are the only difference between the two cells."""
    dg = randomize(DGLSTM(I, H, 3, engine=engine).double())
    for k in range(3):
        torch.nn.init.zeros_(getattr(dg, f"peephole_l{k}"))
    highway = HighwayLSTM(I, H, 3, engine=engine).double()
    highway.load_state_dict(
        {k: v for k, v in dg.state_dict().items() if not k.startswith("peephole")}
    )
    x = rand(T, B, I)
    assert_close(flat(dg(x, None, LENGTHS)), flat(highway(x, None, LENGTHS)))


@every_engine
def test_uniform_attention_is_the_mean_of_the_cells(engine):
    """With V = 0, h and c after one step are the means of S LSTMs."""
    layer = randomize(SecondOrderLSTM(I, H, 1, num_cells=3, engine=engine).double())
    torch.nn.init.zeros_(layer.attention_l0)
    x, state = rand(1, B, I), rand_state(layer)
    singles = []
    for s in range(3):
        plain = LSTM(I, H, engine=engine).double()
        own = slice(s * 4 * H, (s + 1) * 4 * H)
        plain.load_state_dict({key: layer.state_dict()[key][own] for key in plain.state_dict()})
        singles.append(flat(plain(x, state)))
    means = [torch.stack(parts).mean(0) for parts in zip(*singles, strict=True)]
    assert_close(flat(layer(x, state)), means)


@every_engine
def test_normalized_gates_take_a_mean(engine):
    """c is a weighted mean of g and the past c, so if both are 1, it stays exactly 1."""
    layer = randomize(NormalizedLSTM(I, H, engine=engine).double())
    set_gate(layer, 2, OPEN)  # g = 1
    ones = torch.ones(1, B, H, dtype=torch.float64)
    _, (_, c_n) = layer(rand(T, B, I), (rand(1, B, H), ones))
    assert_close([c_n], [ones])


@every_engine
def test_normalized_gates_never_close(engine):
    """The softmax is over σ(i) and σ(f): with i = 0 and f = 1 the weights are 1 : e, not 0 : 1."""
    layer = randomize(NormalizedLSTM(I, H, engine=engine).double())
    set_gate(layer, 0, CLOSED)
    set_gate(layer, 1, OPEN)
    set_gate(layer, 2, 0.0)  # g = 0
    c_0 = rand(1, B, H)
    _, (_, c_n) = layer(rand(1, B, I), (rand(1, B, H), c_0))
    assert_close([c_n], [c_0 * math.e / (1 + math.e)])


@every_engine
def test_gru_with_its_update_gate_open_keeps_its_state(engine):
    layer = randomize(GRU(I, H, 2, engine=engine).double())
    set_gate(layer, 1, OPEN)
    h_0 = rand_state(layer)
    output, h_n = layer(rand(T, B, I), h_0)
    assert_close([h_n, output], [h_0, h_0[1].expand(T, B, H)])


@every_engine
def test_gru_reset_gate_multiplies_the_inner_bias(engine):
    """With r = 0 neither U_n h nor bias_n reaches the candidate (Cho's GRU keeps the bias)."""
    layer = randomize(GRU(I, H, engine=engine).double())
    set_gate(layer, 0, CLOSED)
    set_gate(layer, 1, CLOSED)  # z = 0, so h is the candidate
    x = rand(T, B, I)
    w_ih, _, bias, _ = layer.layer_parameters(0)
    output, _ = layer(x, rand_state(layer))
    assert_close([output], [torch.tanh(x @ block(w_ih, 2).t() + block(bias, 2))])


@every_engine
@pytest.mark.parametrize("kind", [LSTM, CASLSTM, HighwayLSTM, DGLSTM])
def test_open_forget_gate_and_closed_input_gate_keep_the_cell(kind, engine):
    layer = randomize(kind(I, H, num_layers=1, engine=engine).double())
    set_gate(layer, 0, CLOSED)
    set_gate(layer, 1, OPEN)
    h_0, c_0 = rand_state(layer)
    _, (_, c_n) = layer(rand(T, B, I), (h_0, c_0))
    assert_close([c_n], [c_0])


# One unit, all weights 0: g = tanh(1), and every other gate is σ(0) = ½.
ONE_STEP = [
    # name, options, and the c of layer 1, whose past c is 2; the lower c is ½g + ½·4.
    ("stacked_lstm", {}, lambda g, lower: g / 2 + 1),
    ("cas_lstm", {"lam": 0.5}, lambda g, lower: g / 2 + 0.5 * 1 + 0.5 * lower / 2),
    ("cas_lstm", {"lam": 0.25}, lambda g, lower: g / 2 + 0.75 * 1 + 0.25 * lower / 2),
    ("cas_lstm", {"lam": 0}, lambda g, lower: g / 2 + 1),
    ("cas_lstm", {"lam": 1}, lambda g, lower: g / 2 + lower / 2),
    ("cas_lstm", {"lam": "trainable"}, lambda g, lower: g / 2 + 0.5 * 1 + 0.5 * lower / 2),
    ("cas_lstm", {"lam": None}, lambda g, lower: g / 2 + 1 + lower / 2),
    ("highway_lstm", {}, lambda g, lower: g / 2 + 1 + lower / 2),
    ("dg_lstm", {}, lambda g, lower: g / 2 + 1 + lower / 2),
    ("normalized_lstm", {}, lambda g, lower: g / 2 + 1),
    ("second_order_lstm", {"num_cells": 2}, lambda g, lower: g / 2 + 1),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "options", "expected"), ONE_STEP)
def test_one_step_by_hand(name, options, expected, engine):
    layer = Case(name, options).layer(1, 1, 2, engine=engine).double()
    with torch.no_grad():
        for key, parameter in layer.named_parameters():
            parameter.zero_()
            if key.startswith("bias"):
                parameter[2 :: 4 if name == "second_order_lstm" else 99] = 1.0
    h_0, c_0 = torch.zeros(2, 1, 1), torch.tensor([4.0, 2.0]).view(2, 1, 1)
    output, (h_n, c_n) = layer(torch.ones(1, 1, 1).double(), (h_0.double(), c_0.double()))
    g = math.tanh(1)
    lower = g / 2 + 2
    c = [lower, expected(g, lower)]
    assert c_n.flatten().tolist() == pytest.approx(c, abs=1e-12)
    h = [math.tanh(value) / 2 for value in c]
    assert h_n.flatten().tolist() == pytest.approx(h, abs=1e-12)
    assert output.item() == pytest.approx(h[1], abs=1e-12)

"""Names, shapes, order of blocks, initial values and counts of the parameters."""

import math

import pytest
import torch
from cells.specification import OPEN_GATES, PARAMETERS
from helpers import FAMILIES, Case, H, I, as_tuple, every_case, rand, rand_state

from fairseq_casrnn.layers import (
    LAYERS,
    LSTM,
    RecurrentStack,
    SecondOrderLSTM,
    SentenceStateLSTM,
    build,
)

TABLE = [(Case(name, options), *blocks) for name, options, *blocks in PARAMETERS]
by_table = pytest.mark.parametrize(
    ("case", "bottom", "above"), [pytest.param(*row, id=str(row[0])) for row in TABLE]
)


@pytest.mark.parametrize(
    ("case", "bottom", "above", "bidirectional"),
    [
        pytest.param(*row, bidirectional, id=f"{row[0]}-{bidirectional}")
        for row in TABLE
        for bidirectional in row[0].directions
    ],
)
def test_names_and_shapes(case, bottom, above, bidirectional):
    layer = case.layer(I, H, 3, bidirectional=bidirectional)
    expected = {}
    for k in range(3):
        ih, hh, further = above if k else bottom
        size = I if k == 0 else 2 * H if bidirectional == "interleaved" else H
        for suffix in ("", "_reverse") if bidirectional else ("",):
            expected[f"weight_ih_l{k}{suffix}"] = (ih * H, size)
            expected[f"weight_hh_l{k}{suffix}"] = (hh * H, H)
            expected[f"bias_l{k}{suffix}"] = (ih * H,)
            for name, shape in further.items():
                shape = tuple({"I": size, "H": H}.get(n, n) for n in shape)
                expected[f"{name}_l{k}{suffix}"] = shape
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == expected
    assert all(p.dtype == torch.float32 and p.requires_grad for p in layer.parameters())


@every_case
@pytest.mark.parametrize("bidirectional", [False, True])
def test_initial_values(case, bidirectional):
    torch.manual_seed(1)
    layer = case.layer(I, 64, 3, bidirectional=bidirectional)
    bias_one_gates = OPEN_GATES[case.name]
    if callable(bias_one_gates):
        bias_one_gates = bias_one_gates(layer.options)
    bound = 1 / math.sqrt(64)
    for name, parameter in layer.named_parameters():
        if name.startswith("bias_l"):
            ones = bias_one_gates[0 if "_l0" in name else 1]
            for n, block in enumerate(parameter.view(-1, 64)):
                assert block.eq(float(n in ones)).all(), (name, n)
        elif name.startswith(("bias_n", "lam_logit")):
            assert parameter.eq(0).all(), name
        else:
            assert parameter.abs().max() <= bound, name
            if parameter.numel() > 100:
                assert parameter.mean().item() == pytest.approx(0, abs=0.2 * bound), name
                assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.2), name


def test_initial_weights_depend_on_the_seed():
    def weights(seed):
        torch.manual_seed(seed)
        return build("dg_lstm", I, H, 2).state_dict()

    first, again, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["weight_ih_l0"], other["weight_ih_l0"])


@every_case
def test_reset_parameters(case):
    """All parameters get new initial values; biases and λ have fixed ones."""
    layer = case.layer(bidirectional=True)
    start = {name: p.clone() for name, p in layer.named_parameters()}
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(7.0)
    layer.reset_parameters()
    for name, parameter in layer.named_parameters():
        assert not parameter.eq(7).any()
        if name.startswith(("bias", "lam_logit")):
            assert torch.equal(parameter, start[name]), name


@pytest.mark.parametrize(("num_cells", "millions"), [(1, 2.2), (2, 4.3), (5, 10.8)])
def test_second_order_parameter_counts(num_cells, millions):
    layer = SecondOrderLSTM(300, 600, num_cells=num_cells)
    assert round(count(layer) / 1e6, 1) == millions
    assert count(layer) == num_cells * (4 * 600 * (300 + 600 + 1) + 300)


@pytest.mark.parametrize(("depth", "thousands"), [(4, 2.1), (6, 3.5), (8, 5.3)])
def test_dyck_parameter_counts(depth, thousands):
    """Only the cell is counted, since a mixture of one needs no attention."""
    layer = SecondOrderLSTM(30, 3 * depth, num_cells=1)
    cells = count(layer) - layer.attention_l0.numel()
    assert round(cells / 1e3, 1) == thousands
    assert cells == count(LSTM(30, 3 * depth))


def count(layer):
    return sum(p.numel() for p in layer.parameters())


@by_table
def test_shapes_of_results(case, bottom, above):
    """The output is (T, B, D*H) and each state is (L*D, B, H); a GRU has only h."""
    for bidirectional in (False, True):
        directions = 2 if bidirectional else 1
        layer = case.layer(I, H, 3, bidirectional=bidirectional)
        assert layer.num_directions == directions
        assert layer.output_size == directions * H
        output, state = layer(rand(5, 2, I, dtype=torch.float32))
        assert output.shape == (5, 2, directions * H)
        assert len(as_tuple(state)) == (2 if layer.has_cell else 1)
        assert isinstance(state, tuple) == layer.has_cell
        for part, zero in zip(as_tuple(state), as_tuple(layer.zero_state(2)), strict=True):
            assert part.shape == zero.shape == (3 * directions, 2, H)
            assert not zero.any()


@every_case
def test_no_state_is_the_zero_state(case):
    layer = case.random(bidirectional=True)
    x = rand(4, 2, I)
    assert torch.equal(layer(x)[0], layer(x, layer.zero_state(2))[0])
    assert not torch.allclose(layer(x)[0], layer(x, rand_state(layer, 2))[0])


def test_zero_state_tensors_do_not_share_memory():
    h, c = LSTM(I, H).zero_state(2)
    h.fill_(1.0)
    assert not c.any()


def test_build_returns_the_class_of_the_family():
    for case in FAMILIES:
        layer = case.layer()
        assert isinstance(layer, RecurrentStack)
        if case.name in LAYERS:
            assert type(layer) is LAYERS[case.name]
            assert layer.name == case.name


def test_repr():
    text = repr(build("cas_lstm", 3, 5, 2, bidirectional=True, dropout=0.25))
    assert text == "CASLSTM(3, 5, num_layers=2, bidirectional=True, dropout=0.25, lam=0.5)"
    assert repr(LSTM(3, 5)) == "LSTM(3, 5, num_layers=1)"
    layer = SecondOrderLSTM(3, 5, num_cells=3)
    assert repr(layer) == "SecondOrderLSTM(3, 5, num_layers=1, num_cells=3)"
    layer = SecondOrderLSTM(3, 5, routing="assignment", assignment=[0, 1])
    assert repr(layer).endswith("num_cells=2, routing='assignment')")
    assert repr(SentenceStateLSTM(3, 5, 2, recompute=True)).endswith("recompute=True)")

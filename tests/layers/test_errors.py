"""A user's mistake with a layer raises one sentence that names the remedy."""

import dataclasses

import numpy as np
import pytest
import torch
from helpers import FAMILIES, B, H, I, T, every_family, rand, rand_state
from torch.nn.utils.rnn import pack_padded_sequence

from fairseq_casrnn.cells import FAMILIES as FAMILY_ROWS
from fairseq_casrnn.cells.cas_lstm import CASCell
from fairseq_casrnn.cells.second_order_lstm import SecondOrderCell
from fairseq_casrnn.cells.stacked_gru import GRUCell
from fairseq_casrnn.cells.stacked_lstm import LSTMCell
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import GRU, LAYERS, LSTM, SecondOrderLSTM, build


def refused(sentence):
    """Expect a ``UserError`` whose whole message matches the regular expression ``sentence``."""
    return pytest.raises(UserError, match=f"^{sentence}$")


@pytest.mark.parametrize("name", ["input_size", "hidden_size", "num_layers"])
@pytest.mark.parametrize("kind", LAYERS.values())
def test_invalid_sizes(kind, name):
    for value in (0, -3, 1.5, float("nan"), float("inf"), None, "4"):
        sizes = {"input_size": I, "hidden_size": H, "num_layers": 2, name: value}
        with refused(f"{name} is {value!r}; it must be a whole number of at least 1"):
            kind(**sizes)


def test_sizes_may_be_other_number_types():
    layer = LSTM(np.int64(I), float(H), np.int32(2))
    assert (layer.input_size, layer.hidden_size, layer.num_layers) == (I, H, 2)
    assert layer(rand(T, B, I, dtype=torch.float32))[0].shape == (T, B, H)


def test_bottom_layer_cannot_read_the_cell_below(monkeypatch):
    row = dataclasses.replace(FAMILY_ROWS["cas_lstm"], make_cell=lambda k, options: CASCell(0.5))
    monkeypatch.setitem(FAMILY_ROWS, "cas_lstm", row)
    with refused(
        "layer 0 of cas_lstm is a CASCell, which reads the cell of the layer below; give .*"
    ):
        build("cas_lstm", I, H, 2)


@every_family
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_invalid_dropout(case, value):
    with refused(rf"dropout is {value}; it must lie in \[0, 1\]"):
        case.layer(dropout=value)


@every_family
@pytest.mark.parametrize("value", ["independent", "True", 2, None])
def test_invalid_bidirectional(case, value):
    with refused(f"bidirectional is {value!r}; use False, True or 'interleaved'"):
        case.layer(bidirectional=value)


@pytest.mark.parametrize("case", [c for c in FAMILIES if c.reads_lower_cell], ids=str)
def test_cells_that_read_the_cell_below_cannot_be_interleaved(case):
    with refused(
        f"{case.name} reads the cell of the layer below and cannot be interleaved; "
        "use bidirectional=True"
    ):
        case.layer(I, H, 2, bidirectional="interleaved")
    case.layer(I, H, 1, bidirectional="interleaved")  # nothing below to read


def test_unknown_cell():
    with refused("unknown cell 'sru'; known cells: .*cas_lstm.*"):
        build("sru", I, H, 2)


@every_family
@pytest.mark.parametrize("shape", [(T, B, I + 1), (T, B), (I,), (1, T, B, I), (T, B, 1)])
def test_invalid_input_shape(case, shape):
    layer = case.layer()
    text = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    with refused(
        rf"input has shape \({text}\); expected \(time, batch, {I}\), or \(time, {I}\) for a "
        "single sequence"
    ):
        layer(torch.zeros(shape))
    if shape != (T, B):
        with refused(r"input has shape .*; a step expects \(batch, 7\)"):
            layer.step(torch.zeros(shape[1:]), None)


def test_step_needs_a_batch_dimension():
    with refused(rf"input has shape \({I},\); a step expects \(batch, {I}\)"):
        LSTM(I, H).step(torch.zeros(I), None)


def test_state_of_a_single_sequence():
    state = torch.zeros(1, 1, H)
    with refused(rf"the state has shape \(1, 1, {H}\); expected \(1, {H}\)"):
        GRU(I, H)(torch.zeros(T, I), state)
    GRU(I, H)(torch.zeros(T, I), state[0])


def family_of(make_cell):
    return dataclasses.replace(FAMILY_ROWS["stacked_lstm"], make_cell=make_cell)


@pytest.mark.parametrize("kinds", [(LSTMCell, GRUCell), (GRUCell, LSTMCell)])
def test_mixing_layers_with_and_without_a_cell_state(kinds, monkeypatch):
    monkeypatch.setitem(FAMILY_ROWS, "mixed", family_of(lambda k, options: kinds[k]()))
    with refused("some layers of mixed have a cell state and others have none; give .*"):
        build("mixed", I, H, 2)


def test_mixture_without_mixture_weights(monkeypatch):
    monkeypatch.setitem(FAMILY_ROWS, "mixture", family_of(lambda k, options: SecondOrderCell(2)))
    with refused("mixture mixes several cells, but a RecurrentStack computes no weights .*"):
        build("mixture", I, H, 1)


@every_family
@pytest.mark.parametrize("shape", [(0, B, I), (0, 0, I), (0, I)])
def test_empty_input(case, shape):
    with refused(r"input has shape .*; it needs at least one time step"):
        case.layer()(torch.zeros(shape))


@every_family
@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([3, 5], r"lengths has shape \(2,\); expected \(3,\), one per sequence"),
        ([[3, 5, 1]], r"lengths has shape \(1, 3\); expected \(3,\), one per sequence"),
        (4, r"lengths has shape \(\); expected \(3,\), one per sequence"),
        ([3, 6, 1], r"lengths run from 1 to 6; each must lie in 1…5"),
        ([3, 0, 1], r"lengths run from 0 to 3; each must lie in 1…5"),
        ([3, -2, 5], r"lengths run from -2 to 5; each must lie in 1…5"),
        ([3, 2.7, 5], "lengths holds fractions; give one whole number per sequence"),
        ("abc", "lengths is 'abc'; give one whole number per sequence"),
        ([True, True, True], "lengths is of torch.bool; give one whole number per sequence"),
        ([3j, 5, 1], "lengths is of torch.complex64; give one whole number per sequence"),
    ],
)
def test_invalid_lengths(case, lengths, sentence):
    with refused(sentence):
        case.layer()(torch.zeros(T, B, I), lengths=lengths)


@every_family
def test_lengths_together_with_a_packed_sequence(case):
    packed = pack_padded_sequence(torch.zeros(T, B, I), [5, 4, 2])
    with refused("a PackedSequence has its own lengths; leave lengths out"):
        case.layer()(packed, lengths=[5, 4, 2])
    other = pack_padded_sequence(torch.zeros(T, B, I + 1), [5, 4, 2])
    with refused(r"input has shape \(5, 3, 8\); expected \(time, batch, 7\), or .*"):
        case.layer()(other)


@every_family
@pytest.mark.parametrize("shape", [(2, B, H), (4, B + 1, H), (4, B, H + 1), (B, H), (4, 1, H)])
def test_invalid_state_shape(case, shape):
    layer = case.layer(bidirectional=True)
    state = torch.zeros(shape)
    good = torch.zeros(4, B, H)
    for wrong in [(state, state), (good, state), (state, good)] if layer.has_cell else [state]:
        with refused(rf"the state has shape .*; expected \(4, {B}, {H}\)"):
            layer(torch.zeros(T, B, I), wrong)


@every_family
def test_state_of_another_dtype(case):
    layer = case.layer(num_layers=2)
    good, wrong = torch.zeros(2, B, H), torch.zeros(2, B, H, dtype=torch.float64)
    for state in [(wrong, good), (good, wrong)] if layer.has_cell else [wrong]:
        with refused(
            r"the state is of torch\.float64 and the layer of torch\.float32; convert one of them, "
            r"as with state\.to\(torch\.float32\)"
        ):
            layer(torch.zeros(T, B, I), state)


@every_family
def test_input_of_another_dtype(case):
    for dtype in (torch.float32, torch.int64):
        with refused(
            rf"input is of {dtype} and the layer of torch.float64; convert one of them, .*"
        ):
            case.layer().double()(torch.zeros(T, B, I, dtype=dtype))
    layer = case.layer(num_layers=1)
    h = torch.zeros(1, B, H, dtype=layer.bias_l0.dtype)
    if layer.has_cell:
        with refused("a part of the state is None; expected a tensor"):
            layer(torch.zeros(T, B, I, dtype=h.dtype), (h, None))


def test_invalid_tokens_shape():
    layer = SecondOrderLSTM(I, H, num_cells=2, routing="assignment", assignment=[0, 1, 1])
    for shape in ((T, 1), (T + 1, B), (T, B, 1)):
        with refused(r"tokens has shape \(.*\); expected \(5, 3\), one token per input"):
            layer(torch.zeros(T, B, I), tokens=torch.zeros(shape, dtype=torch.long))


def test_invalid_state_structure():
    lstm, gru = LSTM(I, H), GRU(I, H)
    x, h = torch.zeros(T, B, I), torch.zeros(1, B, H)
    for wrong in (h, (h,), (h, h, h), torch.zeros(2, 1, B, H)):
        with refused(r"the state of a LSTM is a pair \(h_0, c_0\)"):
            lstm(x, wrong)
        with refused(r"the state of a LSTM is a pair \(h_0, c_0\)"):
            lstm.step(x[0], wrong)
    for wrong in ((h, h), [h], (h,)):
        with refused("the state of a GRU is one tensor, h_0"):
            gru(x, wrong)
        with refused("the state of a GRU is one tensor, h_0"):
            gru.step(x[0], wrong)
    for wrong in ((h[:, 0],), (h[:, 0],) * 3):  # the state of a single sequence
        with refused(r"the state of a LSTM is a pair \(h_0, c_0\)"):
            lstm(x[:, 0], wrong)
    lstm(x, [h, h])
    with refused(rf"the state has shape \(2, {B}, {H}\); expected \(1, {B}, {H}\)"):
        gru.step(x[0], torch.zeros(2, B, H))


@pytest.mark.parametrize("value", ["soft", None, ""])
def test_invalid_routing(value):
    with refused(f"routing is {value!r}; use 'attention' or 'assignment'"):
        SecondOrderLSTM(I, H, routing=value)


def test_assignment_without_its_routing_or_reverse():
    sentence = "give assignment, the token-to-cell table, with routing='assignment' and only then"
    with refused(sentence):
        SecondOrderLSTM(I, H, routing="assignment")
    with refused(sentence):
        SecondOrderLSTM(I, H, assignment=[0, 1])


@pytest.mark.parametrize("table", [[0, 2], [-1, 0], [[0, 1]], [], 1, [0.0, 1.0]])
def test_invalid_assignment(table):
    with refused("assignment must be a list of cells from 0 to 1, one per token"):
        SecondOrderLSTM(I, H, num_cells=2, routing="assignment", assignment=table)


def test_routing_by_token_without_tokens():
    layer = SecondOrderLSTM(I, H, routing="assignment", assignment=[0, 1])
    with refused("routing by assignment needs the tokens: pass tokens=…"):
        layer(torch.zeros(T, B, I))
    with refused("routing by assignment needs the tokens: pass tokens=…"):
        layer.step(torch.zeros(B, I), None)


@pytest.mark.parametrize("value", [0, -1.0, 1e-7, float("nan")])
@pytest.mark.parametrize("name", ["temperature", "temperature_floor"])
def test_invalid_temperature(name, value):
    with refused("temperature and temperature_floor must be at least 1e-06"):
        SecondOrderLSTM(I, H, **{name: value})


@pytest.mark.parametrize("value", [0, 1.1, -0.5, float("nan")])
def test_invalid_temperature_decay(value):
    with refused(rf"temperature_decay is {value}; it must lie in \(0, 1\]"):
        SecondOrderLSTM(I, H, temperature_decay=value)


def test_layer_works_after_a_failed_call():
    layer = LSTM(I, H)
    expected = layer(rand(T, B, I, dtype=torch.float32))[0]
    with pytest.raises(UserError):
        layer(torch.zeros(T, B, I + 2), rand_state(layer))
    assert torch.equal(layer(rand(T, B, I, dtype=torch.float32))[0], expected)

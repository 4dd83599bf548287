"""The registry of cells, their options and attributes."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from helpers import (
    ENGINES,
    HALVES,
    B,
    H,
    I,
    T,
    assert_close,
    every_case,
    every_engine,
    flat,
    gradients,
    rand,
    randomize,
    weighted,
)

from cells import specification
from fairseq_casrnn import layers, recurrence
from fairseq_casrnn.cells import FAMILIES, Cell, Family, family
from fairseq_casrnn.cells.cas_lstm import CASCell, parse_lam
from fairseq_casrnn.cells.second_order_lstm import SecondOrderCell
from fairseq_casrnn.cells.stacked_lstm import LSTMCell
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.recurrence import decoding
from fairseq_casrnn.recurrence.decoder import DecoderInputs, DecoderLayer


def test_every_layer_class_has_a_family():
    assert set(layers.LAYERS) <= set(FAMILIES)
    assert {layer.__name__ for layer in layers.LAYERS.values()} <= set(layers.__all__)


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("EQUATIONS", specification.EQUATIONS),
        ("PARAMETERS", {name for name, *_ in specification.PARAMETERS}),
        ("OPEN_GATES", specification.OPEN_GATES),
    ],
)
def test_every_family_is_specified(table, rows):
    missing, unknown = set(FAMILIES) - set(rows), set(rows) - set(FAMILIES)
    assert not missing, f"add {missing} to {table} in tests/cells/specification.py"
    assert not unknown, f"{table} in tests/cells/specification.py has {unknown}, not in FAMILIES"


OPTIONS = [
    pytest.param(name, option, id=f"{name}-{option.name}")
    for name, row in FAMILIES.items()
    for option in dataclasses.fields(row.options)
]


@pytest.mark.parametrize(
    ("name", "option"), [p for p in OPTIONS if p.values[1].metadata.get("functional")]
)
def test_every_functional_option_is_tested(name, option):
    """Each functional option is tested with a value other than its default."""
    settings = specification.SETTINGS.get(name, [])
    values = {s.get(option.name, option.default) for s in settings}
    assert values - {option.default}, (
        f"add settings of {name} with several values of {option.name} to SETTINGS in "
        "tests/cells/specification.py"
    )


def test_unknown_family():
    known = ", ".join(sorted(FAMILIES))
    with pytest.raises(UserError, match=f"^unknown cell 'lstmm'; known cells: {known}$"):
        family("lstmm")


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_every_option_has_a_default_and_a_help_text(name, option):
    assert option.default is not dataclasses.MISSING
    assert option.metadata["help"]


@every_case
def test_cell_attributes_are_consistent(case):
    for k, cell in enumerate(case.layer(num_layers=3).cells):
        assert (
            0
            <= cell.num_separate_gates
            <= cell.hh_blocks
            <= cell.ih_blocks + cell.num_separate_gates
        )
        assert all(0 <= n < cell.ih_blocks for n in cell.bias_one_gates)
        assert not (cell.lower_cell and k == 0), "there is no layer below the bottom one"
        assert not (cell.lower_cell and cell.num_cells), "kernels have one side input"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, 0.0),
        (1, 1.0),
        (0.25, 0.25),
        ("0.25", 0.25),
        ("1", 1.0),
        ("1e-3", 1e-3),
        ("trainable", "trainable"),
        ("Trainable", "trainable"),
        (None, None),
        ("none", None),
        ("None", None),
    ],
)
def test_lam(given, expected):
    assert parse_lam(given) == expected
    assert CASCell(given).lam == expected


@pytest.mark.parametrize(
    "given", [-0.1, 1.1, "2", "half", "", float("nan"), float("inf"), [0.5], "nan"]
)
def test_invalid_lam(given):
    with pytest.raises(
        UserError, match=r"^lam is .*; it must be a number in \[0, 1\], 'trainable' or"
    ):
        parse_lam(given)
    with pytest.raises(UserError, match=r"^lam is"):
        layers.CASLSTM(
            I, H, num_layers=1, lam=given
        )  # refused even though one layer does not use it


@pytest.mark.parametrize("given", [0, -1, 1.5])
def test_invalid_num_cells(given):
    with pytest.raises(
        UserError, match=rf"^num_cells is {given}; it must be a whole number of at least 1"
    ):
        SecondOrderCell(given)
    with pytest.raises(UserError, match=r"^num_cells is"):
        layers.SecondOrderLSTM(I, H, num_cells=given)


def test_options_from_a_command_line():
    options = SimpleNamespace(lam="0.25", num_cells=3, unrelated=True)
    assert layers.build("cas_lstm", I, H, 2, options=options).cells[1].lam == 0.25
    assert layers.build("second_order_lstm", I, H, 2, options=options).cells[1].num_cells == 3


class HalvedCell(Cell):
    """An LSTM whose output is halved. It defines only ``step``, as a new cell would."""

    def step(self, gx, gh, h, c, **unused):
        h, c = LSTMCell().step(gx, gh, h, c)
        return h / 2, c


@every_engine
def test_new_cell(monkeypatch, engine):
    """A cell that defines only ``step`` works on every engine, with gradients."""
    monkeypatch.setitem(FAMILIES, "halved", Family(lambda k, options: HalvedCell()))
    layer = layers.build("halved", I, H, 1, engine=engine).double()
    plain = layers.LSTM(I, H, engine="reference").double()
    plain.load_state_dict(layer.state_dict())
    x = rand(1, B, I)
    output, expected = layer(x)[0], plain(x)[0] / 2
    assert_close([output], [expected])
    assert set(layer.state_dict()) == {"weight_ih_l0", "weight_hh_l0", "bias_l0"}
    grads = (
        gradients(weighted([y]), m.parameters()) for y, m in ((output, layer), (expected, plain))
    )
    assert_close(*grads)
    longer = rand(T, B, I)
    hs, state = [], layer.zero_state(B)
    for part in longer:
        h, state = layer.step(part, state)
        hs.append(h)
    assert_close([layer(longer)[0]], [torch.stack(hs)])


@every_engine
def test_new_cell_in_the_attention_decoder(engine):
    stack = layers.build("stacked_lstm", 2 * H, H, 1).double()
    weights = stack.layer_parameters(0)[:3]
    state, source = rand(1, B, H), rand(B, 4, H)
    results = [
        decoding.run(
            name,
            DecoderInputs(
                [DecoderLayer(HalvedCell(), *weights)], rand(T, B, H), state, state, source, source,
                None,
                rand(H, H),
            ),
        )
        for name in (engine, "reference")
    ]  # fmt: skip
    assert_close(*results)


@every_engine
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_new_cell_above_another_in_half_precision(monkeypatch, engine, dtype):
    """The layer below may run on an engine that keeps c in float32."""
    made = {0: LSTMCell, 1: BelowCell}
    monkeypatch.setitem(FAMILIES, "below", Family(lambda k, options: made[k]()))
    layer = randomize(layers.build("below", I, H, 2, engine=engine)).to(dtype)
    x = rand(T, B, I).to(dtype)
    output, state = layer(x)
    expected, _ = layer.double()(x.double())
    assert_close([output.double()], [expected], HALVES[dtype])
    layer.to(dtype).engine = "reference"
    assert layer(x, state)[0].dtype == dtype


class BelowCell(Cell):
    """An LSTM that adds the cell state of the layer below."""

    lower_cell = True

    def step(self, gx, gh, h, c, *, lower_c, **unused):
        h, c = LSTMCell().step(gx, gh, h, c)
        return h, c + lower_c


class MixedCell(Cell):
    """A mixture of its own cell state and that of the layer below."""

    lower_cell, num_cells = True, 2

    def step(self, gx, gh, h, c, *, lower_c, mixture, **unused):
        h, c = LSTMCell().step(gx, gh, h, c)
        return h, mixture[:, :1] * c + mixture[:, 1:] * lower_c


@every_engine
def test_step_with_both_side_inputs(engine):
    gx, weight, zero = rand(T, B, 4 * H), rand(4 * H, H, seed=1), torch.zeros(B, H).double()
    lower_c, choice = rand(T, B, H, seed=2), torch.arange(T * B).view(T, B) % 2
    reads = {"lower_c": lower_c, "mixture": recurrence.HardRouting(choice, 2)}
    _, cs, *_ = recurrence.run(engine, MixedCell(), gx, weight, zero, zero, **reads)
    assert_close([cs[choice == 1]], [lower_c[choice == 1]])
    assert not torch.isclose(cs[choice == 0], lower_c[choice == 0]).any()


@pytest.mark.parametrize(
    ("own", "inherited"),
    [
        (["step"], "forward_ and backward_, .*: define them as well"),
        (["step", "forward_"], "backward_, .*: define it as well"),
        (["forward_"], "step and backward_, .*: define them as well"),
    ],
)
def test_overriding_only_some_versions_of_the_step_is_refused(own, inherited):
    """Otherwise the inherited backward would compute the gradients of another cell."""
    message = f"Clamped defines {' and '.join(own)} but inherits {inherited}"
    with pytest.raises(TypeError, match=message):
        type("Clamped", (LSTMCell,), {name: getattr(LSTMCell, name) for name in own})


@pytest.mark.parametrize(("has", "lacks"), [("forward_", "backward_"), ("backward_", "forward_")])
def test_half_of_the_in_place_step_is_refused(has, lacks):
    """Otherwise ``step`` alone would run, and a comparison with ``step`` would find no error."""
    own = {name: getattr(LSTMCell, name) for name in ("step", has)}
    with pytest.raises(TypeError, match=f"Half lacks {lacks}: define both"):
        type("Half", (Cell,), own)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"zero_params": ("sclae",)}, r"zero_params is \('sclae',\), but params has no 'sclae'"),
        ({"zero_params": "scale"}, r"zero_params is 'scale', .*; give a tuple of names"),
        ({"params": (("scale", None), ("scale", 2))}, "params makes two parameters 'scale'; give"),
        ({"params": (("bias", None),)}, "params makes two parameters 'bias'; give"),
        ({"ih_blocks": 1}, r"bias_one_gates is \(1,\), but there are ih_blocks = 1"),
    ],
)
def test_inconsistent_attributes_are_refused(monkeypatch, attributes, message):
    cell = type("Odd", (HalvedCell,), {"params": (("scale", None),), **attributes})
    monkeypatch.setitem(FAMILIES, "odd", Family(lambda k, options: cell()))
    with pytest.raises(UserError, match=f"Odd.{message}"):
        layers.build("odd", I, H, 1)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda h, c: h, r"a tensor \(2, 4\); it must return the new h and c, both of shape"),
        (lambda h, c: (h, None), r"a tensor \(2, 4\) and None; it must"),
        (lambda h, c: (h, c.mean(1, True)), r"a tensor \(2, 4\) and a tensor \(2, 1\); it must"),
        (lambda h, c: (h.mean(0), c), r"a tensor \(4,\) and a tensor \(2, 4\); it must"),
        (lambda h, c: None, "None; it must"),
    ],
)
def test_a_step_that_returns_something_else_is_refused(monkeypatch, result, message):
    """PyTorch would unpack h of a batch of two, and broadcast other shapes."""

    class Other(Cell):
        def step(self, gx, gh, h, c, **unused):
            return result(*LSTMCell().step(gx, gh, h, c))

    monkeypatch.setitem(FAMILIES, "other", Family(lambda k, options: Other()))
    layer = layers.build("other", 3, 4, 1)
    decoder_layer = DecoderLayer(Other(), *layers.build("other", 8, 4, 1).layer_parameters(0)[:3])
    state, source = torch.zeros(1, 2, 4), torch.zeros(2, 5, 4)
    inputs = DecoderInputs(
        [decoder_layer], torch.zeros(6, 2, 4), state, state, source, source, None, torch.ones(4, 8)
    )
    for run in (
        lambda: layer(torch.zeros(6, 2, 3)),
        lambda: layer.step(torch.zeros(2, 3), None),
        lambda: decoding.run("reference", inputs),
    ):
        with pytest.raises(UserError, match=f"Other.step returns {message}"):
            run()


@every_case
def test_iterated_step_equals_every_engine(case):
    """Calling ``Cell.step`` in a loop gives what each engine computes."""
    layer = case.random(num_layers=1)
    cell, (w_ih, w_hh, bias, params) = layer.cells[0], layer.layer_parameters(0)
    x = rand(T, B, I)
    h = c = torch.zeros(B, H, dtype=torch.float64)
    hs = []
    for t in range(T):
        reads = {"lower_c": None, "mixture": layer.mixture_weights(0, "", x[t], None)}
        gx, gh = x[t] @ w_ih.t() + bias, h @ w_hh.t()
        h, c = cell.step(gx, gh, h, c, **reads, params=params)
        hs.append(h)
    expected = (torch.stack(hs), h[None], *(() if c is None else (c[None],)))
    for engine in ENGINES:
        layer.engine = engine
        assert_close(flat(layer(x)), expected)


def test_engines_run_cells_without_a_layer():
    gx, weight, zero = rand(T, B, 4 * H), rand(4 * H, H), torch.zeros(B, H, dtype=torch.float64)
    for engine in ENGINES:
        hs, cs, h_n, c_n = recurrence.run(engine, LSTMCell(), gx.clone(), weight, zero, zero)
        assert hs.shape == cs.shape == (T, B, H)
        assert_close([h_n, c_n], [hs[-1], cs[-1]])

"""What only the compiled engine has. test_engines.py compares its results with the reference."""

import pytest
import torch
from helpers import (
    CASES,
    DOUBLE,
    FAMILIES,
    SINGLE,
    assert_close,
    every_case,
    every_family,
    gradients,
    rand,
    side_input,
    three_threads,
    weighted,
)

from fairseq_casrnn import cells, recurrence
from fairseq_casrnn.cells.cas_lstm import CASCell
from fairseq_casrnn.cells.stacked_lstm import LSTMCell
from fairseq_casrnn.layers import CASLSTM
from fairseq_casrnn.recurrence import InputProduct, cpp, eager
from fairseq_casrnn.recurrence.inputs import LoopTensors
from fairseq_casrnn.recurrence.ragged import PaddedLayout

compiled = pytest.mark.skipif(
    "cpp" not in recurrence.installed(), reason="engine cpp is not compiled"
)
PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, DOUBLE), (torch.float32, SINGLE)], ids=["f64", "f32"]
)


def layer_of(case, steps, batch, size, dtype, inputs=3):
    """Return the top cell of two, and x, weight_ih, bias, weight_hh, h0, c0, side, *params."""
    cell = case.layer().cells[1]
    side = None
    if cell.num_cells:
        side = rand(steps, batch, cell.num_cells, seed=6).softmax(-1)
    elif cell.lower_cell:
        side = rand(steps, batch, size, seed=6)
    tensors = [
        rand(steps, batch, inputs, seed=1),
        rand(cell.ih_blocks * size, inputs, seed=2),
        rand(cell.ih_blocks * size, seed=3),
        rand(cell.hh_blocks * size, size, seed=4) / size**0.5,
        rand(batch, size, seed=5),
        rand(batch, size, seed=7) if cell.has_cell else None,
        side,
    ]
    for i, (_, rows) in enumerate(cell.params):
        tensors.append(rand(*((size,) if rows is None else (rows, size)), seed=8 + i))
    return cell, [None if t is None else t.to(dtype).requires_grad_() for t in tensors]


def run_only(engine, cell, tensors, last=None):
    """Return the outputs, leaving the product of the input to the engine."""
    x, w_ih, bias, w_hh, h0, c0, side, *params = tensors
    gx = InputProduct(x, w_ih, bias)
    reads = side_input(cell, side) | {"params": tuple(params)}
    result = recurrence.run(engine, cell, gx, w_hh, h0, c0, last=last, **reads)
    return [t for t in result if t is not None]


def run(engine, cell, tensors, last=None):
    """Return the outputs and all gradients."""
    result = run_only(engine, cell, tensors, last)
    return result, gradients(weighted(result), [t for t in tensors if t is not None])


@compiled
@every_family
@PRECISIONS
@pytest.mark.parametrize("size", [1, 5, 13, 16, 33])
@pytest.mark.parametrize("batch", [1, 3, 10])
def test_sizes_that_are_no_multiple_of_a_vector(case, dtype, tolerance, size, batch):
    cell, tensors = layer_of(case, 4, batch, size, dtype)
    last = torch.arange(batch) % 4
    for ours, theirs in zip(*(run(e, cell, tensors, last) for e in ("cpp", "eager")), strict=True):
        assert_close(ours, theirs, tolerance)


@compiled
@every_family
def test_gradients_of_the_input_product(case):
    """They are the same in a second backward, and if only one tensor needs a gradient."""
    cell, tensors = layer_of(case, 4, 3, 5, torch.float64)
    last = torch.tensor([3, 0, 2])
    result = run_only("cpp", cell, tensors, last)
    leaves = [t for t in tensors if t is not None]
    first, second = (
        torch.autograd.grad(weighted(result), leaves, retain_graph=True) for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    for wanted, expected in zip(leaves, first, strict=True):
        some = [t if t is None or t is wanted else t.detach() for t in tensors]
        (grad,) = torch.autograd.grad(weighted(run_only("cpp", cell, some, last)), wanted)
        assert_close([grad], [expected])
    with torch.inference_mode():
        assert_close(run_only("cpp", cell, tensors, last), [t.detach() for t in result])


@compiled
@every_case
@PRECISIONS
def test_many_steps_of_large_products(case, dtype, tolerance):
    """The matrix library multiplies, and the input has more than one block of steps."""
    steps, batch, size = 70, 16, 65
    cell, tensors = layer_of(case, steps, batch, size, dtype)
    with torch.no_grad():
        tensors[1] *= 0.3
        tensors[3] *= 0.5  # otherwise the steps amplify the library's rounding errors
    (ours, d_ours), (theirs, d_theirs) = (run(e, cell, tensors) for e in ("cpp", "eager"))
    assert_close(ours, theirs, tolerance)
    assert_close(d_ours, d_theirs, {"rtol": tolerance["rtol"], "atol": 100 * tolerance["atol"]})
    with torch.no_grad():  # then each block of gates overwrites the last
        assert_close(run_only("cpp", cell, tensors), [t.detach() for t in theirs], tolerance)


@compiled
@pytest.mark.parametrize("which", ["weight_ih", "weight_hh", "both"])
def test_weights_without_a_dense_dimension(which):
    """Weights are slices of larger ones, and products are large enough for fast kernels."""
    case = next(c for c in FAMILIES if c.name == "cas_lstm")
    cell, tensors = layer_of(case, 6, 40, 64, torch.float32, inputs=64)
    with torch.no_grad():
        tensors[1] *= 0.1
    (ours, d_ours) = run("eager", cell, tensors)
    for i in {"weight_ih": [1], "weight_hh": [3], "both": [1, 3]}[which]:
        tensors[i] = torch.stack([tensors[i]] * 2, -1)[..., 0].detach().requires_grad_()
        assert 1 not in tensors[i].stride()
    (theirs, d_theirs) = run("cpp", cell, tensors)
    assert_close(theirs, ours, SINGLE)
    assert_close(d_theirs, d_ours, {"rtol": 1e-4, "atol": 1e-3})


@compiled
@every_case
@PRECISIONS
def test_rows_are_divided_among_threads(case, dtype, tolerance):
    """The step is so large that each thread gets rows of its own."""
    cell, tensors = layer_of(case, 5, 67, 96, dtype)
    theirs, d_theirs = run("eager", cell, tensors)
    with three_threads():
        ours, d_ours = run("cpp", cell, tensors)
    assert_close(ours, theirs, tolerance)
    assert_close(d_ours, d_theirs, {"rtol": tolerance["rtol"], "atol": 100 * tolerance["atol"]})


@every_case
def test_one_step_repeated_equals_a_sequence(case):
    cell, tensors = layer_of(case, 6, 3, 5, torch.float64, inputs=7)
    x, w_ih, bias, w_hh, h, c, side, *params = tensors
    reads = side_input(cell, side) | {"params": tuple(params)}
    gx = InputProduct(x, w_ih, bias)
    hs, cs, *_ = recurrence.run("reference", cell, gx, w_hh, h, c, **reads)
    for t in range(x.size(0)):
        reads |= side_input(cell, None if side is None else side[t])
        h, c = recurrence.one_step(cell, x[t], w_ih, bias, w_hh, h, c, **reads)
        assert_close([h], [hs[t]])
        assert (c is None) == (cs is None)
        if c is not None:
            assert_close([c], [cs[t]])


def activations(a):
    """Return the compiled LSTM's tanh(a) and σ(a), from c = i ⊙ g with the other factor 1."""
    a = a.view(1, -1, 1)
    big, none = torch.full_like(a, 40.0), torch.full_like(a, -40.0)
    zero, no_weight = torch.zeros_like(a[0]), a.new_zeros(4, 1)
    return [
        recurrence.run("cpp", LSTMCell(), torch.cat(gates, -1), no_weight, zero, zero)[1].flatten()
        for gates in ((big, none, a, big), (a, none, big, big))
    ]


@compiled
def test_accuracy_of_activations():
    near = torch.logspace(-20, 0, 500)
    a = torch.cat([torch.linspace(-30, 30, 6001), near, -near])
    exact = [torch.tanh(a.double()), torch.sigmoid(a.double())]
    for ours, true in zip(activations(a), exact, strict=True):
        error = (ours.double() - true).abs()
        assert error.max() < 3e-7
        assert (error / true.abs().clamp(min=1e-30)).max() < 1e-6  # also relative to values near 0


@compiled
def test_activations_of_extreme_values():
    a = torch.tensor([-1e30, -1e4, -100.0, 100.0, 1e4, 1e30, -float("inf"), float("inf")])
    tanh, sigmoid = activations(a)
    assert torch.equal(tanh, torch.sign(a))
    assert_close([sigmoid], [(a > 0).float()], {"rtol": 0, "atol": 1e-30})
    for values in activations(torch.tensor([float("nan")])):
        assert values.isnan().all()


@compiled
@every_family
@PRECISIONS
def test_saturated_gates_give_finite_gradients(case, dtype, tolerance):
    cell, tensors = layer_of(case, 5, 4, 9, dtype)
    with torch.no_grad():
        tensors[1] *= 100
        tensors[3] *= 100
    ours, grads = run("cpp", cell, tensors)
    assert all(t.isfinite().all() for t in (*ours, *grads))
    assert_close(ours, run("reference", cell, tensors)[0], tolerance)


@compiled
@every_family
def test_nan_stays_in_its_row(case):
    cell, tensors = layer_of(case, 5, 4, 9, torch.float32)
    clean, _ = run("cpp", cell, tensors)
    with torch.no_grad():
        tensors[0][2, 1] = float("nan")
    (hs, *_), _ = run("cpp", cell, tensors)
    assert hs[2:, 1].isnan().all()
    others = [0, 2, 3]
    assert_close(
        [hs[:, others], hs[:2]], [clean[0][:, others], clean[0][:2]], {"rtol": 0, "atol": 0}
    )


@compiled
@pytest.mark.parametrize("which", range(7))
def test_wrong_shapes_are_errors(which):
    case = next(c for c in FAMILIES if c.name == "cas_lstm")
    cell, tensors = layer_of(case, 5, 4, 9, torch.float32)
    if which == 0:  # a shorter x no longer fits the cell states below
        tensors[0] = tensors[0][:-1]
    else:
        tensors[which] = tensors[which][..., :-1]
    with pytest.raises(RuntimeError, match=r"has shape .* expected"):
        run("cpp", cell, tensors)


@every_family
@pytest.mark.parametrize("engine", recurrence.installed())
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_autocast_keeps_states_in_single_precision(case, engine, inside):
    cell, tensors = layer_of(case, 6, 3, 5, torch.float32)
    expected, d_expected = run(engine, cell, tensors)
    tensors[0] = (
        tensors[0].detach().bfloat16().requires_grad_()
    )  # as the output of another module under autocast
    with torch.autocast("cpu", torch.bfloat16):
        result = run_only(engine, cell, tensors)
    assert all(t.dtype == torch.float32 for t in result)
    with torch.autocast(
        "cpu", torch.bfloat16, enabled=inside
    ):  # backward may be called inside or outside
        grads = gradients(weighted(result), [t for t in tensors if t is not None])
    assert_close(result, expected, {"rtol": 0.1, "atol": 0.1})
    assert_close([g.float() for g in grads], d_expected, {"rtol": 0.2, "atol": 0.5})


class PlusOne(LSTMCell):
    """An LSTM whose output is larger by one."""

    def step(self, *args, **reads):
        h, c = super().step(*args, **reads)
        return h + 1, c

    def forward_(self, gates, h_prev, c_prev, h, c, **reads):
        super().forward_(gates, h_prev, c_prev, h, c, **reads)
        h.add_(1)

    def backward_(self, *args, **reads):
        return super().backward_(*args, **reads)


@pytest.fixture
def eager_runs(monkeypatch):
    """Records the runs that ``cpp`` leaves to ``eager``."""
    runs, original = [], eager.run

    def spy(*args):
        runs.append(args)
        return original(*args)

    monkeypatch.setattr(eager, "run", spy)
    return runs


@compiled
def test_other_dtypes_run_on_eager(eager_runs):
    layer, x = CASLSTM(3, 5, engine="cpp").bfloat16(), rand(4, 2, 3, dtype=torch.bfloat16)
    output, _ = layer(x)
    assert len(eager_runs) == 2
    assert output.dtype == torch.bfloat16
    output.sum().backward()
    expected, _ = layer.float()(x.float())
    assert len(eager_runs) == 2
    assert_close([output.float()], [expected], {"rtol": 0.05, "atol": 0.02})


@compiled
def test_empty_batches_do_not_reach_the_loop():
    cell, gx = LSTMCell(), InputProduct(rand(3, 0, 3), rand(16, 3), rand(16))
    hs, *_ = recurrence.run("cpp", cell, gx, rand(16, 4), rand(0, 4), rand(0, 4))
    assert hs.shape == (3, 0, 4)


@compiled
def test_the_compiled_loop_refuses_an_empty_batch():
    """The loop divides by the batch size."""
    state = rand(0, 4)
    inputs = rand(3, 0, 3), rand(16, 3), rand(16)
    tensors = LoopTensors(None, *inputs, rand(16, 4), state, state, side=None)
    with pytest.raises(RuntimeError, match="no step or no sequence"):
        cpp.forward(LSTMCell(), PaddedLayout(3, 0), tensors, (), keep=False)


@pytest.mark.parametrize("which", range(4), ids=["x", "h", "c", "weight"])
def test_negated_views_run_on_eager(eager_runs, which):
    """In views such as ``tensor.conj().imag`` a bit says that all values are to be negated."""
    tensors = [rand(3, 2, 3), rand(2, 4), rand(2, 4), rand(16, 3)]
    found = []
    for view in (False, True):
        parts = list(tensors)
        parts[which] = torch._neg_view(-parts[which]) if view else parts[which]
        x, h, c, weight = parts
        gx = InputProduct(x, weight, torch.zeros(16, dtype=x.dtype))
        found.append(recurrence.run("cpp", LSTMCell(), gx, rand(16, 4, seed=3), h, c)[0])
    assert len(eager_runs) == 1
    assert_close([found[1]], [found[0]])


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (torch.ones(2, dtype=torch.float64), "the tensors are of several dtypes"),
        (torch.ones(2, device="meta"), "it runs on CPU tensors, one is on meta"),
        (torch.ones(0, 2), "a tensor is empty"),
        (
            torch._neg_view(torch.ones(2)),
            "a tensor has its negative bit set (see torch.Tensor.is_neg)",
        ),
        (None, None),
    ],
    ids=["dtype", "device", "empty", "negated", "none"],
)
def test_reasons_against_tensors(other, reason):
    assert cpp.why_not(LSTMCell(), torch.float32, torch.ones(2), other) == reason


@compiled
def test_a_subclass_of_a_cell_runs_on_eager(eager_runs):
    gx, weight, zero = rand(4, 2, 20), rand(20, 5), rand(2, 5)
    ours, theirs = (
        recurrence.run(e, PlusOne(), gx.clone(), weight, zero, zero) for e in ("cpp", "reference")
    )
    assert eager_runs
    assert_close(ours, theirs)


def test_kernels_are_listed_with_their_family():
    """A bottom layer may also be a plain LSTM with the LSTM's kernel."""
    for case in CASES:
        bottom, above = (cell.kernel for cell in case.layer().cells)
        kernels = cells.FAMILIES[case.name].kernels
        assert above in (kernels or (None,))
        assert bottom in (*kernels, "stacked_lstm", None)
    used = {cell.kernel for case in CASES for cell in case.layer().cells}
    assert used - {None} == {kernel for row in cells.FAMILIES.values() for kernel in row.kernels}


def test_kernels_are_not_inherited():
    class OwnCAS(CASCell):
        pass

    assert (CASCell("trainable").kernel, OwnCAS("trainable").kernel) == ("cas_lstm_trained", None)
    assert OwnCAS().is_fused()

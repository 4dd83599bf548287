"""Mixtures with hard routing, of which the compiled engine computes only the chosen cells."""

import pytest
import torch
from helpers import DOUBLE, SINGLE, assert_close, rand, three_threads

from fairseq_casrnn import recurrence
from fairseq_casrnn.cells.second_order_lstm import SecondOrderCell
from fairseq_casrnn.layers import SecondOrderLSTM
from fairseq_casrnn.recurrence import HardRouting, InputProduct, cpp
from fairseq_casrnn.recurrence.inputs import LayerInputs

pytestmark = pytest.mark.skipif(
    "cpp" not in recurrence.installed(), reason="engine cpp is not compiled"
)


def mixture(cells, dtype=torch.float64, steps=5, batch=4, size=6):
    """Return a mixture of three cells: the cell, its inputs without gradients, and the routing."""
    cell = SecondOrderCell(3)
    x, h0, c0 = rand(steps, batch, 3, seed=1), rand(batch, size, seed=2), rand(batch, size, seed=3)
    w_ih, bias = rand(12 * size, 3, seed=4), rand(12 * size, seed=5)
    w_hh = rand(12 * size, size, seed=6) / size**0.5
    x, w_ih, bias, w_hh, h0, c0 = (t.to(dtype) for t in (x, w_ih, bias, w_hh, h0, c0))
    return cell, InputProduct(x, w_ih, bias), w_hh, h0, c0, HardRouting(cells, 3)


CHOICES = {
    "any": torch.tensor([[0, 2, 1, 2], [2, 2, 2, 2], [1, 0, 2, 1], [0, 0, 1, 1], [2, 1, 0, 0]]),
    "never the first": torch.tensor([[1, 2, 2, 1]] * 5),
    "all the last": torch.full((5, 4), 2),
}


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, DOUBLE), (torch.float32, SINGLE)], ids=["f64", "f32"]
)
@pytest.mark.parametrize("cells", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("last", [None, torch.tensor([4, 0, 2, 3])], ids=["whole", "padded"])
def test_chosen_cells_equal_a_mixture_with_one_hot_weights(
    monkeypatch, dtype, tolerance, cells, last
):
    monkeypatch.setattr(cpp, "ROUTED_WEIGHTS", 0)
    cell, gx, *rest, choice = mixture(cells, dtype)
    assert cpp.why_not_routed(LayerInputs(cell, gx, *rest)) is None
    found = recurrence.run("cpp", cell, gx, *rest, mixture=choice, last=last)
    weights = choice.weights(dtype)
    expected = recurrence.run("reference", cell, gx, *rest, mixture=weights, last=last)
    assert_close(found, expected, tolerance)


@pytest.mark.parametrize("size", [6, 150], ids=["small", "panels"])
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (9, 1), (9, 300), (1030, 1), (2, 1100)])
def test_other_sizes(monkeypatch, size, steps, batch):
    """One row, one step, or more inputs than are multiplied at once."""
    monkeypatch.setattr(cpp, "ROUTED_WEIGHTS", 0)
    cells = torch.randint(3, (steps, batch), generator=torch.Generator().manual_seed(1))
    cell, gx, *rest, choice = mixture(cells, torch.float32, steps, batch, size)
    found = recurrence.run("cpp", cell, gx, *rest, mixture=choice)
    expected = recurrence.run("eager", cell, gx, *rest, mixture=choice)
    assert_close(found, expected, SINGLE)


@pytest.mark.parametrize("last", [None, torch.arange(67) % 5], ids=["whole", "padded"])
def test_rows_are_divided_among_threads(monkeypatch, last):
    """The step is so large that each thread gets rows of its own."""
    monkeypatch.setattr(cpp, "ROUTED_WEIGHTS", 0)
    cells = torch.randint(3, (5, 67), generator=torch.Generator().manual_seed(1))
    cell, gx, *rest, choice = mixture(cells, batch=67, size=96)
    assert (
        67 * rest[0].size(1) * 4 > 3 * 2**13
    )  # elements of a step: more than the minimum of three threads
    with three_threads():
        found = recurrence.run("cpp", cell, gx, *rest, mixture=choice, last=last)
    expected = recurrence.run("eager", cell, gx, *rest, mixture=choice, last=last)
    assert_close(found, expected)


def test_cells_that_are_not_chosen_are_not_computed(monkeypatch):
    """NaN in their weights does not reach the output."""
    monkeypatch.setattr(cpp, "ROUTED_WEIGHTS", 0)
    cell, gx, w_hh, *states, choice = mixture(CHOICES["never the first"])
    w_hh[:24] = float("nan")
    hs, *_ = recurrence.run("cpp", cell, gx, w_hh, *states, mixture=choice)
    assert not hs.isnan().any()


@pytest.mark.parametrize("wrong", [-1, 3, 10**7])
def test_invalid_choices_are_refused(monkeypatch, wrong):
    """A table of cells read from a file may contain them."""
    monkeypatch.setattr(cpp, "ROUTED_WEIGHTS", 0)
    cells = CHOICES["any"].clone()
    cells[4, 3] = wrong
    cell, gx, *rest, choice = mixture(cells)
    with pytest.raises(RuntimeError, match="not among the 3"):
        recurrence.run("cpp", cell, gx, *rest, mixture=choice)


@pytest.fixture
def never_routed(monkeypatch):
    """Fail if only the chosen cells are computed."""
    monkeypatch.setattr(cpp, "ROUTED_WEIGHTS", 0)
    monkeypatch.setattr(cpp, "run_routed", None)


@pytest.mark.parametrize("part", ["x", "weight", "bias", "weight_hh", "h0", "c0"])
def test_no_routing_with_gradients(never_routed, part):
    cell, gx, *rest, choice = mixture(CHOICES["any"])
    parts = {**vars(gx), **dict(zip(("weight_hh", "h0", "c0"), rest, strict=True))}
    parts[part].requires_grad_()
    grads = []
    for weights in (choice, choice.weights(torch.float64)):
        hs, *_ = recurrence.run("cpp", cell, gx, *rest, mixture=weights)
        grads.append(torch.autograd.grad(hs.square().sum(), parts[part])[0])
    assert grads[0].any()
    assert torch.equal(*grads)


class Doubled(SecondOrderCell):
    """A mixture whose output is doubled."""

    def step(self, *args, **reads):
        h, c = super().step(*args, **reads)
        return 2 * h, c

    def forward_(self, gates, h_prev, c_prev, h, c, **reads):
        super().forward_(gates, h_prev, c_prev, h, c, **reads)
        h.mul_(2)

    def backward_(self, dh, *args, **reads):
        return super().backward_(2 * dh, *args, **reads)


def test_no_routing_of_a_subclass(never_routed):
    _, gx, *rest, choice = mixture(CHOICES["any"])
    found = recurrence.run("cpp", Doubled(3), gx, *rest, mixture=choice)
    assert_close(found, recurrence.run("reference", Doubled(3), gx, *rest, mixture=choice))


def test_no_routing_under_autocast(never_routed):
    cell, gx, *rest, choice = mixture(CHOICES["any"], torch.float32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        recurrence.run("cpp", cell, gx, *rest, mixture=choice)


def test_no_routing_of_small_mixtures(monkeypatch):
    """Sorting their rows would take longer than it saves."""
    cell, gx, *rest, choice = mixture(CHOICES["any"])
    monkeypatch.setattr(cpp, "run_routed", None)
    recurrence.run("cpp", cell, gx, *rest, mixture=choice)


def test_layers_in_eval_are_routed(monkeypatch):
    calls = []
    monkeypatch.setattr(cpp, "ROUTED_WEIGHTS", 0)
    run_routed = cpp.run_routed
    monkeypatch.setattr(cpp, "run_routed", lambda *a: calls.append(1) or run_routed(*a))
    layer = SecondOrderLSTM(3, 6, 2, num_cells=3, bidirectional=True, engine="cpp").eval()
    x, lengths = rand(5, 4, 3).float(), torch.tensor([5, 1, 3, 4])
    with torch.no_grad():
        found = layer(x, lengths=lengths)[0]
    assert len(calls) == 4
    expected = layer(x, lengths=lengths)[0]
    assert len(calls) == 4  # with gradients, all cells are computed
    assert_close([found], [expected], SINGLE)

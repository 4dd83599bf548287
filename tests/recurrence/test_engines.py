"""Every engine compared with ``reference`` in ``recurrence.run``: one layer, one direction."""

import math
import re
from itertools import combinations

import pytest
import torch
from helpers import (
    CASES,
    FAMILIES,
    LENGTHS,
    SINGLE,
    B,
    H,
    T,
    assert_close,
    every_other,
    gradients,
    rand,
    side_input,
    weighted,
)

from fairseq_casrnn import recurrence
from fairseq_casrnn.errors import UserError

pytestmark = pytest.mark.sampled

LAST = torch.tensor(LENGTHS) - 1
every_cell = pytest.mark.parametrize(
    ("case", "k"),
    [
        pytest.param(case, k, id=f"{case}-l{k}")
        for case in CASES
        for k in (0, 1)
        # One layer is enough if all are alike; otherwise layer 0 does not depend on options.
        if (case in FAMILIES or k == 1 if case.reads_lower_cell else k == 0)
    ],
)
# Cells that define only a step run under autograd, which saves what it needs.
every_fused_cell = pytest.mark.parametrize(
    ("case", "k"),
    [p for p in every_cell.args[1] if p.values[0].layer().cells[p.values[1]].is_fused()],
)
every_last = pytest.mark.parametrize("last", [None, LAST], ids=["full", "lengths"])


def leaves_of(case, k, dtype=torch.float64, steps=T, batch=B, size=H):
    """Return the cell of layer k, and random gx, weight_hh, h0, c0, side input and parameters."""
    cell = case.layer().cells[k]
    side = rand(steps, batch, cell.num_cells or size, seed=14)
    if cell.num_cells:
        side = side.softmax(-1)
    leaves = [
        rand(steps, batch, cell.ih_blocks * size, seed=10),
        rand(cell.hh_blocks * size, size, seed=11) / math.sqrt(size),
        rand(batch, size, seed=12),
        rand(batch, size, seed=13) if cell.has_cell else None,
        side if cell.num_cells or cell.lower_cell else None,
    ]
    for i, (_, rows) in enumerate(cell.params):
        leaves.append(rand(*((rows, size) if rows else (size,)), seed=20 + i))
    return cell, [None if t is None else t.to(dtype).requires_grad_() for t in leaves]


def present(tensors):
    return [t for t in tensors if t is not None]


def run(engine, cell, leaves, last=LAST, layout=lambda t: t):
    """Return the outputs that are not None. gx is a new tensor, which the engine may overwrite."""
    gx, *rest = leaves
    weight_hh, h0, c0, side, *params = (None if t is None else layout(t) for t in rest)
    gx = layout(gx * 1)
    reads = side_input(cell, side) | {"params": tuple(params)}
    result = recurrence.run(engine, cell, gx, weight_hh, h0, c0, last=last, **reads)
    return present(result)


def assert_same(engine, cell, leaves, tolerance=None, chosen=None, **kwargs):
    """Compare the outputs, and the gradients of all or of the ``chosen`` outputs."""
    tolerance = {} if tolerance is None else {"tolerance": tolerance}
    ours, theirs = (run(name, cell, leaves, **kwargs) for name in (engine, "reference"))
    assert_close(ours, theirs, **tolerance)
    grads = []
    for result in (ours, theirs):
        part = result if chosen is None else [result[i] for i in chosen]
        grads.append(gradients(weighted(part), present(leaves)))
    assert_close(*grads, **tolerance)


@every_cell
@every_other
@every_last
def test_agrees_with_reference(case, k, engine, last):
    cell, leaves = leaves_of(case, k)
    assert len(run(engine, cell, leaves, last)) == (4 if cell.has_cell else 2)
    assert_same(engine, cell, leaves, last=last)


@every_cell
@every_other
def test_agrees_in_single_precision(case, k, engine):
    cell, leaves = leaves_of(case, k, torch.float32)
    assert_same(engine, cell, leaves, tolerance=SINGLE)


@every_cell
@every_other
@every_last
def test_gradients_of_some_outputs(case, k, engine, last):
    cell, leaves = leaves_of(case, k)
    count = 4 if cell.has_cell else 2
    for size in range(1, count):
        for chosen in combinations(range(count), size):
            assert_same(engine, cell, leaves, last=last, chosen=chosen)


@pytest.mark.parametrize(
    ("case", "k"), [pytest.param(c, 1, id=str(c)) for c in FAMILIES + CASES[-1:]]
)
@every_other
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_sizes(case, k, engine, dtype):
    """Sizes that are no multiple of a vector, and rows divided among threads."""
    for steps, batch, size in ((2, 1, 1), (3, 2, 5), (2, 3, 19), (3, 37, 40)):
        cell, leaves = leaves_of(case, k, dtype, steps, batch, size)
        last = torch.arange(batch) % steps
        tolerance = SINGLE if dtype == torch.float32 else None
        assert_same(engine, cell, leaves, tolerance=tolerance, last=last)


@every_cell
@every_other
def test_one_step(case, k, engine):
    cell, leaves = leaves_of(case, k, steps=1)
    for last in (None, torch.zeros(B, dtype=torch.long)):
        assert_same(engine, cell, leaves, last=last)


def strided(t):
    """Return a copy of ``t`` whose axes are in reverse order in memory."""
    return t.transpose(0, -1).contiguous().transpose(0, -1)


def apart(t):
    """Return a copy of ``t`` that is every other element of a larger tensor."""
    return torch.stack([t, torch.full_like(t, float("nan"))], dim=-1)[..., 0]


@every_cell
@every_other
@pytest.mark.parametrize("layout", [strided, apart])
def test_memory_layout_has_no_effect(case, k, engine, layout):
    cell, leaves = leaves_of(case, k)
    assert not layout(leaves[0]).is_contiguous()
    assert_same(engine, cell, leaves, layout=layout)


@every_cell
@every_other
def test_expanded_states(case, k, engine):
    """One state is expanded over all sequences, and one side input over all steps."""
    cell, (gx, weight, h0, c0, side, *params) = leaves_of(case, k)
    h0 = h0[:1].detach().requires_grad_()
    c0 = None if c0 is None else c0[:1].detach().requires_grad_()
    side = None if side is None else side[:1].detach().requires_grad_()
    leaves = present([gx, weight, h0, c0, side, *params])
    shared = [
        gx,
        weight,
        h0.expand(B, H),
        None if c0 is None else c0.expand(B, H),
        None if side is None else side.expand(T, -1, -1),
        *params,
    ]
    ours, theirs = (run(name, cell, shared) for name in (engine, "reference"))
    assert_close(ours, theirs)
    assert_close(*(gradients(weighted(r), leaves) for r in (ours, theirs)))


@every_cell
@every_other
def test_strided_incoming_gradients(case, k, engine):
    """The incoming gradient may be expanded or transposed."""
    cell, leaves = leaves_of(case, k)
    grads = []
    for name in (engine, "reference"):
        result = run(name, cell, leaves)
        loss = sum(
            t.sum() + (t.transpose(0, 1) * rand(*t.transpose(0, 1).shape)).sum() for t in result
        )
        grads.append(gradients(loss, present(leaves)))
        grads.append(gradients(sum(t.sum() for t in run(name, cell, leaves)), present(leaves)))
    assert_close(grads[0] + grads[1], grads[2] + grads[3])


@every_cell
@every_other
def test_negated_incoming_gradients(case, k, engine):
    """As of ``output.conj().imag``: a bit says that all values are to be negated."""
    cell, leaves = leaves_of(case, k)
    result = run(engine, cell, leaves)
    grads = [rand(*t.shape, seed=7) for t in result]
    expected = torch.autograd.grad(result, present(leaves), grads, retain_graph=True)
    negated = [torch._neg_view(-grad) for grad in grads]
    assert_close(torch.autograd.grad(result, present(leaves), negated), expected)


@every_cell
@every_other
def test_expanded_input(case, k, engine):
    """gx is one expanded row, which must not be overwritten."""
    cell, leaves = leaves_of(case, k)
    row = leaves[0].detach()[:1, :1]
    leaves[0] = row.expand(T, B, -1)
    *tensors, side = leaves[:5]
    reads = side_input(cell, side) | {"params": tuple(leaves[5:])}
    ours, theirs = (recurrence.run(name, cell, *tensors, **reads) for name in (engine, "reference"))
    assert_close(present(ours), present(theirs))


@every_cell
@every_other
@every_last
def test_inputs_are_not_modified(case, k, engine, last):
    cell, leaves = leaves_of(case, k)
    before = [t.detach().clone() for t in present(leaves)]
    weights = [rand(*t.shape, seed=5) for t in run(engine, cell, leaves, last)]
    kept = [w.clone() for w in weights]
    result = run(engine, cell, leaves, last)
    torch.autograd.backward(result, weights)
    assert_close([t.detach() for t in present(leaves)], before)
    assert_close(weights, kept)


@every_cell
@every_other
def test_backward_twice(case, k, engine):
    """With retain_graph, a second backward gives the same gradients."""
    cell, leaves = leaves_of(case, k)
    ours, theirs = (run(name, cell, leaves) for name in (engine, "reference"))
    for seed in (3, 3, 40):
        passes = []
        for result in (ours, theirs):
            loss = weighted(result, seed)
            passes.append(torch.autograd.grad(loss, present(leaves), retain_graph=True))
        assert_close(*passes)
    torch.autograd.grad(weighted(ours), present(leaves))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(weighted(ours), present(leaves))


@every_cell
@every_other
def test_used_twice_in_one_graph(case, k, engine):
    """One run starts from the final state of another that shares its parameters."""
    cell, leaves = leaves_of(case, k)
    grads = []
    for name in (engine, "reference"):
        *_, h_n, c_n = (
            run(name, cell, leaves) if cell.has_cell else (*run(name, cell, leaves), None)
        )
        again = [leaves[0], leaves[1], h_n, c_n, *leaves[4:]]
        grads.append(gradients(weighted(run(name, cell, again)), present(leaves)))
    assert_close(*grads)


@every_cell
@every_other
def test_frozen_inputs(case, k, engine):
    """Each input may be the only one that needs a gradient."""
    cell, leaves = leaves_of(case, k)
    everything = gradients(weighted(run(engine, cell, leaves)), present(leaves))
    for wanted, expected in zip(present(leaves), everything, strict=True):
        some = [t if t is None or t is wanted else t.detach() for t in leaves]
        (grad,) = gradients(weighted(run(engine, cell, some)), [wanted])
        assert_close([grad], [expected])


@every_cell
@every_other
def test_without_gradients(case, k, engine):
    cell, leaves = leaves_of(case, k)
    expected = [t.detach() for t in run(engine, cell, leaves)]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            result = run(engine, cell, leaves)
        assert not any(t.requires_grad for t in result)
        assert_close([t.clone() for t in result], expected)


@every_fused_cell
@every_other
@pytest.mark.parametrize("which", ["output", "weight"])
def test_changing_what_backward_needs_is_an_error(case, k, engine, which):
    """torch notices that a tensor was changed in place, so gradients are never wrong."""
    cell, leaves = leaves_of(case, k)
    result = run(engine, cell, leaves)
    loss = weighted(result)
    with torch.no_grad():
        (result[0] if which == "output" else leaves[1]).add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@every_cell
@every_other
def test_second_derivatives_are_right_or_refused(case, k, engine):
    cell, leaves = leaves_of(case, k)

    def second(name):
        result = run(name, cell, leaves)
        first = torch.autograd.grad(weighted(result), present(leaves), create_graph=True)
        return gradients(weighted(first, seed=50), present(leaves))

    expected = second("reference")
    try:
        actual = second(engine)
    except (RuntimeError, UserError) as error:
        assert re.search("second derivative|double backward", str(error))  # noqa: PT017
    else:
        assert_close(actual, expected)

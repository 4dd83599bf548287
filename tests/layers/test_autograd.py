"""Autograd through stacks: accumulation, checkpointing, memory, determinism and stability.

The tests of single layers are in tests/recurrence/test_engines.py.
"""

import gc
import weakref

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
    every_case,
    every_engine,
    every_family,
    every_other,
    flat,
    gradients,
    rand,
    rand_state,
    weighted,
)
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.sampled(1)


def setup(case, engine, **kwargs):
    """Return a layer, its arguments, and the leaves whose gradients are compared."""
    layer = case.random(I, H, 3, bidirectional=True, engine=engine, **kwargs)
    x, state = rand(T, B, I).requires_grad_(), rand_state(layer)
    leaves = [x, *(s.requires_grad_() for s in as_tuple(state)), *layer.parameters()]
    return layer, (x, state, LENGTHS), leaves


@every_family
@every_engine
def test_gradients_accumulate(case, engine):
    """Two backward passes, or one pass with the result used twice, double the gradients."""
    layer, arguments, leaves = setup(case, engine)
    weighted(flat(layer(*arguments))).backward()
    once = [leaf.grad.clone() for leaf in leaves]
    weighted(flat(layer(*arguments))).backward()
    assert_close([leaf.grad for leaf in leaves], [2 * g for g in once])
    result = flat(layer(*arguments))
    assert_close(gradients(weighted(result) + weighted(result), leaves), [2 * g for g in once])


@every_family
@every_engine
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(case, engine, reentrant):
    """``torch.utils.checkpoint`` repeats the forward and lets saved tensors be read only once."""
    layer, arguments, leaves = setup(case, engine)
    expected = gradients(weighted(flat(layer(*arguments))), leaves)
    result = checkpoint(lambda *a: flat(layer(*a)), *arguments, use_reentrant=reentrant)
    weighted(result).backward()
    assert all(torch.equal(leaf.grad, grad) for leaf, grad in zip(leaves, expected, strict=True))


@every_family
@every_engine
def test_top_h_n_is_the_last_output(case, engine):
    """This holds for the gradients as well, at each sequence's own end."""
    layer = case.random(I, H, 2, engine=engine)
    x = rand(T, B, I).requires_grad_()
    output, *final = flat(layer(x, None, LENGTHS))
    ends = torch.stack([output[n - 1, b] for b, n in enumerate(LENGTHS)])
    assert torch.equal(final[0][-1], ends)
    leaves = [x, *layer.parameters()]
    from_state = torch.autograd.grad(final[0][-1].sum(), leaves, retain_graph=True)
    assert_close(from_state, torch.autograd.grad(ends.sum(), leaves))


@every_family
@every_engine
def test_transposed_and_expanded_inputs(case, engine):
    """x may be transposed, and states may be expanded from one row."""
    layer = case.random(I, H, 2, engine=engine)
    x = rand(B, T, I).requires_grad_()
    parts = tuple(rand(2, 1, H, seed=i).requires_grad_() for i in range(1 + layer.has_cell))
    wide = tuple(p.expand(2, B, H) for p in parts)
    dense = tuple(p.repeat(1, B, 1) for p in parts)
    results = []
    for value, state in ((x.transpose(0, 1), wide), (x.transpose(0, 1).contiguous(), dense)):
        result = flat(layer(value, state if layer.has_cell else state[0], LENGTHS))
        results.append([*result, *gradients(weighted(result), [x, *parts, *layer.parameters()])])
    assert_close(*results)


@every_family
@every_other
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 3), (4, 1)])
def test_smallest_shapes(case, engine, steps, batch):
    results = []
    for name in (engine, "reference"):
        layer = case.random(1, 1, 2, bidirectional=True, engine=name)
        x = rand(steps, batch, 1).requires_grad_()
        result = flat(layer(x, rand_state(layer, batch)))
        assert result[0].shape == (steps, batch, 2)
        results.append([*result, *gradients(weighted(result), [x, *layer.parameters()])])
    assert_close(*results)


@every_case
@every_engine
def test_float32_training_follows_float64(case, engine):
    """After four steps of SGD, each engine's parameters are close to the float64 reference's."""
    ends = []
    for name, dtype in (("reference", torch.float64), (engine, torch.float32)):
        layer = case.random(dtype=dtype, engine=name)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            output, _ = layer(rand(T, B, I, seed=step, dtype=dtype), None, LENGTHS)
            output.square().mean().backward()
            optimizer.step()
        ends.append([p.detach().double() for p in layer.parameters()])
    assert_close(*ends, SINGLE)


@every_family
@every_engine
@pytest.mark.parametrize("backward", [False, True])
def test_tensors_are_freed_at_once(case, engine, backward):
    """There is no reference cycle: input, output and graph are freed with the last reference."""
    layer = case.random(I, H, 2, bidirectional=True, engine=engine)
    gc.disable()
    try:
        leaf = rand(T, B, I).requires_grad_()
        x = leaf * 1  # referenced only by this name and the graph
        result = flat(layer(x, None, LENGTHS))
        alive = [weakref.ref(t) for t in (x, *result)]
        if backward:
            weighted(result).backward()
        del x, result
        assert [ref() for ref in alive] == [None] * len(alive)
    finally:
        gc.enable()


@every_family
@every_engine
def test_results_are_not_overwritten(case, engine):
    """Neither later calls nor a backward pass change a result or a gradient."""
    layer, arguments, leaves = setup(case, engine)
    result = flat(layer(*arguments))
    before = [t.detach().clone() for t in result]
    grads = torch.autograd.grad(weighted(result), leaves)
    kept = [g.clone() for g in grads]
    other = flat(layer(rand(T, B, I, seed=9), None, None))
    torch.autograd.grad(weighted(other), leaves[-1])
    assert all(torch.equal(a, b) for a, b in zip(result, before, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(grads, kept, strict=True))


@every_family
@every_engine
def test_deterministic(case, engine):
    layer, arguments, leaves = setup(case, engine)
    runs = []
    for _ in range(2):
        result = flat(layer(*arguments))
        runs.append([*result, *torch.autograd.grad(weighted(result), leaves)])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@every_family
@every_engine
def test_saturated_gates_give_finite_gradients(case, engine):
    layer = case.random(I, H, 2, engine=engine, dtype=torch.float32)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(1e3)
    x = rand(T, B, I, dtype=torch.float32).requires_grad_()
    result = flat(layer(1e3 * x, None, LENGTHS))
    grads = gradients(weighted(result), [x, *layer.parameters()])
    assert all(t.isfinite().all() for t in (*result, *grads))

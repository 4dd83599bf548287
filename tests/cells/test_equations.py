"""Each cell computes its paper's equations and their gradients, on every engine."""

import pytest
import torch
from helpers import (
    CASES,
    DOUBLE,
    LENGTHS,
    SINGLE,
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
    rand_state,
    weighted,
)

from cells.unrolled import run_batch

DIRECTIONS = [
    pytest.param(case, bidirectional, id=f"{case}-{bidirectional}")
    for case in CASES
    for bidirectional in case.directions
]


def by_equations(case, layer, x, state, lengths):
    h_0, c_0 = state if layer.has_cell else (state, None)
    P = dict(layer.named_parameters())
    options = {**case.options, "training": layer.training}
    result = run_batch(
        case.name,
        P,
        x,
        (h_0, c_0),
        lengths,
        layer.num_layers,
        layer.hidden_size,
        layer.bidirectional,
        options,
    )
    return tuple(part for part in result if part is not None)


def check(case, layer, tolerance, lengths=LENGTHS):
    dtype = layer.bias_l0.dtype
    x = rand(T, B, I, dtype=dtype).requires_grad_()
    state = rand_state(layer)
    leaves = (x, *(s.requires_grad_() for s in (state if layer.has_cell else (state,))))
    leaves += tuple(layer.parameters())
    names = ["x", "h_0", "c_0"][: 2 + layer.has_cell] + [n for n, _ in layer.named_parameters()]
    ours = flat(layer(x, state, lengths))
    theirs = by_equations(case, layer, x, state, [T] * B if lengths is None else lengths)
    assert_close(ours, theirs, tolerance, ["output", "h_n", "c_n"])
    ours_grads, their_grads = (gradients(weighted(r), leaves) for r in (ours, theirs))
    assert_close(ours_grads, their_grads, tolerance, names)
    return dict(zip(names, ours_grads, strict=True))


@pytest.mark.parametrize(("case", "bidirectional"), DIRECTIONS)
@every_engine
def test_outputs_and_gradients_in_double_precision(case, bidirectional, engine):
    layer = case.random(I, H, 3, bidirectional=bidirectional, engine=engine)
    grads = check(case, layer, DOUBLE)
    # The loss depends on every parameter, except for the attention over a single cell.
    idle = {name for name, grad in grads.items() if not grad.any()}
    assert all(case.options.get("num_cells") == 1 and "attention" in name for name in idle), idle


@pytest.mark.sampled(1)
@every_case
@every_engine
def test_outputs_and_gradients_in_single_precision(case, engine):
    check(case, case.random(dtype=torch.float32, bidirectional=True, engine=engine), SINGLE)


@pytest.mark.sampled(1)
@every_case
@every_engine
def test_without_lengths(case, engine):
    check(case, case.random(engine=engine), DOUBLE, lengths=None)


@pytest.mark.sampled(1)
@every_case
@every_engine
def test_in_eval_mode(case, engine):
    check(case, case.random(engine=engine).eval(), DOUBLE)

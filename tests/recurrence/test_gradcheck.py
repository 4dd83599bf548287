"""Every cell's gradients compared with finite differences on every engine, in float64."""

import pytest
import torch
from helpers import as_tuple, every_case, every_direction, every_engine, flat, rand, rand_state
from torch.autograd import gradcheck

pytestmark = pytest.mark.sampled(1)


def check(layer, steps, batch, lengths, fast):
    """Check all outputs against all inputs: x, the initial state and every parameter."""
    names = [name for name, _ in layer.named_parameters()]
    state = as_tuple(rand_state(layer, batch))
    x = rand(steps, batch, layer.input_size)

    def run(x, *tensors):
        start, parameters = tensors[: len(state)], tensors[len(state) :]
        start = start if layer.has_cell else start[0]
        arguments = (x, start, lengths)
        values = dict(zip(names, parameters, strict=True))
        return flat(torch.func.functional_call(layer, values, arguments))

    inputs = [t.detach().clone().requires_grad_() for t in (x, *state, *layer.parameters())]
    assert gradcheck(run, inputs, fast_mode=fast)


@every_case
@every_engine
def test_every_element(case, engine):
    check(case.random(1, 1, 2, engine=engine), 3, 2, [2, 3], fast=False)


@every_direction
@every_engine
def test_random_directions(case, bidirectional, engine):
    """Check one random direction per tensor, which takes only two evaluations."""
    check(
        case.random(3, 2, 2, bidirectional=bidirectional, engine=engine), 4, 3, [2, 4, 1], fast=True
    )


@every_case
@every_engine
def test_without_lengths(case, engine):
    check(case.random(2, 3, 3, engine=engine), 4, 2, None, fast=True)

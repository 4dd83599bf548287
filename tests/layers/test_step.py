"""``layer.step``, which decoders call, is ``layer.forward`` one token at a time."""

import pytest
import torch
from helpers import (
    B,
    H,
    I,
    T,
    as_tuple,
    assert_close,
    every_case,
    every_engine,
    every_family,
    flat,
    gradients,
    rand,
    rand_state,
    weighted,
)

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import SecondOrderLSTM


def iterate(layer, x, state, **kwargs):
    """Return the outputs of all steps and the last state, as forward does."""
    outputs = []
    for t in range(x.size(0)):
        tokens = {key: value[t] for key, value in kwargs.items()}
        output, state = layer.step(x[t], state, **tokens)
        outputs.append(output)
    return (torch.stack(outputs), *as_tuple(state))


@every_case
@every_engine
@pytest.mark.parametrize("training", [True, False])
def test_steps_equal_forward(case, engine, training):
    layer = case.random(I, H, 3, engine=engine).train(training)
    x, state = rand(T, B, I).requires_grad_(), rand_state(layer)
    leaves = [x, *(s.requires_grad_() for s in as_tuple(state)), *layer.parameters()]
    ours, expected = iterate(layer, x, state), flat(layer(x, state))
    assert_close(ours, expected)
    assert_close(*(gradients(weighted(result), leaves) for result in (ours, expected)))


@every_family
def test_steps_and_forward_continue_each_other(case):
    """Steps may continue from the state of a forward, and a forward from that of a step."""
    layer = case.random(I, H, 2).eval()
    x = rand(T, B, I)
    expected = flat(layer(x))
    _, state = layer(x[:3])
    output, *final = iterate(layer, x[3:], state)
    assert_close([output, *final], [expected[0][3:], *expected[1:]])
    state = None
    for t in range(2):
        _, state = layer.step(x[t], state)
    output, *final = flat(layer(x[2:], state))
    assert_close([output, *final], [expected[0][2:], *expected[1:]])


@every_family
def test_no_state_is_the_zero_state(case):
    layer = case.random(I, H, 2)
    x = rand(B, I)
    assert_close(flat(layer.step(x, None)), flat(layer.step(x, layer.zero_state(B))))


@every_family
def test_reordered_state(case):
    """Beam search permutes the rows of the state and may repeat some."""
    layer = case.random(I, H, 2).eval()
    x = rand(T, B, I)
    order = [2, 0, 0, 1]
    _, state = layer(x)
    parts = tuple(s[:, order] for s in as_tuple(state))
    output, *final = flat(layer.step(rand(4, I, seed=8), parts if layer.has_cell else parts[0]))
    for row, b in enumerate(order):
        alone = tuple(s[:, [b]] for s in as_tuple(state))
        single = layer.step(rand(4, I, seed=8)[[row]], alone if layer.has_cell else alone[0])
        single_output, *single_final = flat(single)
        assert_close([output[[row]]], [single_output])
        assert_close([s[:, [row]] for s in final], single_final)


@every_family
def test_the_given_state_is_not_modified(case):
    layer = case.random(I, H, 2)
    state = rand_state(layer)
    before = [s.clone() for s in as_tuple(state)]
    layer.step(rand(B, I), state)
    assert_close(as_tuple(state), before)


@every_family
def test_dropout_between_the_layers(case):
    """With p = 1, steps equal forward in training and in eval."""
    layer = case.random(I, H, 3, dropout=1.0)
    x, state = rand(1, B, I), rand_state(layer)
    for training in (True, False):
        layer.train(training)
        assert_close(iterate(layer, x, state), flat(layer(x, state)))


def test_routing_by_token():
    layer = SecondOrderLSTM(I, H, 2, 3, routing="assignment", assignment=[2, 0, 1, 1]).double()
    x, state, tokens = rand(T, B, I), rand_state(layer), torch.randint(4, (T, B))
    expected = flat(layer(x, state, tokens=tokens))
    assert_close(iterate(layer, x, state, tokens=tokens), expected)


@pytest.mark.parametrize("bidirectional", [True, "interleaved"])
def test_bidirectional_layers_have_no_steps(bidirectional):
    layer = SecondOrderLSTM(I, H, 2, bidirectional=bidirectional)
    with pytest.raises(UserError, match=r"^a bidirectional stack has no steps: it reads whole"):
        layer.step(rand(B, I), None)

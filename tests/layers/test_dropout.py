"""Dropout acts only on the hidden states that are passed up between layers."""

import pytest
import torch
from helpers import (
    LENGTHS,
    B,
    Case,
    H,
    I,
    T,
    as_tuple,
    assert_close,
    every_case,
    every_direction,
    every_engine,
    flat,
    rand,
    rand_state,
)
from torch import nn

pytestmark = pytest.mark.sampled(1)


def seeded(layer, *arguments, seed=0):
    torch.manual_seed(seed)
    return flat(layer(*arguments))


@every_direction
@every_engine
def test_full_dropout_zeroes_only_the_hidden_input(case, bidirectional, engine):
    """With p = 1 the upper layers read zeros instead of h, but still the cell state below."""
    layer = case.random(I, H, 3, bidirectional=bidirectional, dropout=1.0, engine=engine)
    cut = case.random(I, H, 3, bidirectional=bidirectional, engine=engine)
    with torch.no_grad():
        for name, parameter in cut.named_parameters():
            if name.startswith(("weight_ih", "attention")) and "_l0" not in name:
                parameter.zero_()
    arguments = (rand(T, B, I), rand_state(layer), LENGTHS)
    assert_close(flat(layer(*arguments)), flat(cut(*arguments)))


@every_direction
@every_engine
def test_only_the_hidden_input_is_dropped(case, bidirectional, engine):
    """If weight_ih is 0 above the bottom layer, dropout cannot change anything."""
    layer = case.random(I, H, 3, bidirectional=bidirectional, dropout=0.5, engine=engine)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith(("weight_ih", "attention")) and "_l0" not in name:
                parameter.zero_()
    arguments = (rand(T, B, I), rand_state(layer), LENGTHS)
    expected = flat(layer.eval()(*arguments))
    if case.name == "second_order_lstm":  # in eval its routing is hard
        layer.dropout = 0.0
        expected = flat(layer.train()(*arguments))
        layer.dropout = 0.5
    assert_close(seeded(layer.train(), *arguments), expected)


@every_direction
def test_the_bottom_layer_gets_no_dropout(case, bidirectional):
    layer = case.random(I, H, 3, bidirectional=bidirectional, dropout=0.5)
    arguments = (rand(T, B, I), rand_state(layer), LENGTHS)
    first, second = seeded(layer, *arguments), seeded(layer, *arguments, seed=1)
    for a, b in zip(first[1:], second[1:], strict=True):
        bottom = layer.num_directions
        assert_close([a[:bottom]], [b[:bottom]])
        assert not torch.isclose(a[bottom:], b[bottom:]).flatten(1).all(1).any()
    assert first[0][:2, 1].all(), "the top layer's output is not dropped"


@every_case
def test_reproducible_by_seed(case):
    layer = case.random(I, H, 3, bidirectional=True, dropout=0.5)
    arguments = (rand(T, B, I), None, LENGTHS)
    assert_close(seeded(layer, *arguments), seeded(layer, *arguments))


@every_direction
def test_masks_differ_between_steps_and_sequences(case, bidirectional):
    """All inputs are equal and nothing is recurrent, so outputs differ only by their masks."""
    layer = case.random(I, H, 2, bidirectional=bidirectional, dropout=0.5)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith(("weight_hh", "depth_peephole", "peephole", "bias")):
                parameter.zero_()
    x = torch.ones(20, 1, I, dtype=torch.float64).expand(20, 4, I)
    torch.manual_seed(0)
    output = layer(x)[0]
    for one, other in ((output[:, 0], output[:, 1]), (output[:-1], output[1:])):
        assert ((one - other).abs().amax(-1) > 1e-6).float().mean() > 0.9


@every_case
@pytest.mark.parametrize("depth", [1, 3])
def test_no_dropout_in_eval_or_with_one_layer(case, depth):
    layer = case.random(I, H, depth, bidirectional=True, dropout=0.9)
    plain = case.random(I, H, depth, bidirectional=True)
    arguments = (rand(T, B, I), rand_state(layer), LENGTHS)
    for training in (True, False) if depth == 1 else (False,):
        layer.train(training)
        plain.train(training)
        assert_close(seeded(layer, *arguments), flat(plain(*arguments)))


@every_case
def test_zero_dropout_draws_no_random_numbers(case):
    layer = case.random(I, H, 2, dropout=0.0)
    torch.manual_seed(0)
    layer(rand(T, B, I))
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_full_dropout_equals_torch(bidirectional):
    theirs = nn.LSTM(I, H, 3, bidirectional=bidirectional, dropout=1.0).double()
    ours = Case("stacked_lstm").layer().from_torch_lstm(theirs)
    state = as_tuple(rand_state(ours))
    output, (h_n, c_n) = theirs(rand(T, B, I), state)
    assert_close(flat(ours(rand(T, B, I), state)), (output, h_n, c_n))


def test_retained_at_generation():
    """``--retain-dropout`` keeps dropout between layers active, but not weight dropout."""
    layer = Case("stacked_lstm").random(I, H, 2, dropout=1.0).eval()
    layer.weight_dropout = 1.0
    (x, other), state = rand(2, B, I), rand_state(layer)
    still, still_all = flat(layer.step(x, state)), flat(layer(rand(T, B, I)))
    layer.make_generation_fast_(retain_dropout=True)
    step, changed = flat(layer.step(x, state)), flat(layer.step(other, state))
    assert_close([step[0]], [changed[0]])  # the top layer does not depend on the input
    assert (step[0] - still[0]).abs().max() > 1e-4
    for found, before in ((step, still), (flat(layer(rand(T, B, I))), still_all)):
        assert_close([part[:1] for part in found[1:]], [part[:1] for part in before[1:]])

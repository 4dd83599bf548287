"""Bidirectional stacks: independent directions, or interleaved as in ``torch.nn.LSTM``."""

import pytest
import torch
from helpers import (
    CASES,
    LENGTHS,
    B,
    H,
    I,
    T,
    as_tuple,
    assert_close,
    every_case,
    every_engine,
    flat,
    gradients,
    rand,
    rand_state,
    weighted,
)

DEPTH = 3


def reversed_within(x, lengths):
    """Reverse each sequence within its own length, with zeros at padding."""
    out = torch.zeros_like(x)
    for b, n in enumerate(lengths):
        out[:n, b] = x[:n, b].flip(0)
    return out


def one_direction(case, layer, suffix):
    """Return a unidirectional stack with the parameters of one direction of ``layer``."""
    single = case.random(I, H, DEPTH)
    chosen = {}
    for name, value in layer.state_dict().items():
        if name.endswith("_reverse") == (suffix == "_reverse"):
            chosen[name.removesuffix("_reverse")] = value
    single.load_state_dict(chosen, strict=False)
    return single


@every_case
@every_engine
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
def test_two_independent_stacks(case, engine, lengths):
    """A bidirectional stack equals two stacks, of which one reads each sequence reversed."""
    layer = case.random(I, H, DEPTH, bidirectional=True, engine=engine)
    x, state = rand(T, B, I), as_tuple(rand_state(layer))
    output, final = layer(x, state if layer.has_cell else state[0], lengths)
    each = [T] * B if lengths is None else lengths
    for d, suffix in enumerate(("", "_reverse")):
        single = one_direction(case, layer, suffix)
        part = tuple(s[d::2].contiguous() for s in state)
        start = part if layer.has_cell else part[0]
        read = reversed_within(x, each) if d else x
        alone, alone_final = single(read, start, lengths)
        alone = reversed_within(alone, each) if d else alone
        assert_close([output[..., d * H : (d + 1) * H]], [alone])
        assert_close([s[d::2] for s in as_tuple(final)], as_tuple(alone_final))


@every_case
def test_independent_directions_share_no_gradients(case):
    layer = case.random(I, H, DEPTH, bidirectional=True)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    output, _ = layer(rand(T, B, I), rand_state(layer), LENGTHS)
    for d, half in enumerate(output.split(H, dim=-1)):
        grads = torch.autograd.grad(
            weighted([half]), parameters, allow_unused=True, retain_graph=True
        )
        for name, grad in zip(names, grads, strict=True):
            own = name.endswith("_reverse") == bool(d)
            assert own or grad is None or not grad.any(), name


@pytest.mark.parametrize("case", [c for c in CASES if "interleaved" in c.directions], ids=str)
def test_interleaved_upper_layers_read_both_directions(case):
    layer = case.random(I, H, 2, bidirectional="interleaved")
    output, _ = layer(rand(T, B, I))
    (grad,) = gradients(weighted([output[..., :H]]), [layer.weight_ih_l0_reverse])
    assert grad.any()
    (grad,) = gradients(weighted([layer(rand(T, B, I))[0][..., :H]]), [layer.weight_ih_l1_reverse])
    assert not grad.any()


@every_case
def test_one_layer_is_the_same_interleaved_or_not(case):
    layer = case.random(I, H, 1, bidirectional=True)
    other = case.random(I, H, 1, bidirectional="interleaved")
    arguments = (rand(T, B, I), rand_state(layer), LENGTHS)
    assert_close(flat(layer(*arguments)), flat(other(*arguments)))


@every_case
@every_engine
def test_each_direction_is_causal(case, engine):
    """A change at one step affects only later forward outputs and earlier backward outputs."""
    layer = case.random(I, H, DEPTH, bidirectional=True, engine=engine)
    x = rand(T, B, I)
    at = 2
    changed = x.clone()
    changed[at] += 1
    (output, _), (other, _) = layer(x), layer(changed)
    same = (output - other).abs().amax(dim=(1,)) < 1e-12  # (T, 2H)
    assert same[:at, :H].all()
    assert same[at + 1 :, H:].all()
    assert not same[at:, :H].all(dim=1).any()
    assert not same[: at + 1, H:].all(dim=1).any()

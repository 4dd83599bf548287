"""Weights in float16 and bfloat16: sums of gates and cell states stay in float32."""

from dataclasses import replace

import pytest
import torch
from helpers import HALVES, assert_close, every_family, flat, gradients, rand, weighted

from fairseq_casrnn import recurrence
from fairseq_casrnn.layers import LSTM
from fairseq_casrnn.recurrence import decoding
from fairseq_casrnn.recurrence.decoder import DecoderInputs, DecoderLayer, run_reference

HALF = pytest.mark.parametrize("dtype", HALVES, ids=["bf16", "f16"])
# Cells with a kink, such as a ReLU, whose gradient may change if rounding changes a sign.
KINKED: set[str] = set()
STEPS, SMALL = 16, 1 / 1024  # 4 + SMALL is 4 in both dtypes


def slow_cell(dtype):
    """Return W, b, U, h, c of an LSTM whose c grows from 4 by SMALL at each step."""
    bias = torch.tensor([30.0, 30.0, SMALL, 30.0]).to(dtype)
    h = torch.zeros(1, 1, dtype=dtype)
    return h.new_zeros(4, 1), bias, h.new_zeros(4, 1), h, torch.full_like(h, 4.0)


@HALF
def test_small_changes_of_the_cell_add_up(dtype):
    cell = LSTM(1, 1).cells[0]
    w_ih, bias, w_hh, h, c = slow_cell(dtype)
    end = torch.full((1, 1), 4 + STEPS * SMALL)
    close = {"rtol": 0, "atol": 1e-4}
    _, cs, *final = recurrence.run("eager", cell, bias.repeat(STEPS, 1, 1), w_hh, h, c)
    assert all(t.dtype == dtype for t in final)
    assert_close([cs[-1]], [end], close)
    x = h
    for _ in range(STEPS):
        h, c = recurrence.one_step(cell, x, w_ih, bias, w_hh, h, c)
        assert h.dtype == dtype
    assert_close([c], [end], close)


def slow_decoder(dtype, steps):
    """Return the inputs of a decoder whose output follows c, which grows from 1.

    The output gate is open, and h has a weight of 1.
    """
    w_ih, bias, w_hh, h, c = slow_cell(dtype)
    c = torch.full_like(c, 1.0)
    layer = DecoderLayer(LSTM(1, 1).cells[0], w_ih.repeat(1, 2), w_hh, bias)
    none, one = torch.zeros(1, 1, 1, dtype=dtype), torch.ones(1, 1, dtype=dtype)
    return DecoderInputs([layer], none.repeat(steps, 1, 1), h[None], c[None], none, none, None, one)


@HALF
def test_small_changes_of_the_cell_add_up_in_the_decoder(dtype):
    steps = 8 * STEPS
    out, alpha = decoding.run("eager", slow_decoder(dtype, steps))
    assert out.dtype == alpha.dtype == dtype
    exact = torch.tensor(1 + steps * SMALL).tanh().tanh()
    assert_close([out[-1].float()], [exact.view(1, 1)], {"rtol": 0, "atol": 2e-3})


@HALF
def test_the_temperature_of_soft_routing_is_not_rounded(dtype):
    soft = replace(slow_decoder(torch.float32, 1), temperature=torch.tensor(0.3)).to(dtype)
    assert soft.embedded.dtype == dtype
    assert soft.temperature.equal(torch.tensor(0.3))


@every_family
@HALF
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_agree_with_float32(case, dtype, bidirectional):
    """Weights and inputs are equal. The layer also runs step by step."""
    layer = case.layer(6, 5, 3, bidirectional=bidirectional, engine="eager").to(dtype)
    other = case.layer(6, 5, 3, bidirectional=bidirectional, engine="reference")
    other.load_state_dict(layer.state_dict())
    x = rand(7, 4, 6, dtype=dtype)
    leaves = [
        [t.requires_grad_() for t in (y, *m.parameters())]
        for m, y in ((layer, x), (other, x.detach().float()))
    ]
    lengths = [7, 2, 5, 1]
    ours, theirs = (
        flat(m(y, None, lengths)) for m, (y, *_) in zip((layer, other), leaves, strict=True)
    )
    assert all(t.dtype == dtype for t in ours)
    assert_close([t.float() for t in ours], theirs, HALVES[dtype])
    grads = [gradients(weighted(r), some) for r, some in zip((ours, theirs), leaves, strict=True)]
    for mine, exact in zip(*grads, strict=True):
        assert mine.dtype == dtype
        # Gradients of a mixture's attention are small differences of much larger terms. Their
        # rounding errors depend on the processor.
        lost = 1e-5
        if case.name not in KINKED:
            assert (mine.float() - exact).norm() <= HALVES[dtype]["rtol"] * exact.norm() + lost
    if bidirectional:
        return
    state, hs = None, []
    for x_t in x.detach():
        h, state = layer.step(x_t, state)
        hs.append(h.float())
    full, _ = other(x.detach().float())
    assert_close([torch.stack(hs)], [full], HALVES[dtype])


@every_family
def test_decoder_agrees_with_float32(case):
    stack = case.random(6, 4, 2, dtype=torch.bfloat16)
    layers = [
        DecoderLayer(cell, *stack.layer_parameters(k), getattr(stack, f"attention_l{k}", None))
        for k, cell in enumerate(stack.cells)
    ]
    shapes = {"embedded": (5, 3, 2), "h0": (2, 3, 4), "keys": (3, 6, 4), "values": (3, 6, 4)}
    inputs = {name: rand(*shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    c0 = rand(2, 3, 4, seed=1, dtype=torch.bfloat16) if stack.has_cell else None
    weight = rand(4, 4, dtype=torch.bfloat16)
    d = DecoderInputs(layers, c0=c0, mask=None, weight_out=weight, **inputs)
    wide = d.to(torch.float32)
    for engine in ("eager", None):
        ours = decoding.run(engine, d)
        assert all(t.dtype == torch.bfloat16 for t in ours)
        assert_close([t.float() for t in ours], run_reference(wide), {"rtol": 0.01, "atol": 0.01})
        weighted(ours).backward()
    assert all(p.grad.isfinite().all() for p in stack.parameters() if p.grad is not None)

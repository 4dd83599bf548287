"""Pooling: known results, and no influence of padding."""

import pytest
import torch
from helpers import assert_close, rand, randomize

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import Pooling
from fairseq_casrnn.layers.pooling import KINDS

STATES = torch.tensor(  # (T, B, C): lengths 3 and 1
    [[[1.0, -4.0], [-5.0, -6.0]], [[3.0, -2.0], [9.0, 9.0]], [[2.0, -9.0], [9.0, 9.0]]]
)
LENGTHS = torch.tensor([3, 1])
RESULTS = {
    "max": [[3, -2], [-5, -6]],
    "mean": [[2, -5], [-5, -6]],
    "last": [[2, -9], [-5, -6]],
}


@pytest.mark.parametrize("kind", RESULTS)
def test_known_results(kind):
    assert Pooling(kind, 2)(STATES, LENGTHS).tolist() == RESULTS[kind]


def test_last_of_two_directions():
    assert Pooling("last", 2, directions=2)(STATES, LENGTHS).tolist() == [[2, -4], [-5, -6]]


def test_attention():
    pool = randomize(Pooling("attention", 2).double())
    states = STATES.double()
    pooled = pool(states, LENGTHS)
    words = states[:, 0]
    scores = torch.stack([pool.query @ torch.tanh(pool.weight @ h + pool.bias) for h in words])
    assert_close([pooled[0]], [scores.softmax(0) @ words])
    assert_close([pooled[1]], [states[0, 1]])  # a single word gets all the attention


def test_initial_attention_is_not_uniform():
    torch.manual_seed(0)
    pool = Pooling("attention", 64)
    assert 0.1 < pool.query.abs().max() <= 64**-0.5
    assert 0.2 < pool.weight.abs().max() <= (6 / 128) ** 0.5
    assert not pool.bias.any()


def test_node():
    node = rand(2, 6)
    pool = Pooling("node", 2, node_size=6)
    assert pool.output_size == 6
    assert pool(STATES, LENGTHS, node) is node


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "node"])
def test_padding_has_no_effect(kind):
    pool = randomize(Pooling(kind, 2).double())
    states = STATES.double()
    with_nan = states.clone()
    with_nan[1:, 1] = torch.nan
    assert pool(with_nan, LENGTHS).equal(pool(states, LENGTHS))
    with_nan.requires_grad_()
    pool(with_nan, LENGTHS).sum().backward()
    assert not with_nan.grad[1:, 1].any()
    assert all(p.grad.isfinite().all() for p in pool.parameters())


def test_invalid_kinds():
    with pytest.raises(UserError, match="pooling is 'sum'; use one of max, mean, last"):
        Pooling("sum", 2)
    with pytest.raises(UserError, match="sentence nodes of a sentence-state LSTM"):
        Pooling("node", 2)

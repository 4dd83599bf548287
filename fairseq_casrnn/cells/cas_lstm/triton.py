"""The cell-aware stacked LSTM in Triton (:mod:`..triton_base`)."""

from __future__ import annotations

import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter looks for it here

from ..triton_base import dsigmoid, dtanh, output_backward, sigmoid, tanh


@triton.jit
def forward(a, prev, lower, candidate, p):
    """Blocks i f g o v; ``p`` has the factors of f ⊙ prev, 1 - λ, and of v ⊙ lower, λ."""
    i, f, g, o, v = sigmoid(a[0]), sigmoid(a[1]), tanh(a[2]), sigmoid(a[3]), sigmoid(a[4])
    c = i * g + p[0] * f * prev + p[1] * v * lower
    return (i, f, g, o, v), c, o * tanh(c), candidate


@triton.jit
def backward(a, prev, new, lower, candidate, p, dh, dnew):
    i, f, g, o, v = a
    d_o, dc = output_backward(o, new, dh, dnew)
    d_prev, d_below = dc * p[0], dc * p[1]
    d_f, d_v = dsigmoid(d_prev * prev, f), dsigmoid(d_below * lower, v)
    d_a = (dsigmoid(dc * g, i), d_f, dtanh(dc * i, g), d_o, d_v)
    return d_a, d_prev * f, d_below * v, 0.0, (dc * f * prev, dc * v * lower)


KERNELS = {"cas_lstm": (forward, backward), "cas_lstm_trained": (forward, backward)}

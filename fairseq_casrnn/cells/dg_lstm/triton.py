"""The depth-gated LSTM, and its bottom layer with peepholes, in Triton (:mod:`..triton_base`)."""

from __future__ import annotations

import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter looks for it here

from ..triton_base import dsigmoid, dtanh, output_backward, sigmoid, tanh


@triton.jit
def bottom_forward(a, prev, lower, candidate, p):
    """Blocks i f g o; ``p`` has the peepholes of i and f to ``prev``, and of o to the new c."""
    i, f, g = sigmoid(a[0] + p[0] * prev), sigmoid(a[1] + p[1] * prev), tanh(a[2])
    c = i * g + f * prev
    o = sigmoid(a[3] + p[2] * c)
    return (i, f, g, o), c, o * tanh(c), candidate


@triton.jit
def bottom_backward(a, prev, new, lower, candidate, p, dh, dnew):
    i, f, g, o = a
    d_o, dc = output_backward(o, new, dh, dnew)
    dc += d_o * p[2]
    d_i, d_f = dsigmoid(dc * g, i), dsigmoid(dc * prev, f)
    d_prev = dc * f + d_i * p[0] + d_f * p[1]
    d_p = (d_i * prev, d_f * prev, d_o * new)
    return (d_i, d_f, dtanh(dc * i, g), d_o), d_prev, 0.0, 0.0, d_p


@triton.jit
def forward(a, prev, lower, candidate, p):
    """Blocks i f g o d; ``p`` as in the bottom layer, then the peepholes of d to prev and lower."""
    i, f, g = sigmoid(a[0] + p[0] * prev), sigmoid(a[1] + p[1] * prev), tanh(a[2])
    d = sigmoid(a[4] + p[3] * prev + p[4] * lower)
    c = i * g + f * prev + d * lower
    o = sigmoid(a[3] + p[2] * c)
    return (i, f, g, o, d), c, o * tanh(c), candidate


@triton.jit
def backward(a, prev, new, lower, candidate, p, dh, dnew):
    i, f, g, o, d = a
    d_o, dc = output_backward(o, new, dh, dnew)
    dc += d_o * p[2]
    d_i, d_f, d_d = dsigmoid(dc * g, i), dsigmoid(dc * prev, f), dsigmoid(dc * lower, d)
    d_prev = dc * f + d_i * p[0] + d_f * p[1] + d_d * p[3]
    d_p = (d_i * prev, d_f * prev, d_o * new, d_d * prev, d_d * lower)
    return (d_i, d_f, dtanh(dc * i, g), d_o, d_d), d_prev, dc * d + d_d * p[4], 0.0, d_p


KERNELS = {"dg_lstm_bottom": (bottom_forward, bottom_backward), "dg_lstm": (forward, backward)}

"""The depth-gated LSTM, and its bottom layer with peepholes, in Triton (:mod:`..triton_base`)."""

from __future__ import annotations

import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter looks for it here

from ..triton_base import dsigmoid, dtanh, output_backward, sigmoid, tanh


@triton.jit
def bottom_forward(a, past, lower, candidate, p):
    """Blocks i f g o; ``p`` the peepholes of i and f at the past cell and of o at the new one."""
    i, f, g = sigmoid(a[0] + p[0] * past), sigmoid(a[1] + p[1] * past), tanh(a[2])
    c = i * g + f * past
    o = sigmoid(a[3] + p[2] * c)
    return (i, f, g, o), c, o * tanh(c), candidate


@triton.jit
def bottom_backward(a, past, new, lower, candidate, p, dh, dnew):
    i, f, g, o = a
    d_o, dc = output_backward(o, new, dh, dnew)
    dc += d_o * p[2]
    d_i, d_f = dsigmoid(dc * g, i), dsigmoid(dc * past, f)
    d_past = dc * f + d_i * p[0] + d_f * p[1]
    d_p = (d_i * past, d_f * past, d_o * new)
    return (d_i, d_f, dtanh(dc * i, g), d_o), d_past, 0.0, 0.0, d_p


@triton.jit
def forward(a, past, lower, candidate, p):
    """Blocks i f g o d; ``p`` as for the peephole cell, then those of d as in the highway cell."""
    i, f, g = sigmoid(a[0] + p[0] * past), sigmoid(a[1] + p[1] * past), tanh(a[2])
    d = sigmoid(a[4] + p[3] * past + p[4] * lower)
    c = i * g + f * past + d * lower
    o = sigmoid(a[3] + p[2] * c)
    return (i, f, g, o, d), c, o * tanh(c), candidate


@triton.jit
def backward(a, past, new, lower, candidate, p, dh, dnew):
    i, f, g, o, d = a
    d_o, dc = output_backward(o, new, dh, dnew)
    dc += d_o * p[2]
    d_i, d_f, d_d = dsigmoid(dc * g, i), dsigmoid(dc * past, f), dsigmoid(dc * lower, d)
    d_past = dc * f + d_i * p[0] + d_f * p[1] + d_d * p[3]
    d_p = (d_i * past, d_f * past, d_o * new, d_d * past, d_d * lower)
    return (d_i, d_f, dtanh(dc * i, g), d_o, d_d), d_past, dc * d + d_d * p[4], 0.0, d_p


KERNELS = {"dg_lstm_bottom": (bottom_forward, bottom_backward), "dg_lstm": (forward, backward)}

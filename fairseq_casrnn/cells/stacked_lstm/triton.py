"""The LSTM in Triton (:mod:`..triton_base`)."""

from __future__ import annotations

import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter looks for it here

from ..triton_base import dsigmoid, dtanh, output_backward, sigmoid, tanh


@triton.jit
def forward(a, prev, lower, candidate, p):
    i, f, g, o = sigmoid(a[0]), sigmoid(a[1]), tanh(a[2]), sigmoid(a[3])
    c = i * g + f * prev
    return (i, f, g, o), c, o * tanh(c), candidate


@triton.jit
def backward(a, prev, new, lower, candidate, p, dh, dnew):
    i, f, g, o = a
    d_o, dc = output_backward(o, new, dh, dnew)
    d_a = (dsigmoid(dc * g, i), dsigmoid(dc * prev, f), dtanh(dc * i, g), d_o)
    return d_a, dc * f, 0.0, 0.0, ()


KERNELS = {"stacked_lstm": (forward, backward)}

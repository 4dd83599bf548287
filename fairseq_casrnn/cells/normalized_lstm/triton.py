"""The LSTM whose input and forget gate sum to one, in Triton (:mod:`..triton_base`)."""

from __future__ import annotations

import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter looks for it here

from ..triton_base import dsigmoid, dtanh, output_backward, sigmoid, tanh


@triton.jit
def forward(a, prev, lower, candidate, p):
    i, f, g, o = sigmoid(a[0]), sigmoid(a[1]), tanh(a[2]), sigmoid(a[3])
    # A softmax over two values is the sigmoid of their difference.
    c = prev + sigmoid(i - f) * (g - prev)
    return (i, f, g, o), c, o * tanh(c), candidate


@triton.jit
def backward(a, prev, new, lower, candidate, p, dh, dnew):
    i, f, g, o = a
    d_o, dc = output_backward(o, new, dh, dnew)
    share = sigmoid(i - f)
    d_difference = dsigmoid(dc * (g - prev), share)
    d_g = dc * share
    d_a = (dsigmoid(d_difference, i), dsigmoid(-d_difference, f), dtanh(d_g, g), d_o)
    return d_a, dc - d_g, 0.0, 0.0, ()


KERNELS = {"normalized_lstm": (forward, backward)}

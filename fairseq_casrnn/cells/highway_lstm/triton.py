"""The highway LSTM in Triton (:mod:`..triton_base`)."""

from __future__ import annotations

import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter looks for it here

from ..triton_base import dsigmoid, dtanh, output_backward, sigmoid, tanh


@triton.jit
def forward(a, prev, lower, candidate, p):
    """Blocks i f g o d; ``p`` has the peepholes of d to ``prev`` and to ``lower``."""
    i, f, g, o = sigmoid(a[0]), sigmoid(a[1]), tanh(a[2]), sigmoid(a[3])
    d = sigmoid(a[4] + p[0] * prev + p[1] * lower)
    c = i * g + f * prev + d * lower
    return (i, f, g, o, d), c, o * tanh(c), candidate


@triton.jit
def backward(a, prev, new, lower, candidate, p, dh, dnew):
    i, f, g, o, d = a
    d_o, dc = output_backward(o, new, dh, dnew)
    d_d = dsigmoid(dc * lower, d)
    d_a = (dsigmoid(dc * g, i), dsigmoid(dc * prev, f), dtanh(dc * i, g), d_o, d_d)
    d_prev, d_lower = dc * f + d_d * p[0], dc * d + d_d * p[1]
    return d_a, d_prev, d_lower, 0.0, (d_d * prev, d_d * lower)


KERNELS = {"highway_lstm": (forward, backward)}

"""The gated recurrent unit in Triton (:mod:`..triton_base`)."""

from __future__ import annotations

import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter looks for it here

from ..triton_base import dsigmoid, dtanh, sigmoid, tanh


@triton.jit
def forward(a, prev, lower, candidate, p):
    """Blocks r z n; ``candidate`` is the block of U h for n, and ``p`` has its bias."""
    candidate += p[0]  # bias included, as the backward reads it
    r, z = sigmoid(a[0]), sigmoid(a[1])
    n = tanh(a[2] + r * candidate)
    h = n + z * (prev - n)
    return (r, z, n), h, h, candidate


@triton.jit
def backward(a, prev, new, lower, candidate, p, dh, dnew):
    r, z, n = a
    dh += dnew
    d_prev = dh * z
    d_n = dtanh(dh - d_prev, n)
    d_candidate = d_n * r
    d_a = (dsigmoid(d_n * candidate, r), dsigmoid(dh * (prev - n), z), d_n)
    return d_a, d_prev, 0.0, d_candidate, (d_candidate,)


KERNELS = {"stacked_gru": (forward, backward)}

"""The cells in Triton: one step and its backward on a tile of rows of the batch and hidden units.

The equations, with their sources, are those of :mod:`fairseq_casrnn.cells`. This file needs Triton
and is imported by :mod:`.triton_loop` alone.

Every forward has the arguments ``a`` (the gates' sums, block by block), ``past`` (c, or for a cell
without c its h, before the step), ``lower`` (the lower layer's c), ``candidate`` (the part of U h
that is not simply added) and ``p`` (elementwise parameters, row by row); it returns the activated
gates, the new c (or h), h and candidate as the backward wants it. What a cell has not is 0.

Every backward has those, activated, and ``new`` (the c or h that the step made), ``dh`` and
``dnew`` (the gradient of ``new`` that does not come through h); it returns the gradients of the
sums, of ``past``, ``lower``, ``candidate`` and ``p``. What a cell has not has the gradient 0
or ().
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    """σ(x), without overflow."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


@triton.jit
def tanh(x):
    """tanh(x). Near 0 its Taylor series in float32, where 1 - exp(-2x) would lose digits."""
    size = tl.abs(x)
    e = tl.exp(-2.0 * size)
    y = (1.0 - e) / (1.0 + e)
    if x.dtype == tl.float32:
        s = x * x
        series = 1.0 + s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315 + s * (62 / 2835))))
        y = tl.where(size < 0.25, size * series, y)
    return tl.where(x < 0, -y, y)


@triton.jit
def dsigmoid(dy, y):
    """Gradient of x, given that of y = σ(x)."""
    return dy * y * (1.0 - y)


@triton.jit
def dtanh(dy, y):
    """Gradient of x, given that of y = tanh(x)."""
    return dy * (1.0 - y * y)


@triton.jit
def output_backward(o, c, dh, dc):
    """Backward of h = o ⊙ tanh(c): the gradient of o's sum, and the complete one of c."""
    tanh_c = tanh(c)
    return dsigmoid(dh * tanh_c, o), dc + dtanh(dh * o, tanh_c)


@triton.jit
def lstm_forward(a, past, lower, candidate, p):
    i, f, g, o = sigmoid(a[0]), sigmoid(a[1]), tanh(a[2]), sigmoid(a[3])
    c = i * g + f * past
    return (i, f, g, o), c, o * tanh(c), candidate


@triton.jit
def lstm_backward(a, past, new, lower, candidate, p, dh, dnew):
    i, f, g, o = a
    d_o, dc = output_backward(o, new, dh, dnew)
    d_a = (dsigmoid(dc * g, i), dsigmoid(dc * past, f), dtanh(dc * i, g), d_o)
    return d_a, dc * f, 0.0, 0.0, ()


@triton.jit
def normalized_forward(a, past, lower, candidate, p):
    i, f, g, o = sigmoid(a[0]), sigmoid(a[1]), tanh(a[2]), sigmoid(a[3])
    # A softmax over the pair (i, f) is the logistic function of their difference.
    c = past + sigmoid(i - f) * (g - past)
    return (i, f, g, o), c, o * tanh(c), candidate


@triton.jit
def normalized_backward(a, past, new, lower, candidate, p, dh, dnew):
    i, f, g, o = a
    d_o, dc = output_backward(o, new, dh, dnew)
    share = sigmoid(i - f)
    d_difference = dsigmoid(dc * (g - past), share)
    d_g = dc * share
    d_a = (dsigmoid(d_difference, i), dsigmoid(-d_difference, f), dtanh(d_g, g), d_o)
    return d_a, dc - d_g, 0.0, 0.0, ()


@triton.jit
def cas_forward(a, past, lower, candidate, p):
    """Blocks i f g o v; ``p`` the factors of f ⊙ past, 1 - λ, and of v ⊙ lower, λ."""
    i, f, g, o, v = sigmoid(a[0]), sigmoid(a[1]), tanh(a[2]), sigmoid(a[3]), sigmoid(a[4])
    c = i * g + p[0] * f * past + p[1] * v * lower
    return (i, f, g, o, v), c, o * tanh(c), candidate


@triton.jit
def cas_backward(a, past, new, lower, candidate, p, dh, dnew):
    i, f, g, o, v = a
    d_o, dc = output_backward(o, new, dh, dnew)
    d_past, d_below = dc * p[0], dc * p[1]
    d_f, d_v = dsigmoid(d_past * past, f), dsigmoid(d_below * lower, v)
    d_a = (dsigmoid(dc * g, i), d_f, dtanh(dc * i, g), d_o, d_v)
    return d_a, d_past * f, d_below * v, 0.0, (dc * f * past, dc * v * lower)


@triton.jit
def highway_forward(a, past, lower, candidate, p):
    """Blocks i f g o d; ``p`` the peepholes of d at the past and at the lower cell."""
    i, f, g, o = sigmoid(a[0]), sigmoid(a[1]), tanh(a[2]), sigmoid(a[3])
    d = sigmoid(a[4] + p[0] * past + p[1] * lower)
    c = i * g + f * past + d * lower
    return (i, f, g, o, d), c, o * tanh(c), candidate


@triton.jit
def highway_backward(a, past, new, lower, candidate, p, dh, dnew):
    i, f, g, o, d = a
    d_o, dc = output_backward(o, new, dh, dnew)
    d_d = dsigmoid(dc * lower, d)
    d_a = (dsigmoid(dc * g, i), dsigmoid(dc * past, f), dtanh(dc * i, g), d_o, d_d)
    d_past, d_lower = dc * f + d_d * p[0], dc * d + d_d * p[1]
    return d_a, d_past, d_lower, 0.0, (d_d * past, d_d * lower)


@triton.jit
def peephole_forward(a, past, lower, candidate, p):
    """Blocks i f g o; ``p`` the peepholes of i and f at the past cell and of o at the new one."""
    i, f, g = sigmoid(a[0] + p[0] * past), sigmoid(a[1] + p[1] * past), tanh(a[2])
    c = i * g + f * past
    o = sigmoid(a[3] + p[2] * c)
    return (i, f, g, o), c, o * tanh(c), candidate


@triton.jit
def peephole_backward(a, past, new, lower, candidate, p, dh, dnew):
    i, f, g, o = a
    d_o, dc = output_backward(o, new, dh, dnew)
    dc += d_o * p[2]
    d_i, d_f = dsigmoid(dc * g, i), dsigmoid(dc * past, f)
    d_past = dc * f + d_i * p[0] + d_f * p[1]
    d_p = (d_i * past, d_f * past, d_o * new)
    return (d_i, d_f, dtanh(dc * i, g), d_o), d_past, 0.0, 0.0, d_p


@triton.jit
def depth_gated_forward(a, past, lower, candidate, p):
    """Blocks i f g o d; ``p`` as for the peephole cell, then those of d as in the highway cell."""
    i, f, g = sigmoid(a[0] + p[0] * past), sigmoid(a[1] + p[1] * past), tanh(a[2])
    d = sigmoid(a[4] + p[3] * past + p[4] * lower)
    c = i * g + f * past + d * lower
    o = sigmoid(a[3] + p[2] * c)
    return (i, f, g, o, d), c, o * tanh(c), candidate


@triton.jit
def depth_gated_backward(a, past, new, lower, candidate, p, dh, dnew):
    i, f, g, o, d = a
    d_o, dc = output_backward(o, new, dh, dnew)
    dc += d_o * p[2]
    d_i, d_f, d_d = dsigmoid(dc * g, i), dsigmoid(dc * past, f), dsigmoid(dc * lower, d)
    d_past = dc * f + d_i * p[0] + d_f * p[1] + d_d * p[3]
    d_p = (d_i * past, d_f * past, d_o * new, d_d * past, d_d * lower)
    return (d_i, d_f, dtanh(dc * i, g), d_o, d_d), d_past, dc * d + d_d * p[4], 0.0, d_p


@triton.jit
def gru_forward(a, past, lower, candidate, p):
    """Blocks r z n; ``candidate`` is U h of the candidate and ``p`` its bias."""
    candidate += p[0]  # kept with its bias, for the backward
    r, z = sigmoid(a[0]), sigmoid(a[1])
    n = tanh(a[2] + r * candidate)
    h = n + z * (past - n)
    return (r, z, n), h, h, candidate


@triton.jit
def gru_backward(a, past, new, lower, candidate, p, dh, dnew):
    r, z, n = a
    dh += dnew
    d_past = dh * z
    d_n = dtanh(dh - d_past, n)
    d_candidate = d_n * r
    d_a = (dsigmoid(d_n * candidate, r), dsigmoid(dh * (past - n), z), d_n)
    return d_a, d_past, 0.0, d_candidate, (d_candidate,)

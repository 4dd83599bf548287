"""Functions for the cells' ``triton.py``, and the signatures of the functions defined there.

A cell's ``forward`` and ``backward`` compute one step, and its backward, on a tile of rows of the
batch and hidden units. The tests compare them with the cell's ``step``, which has the equations.

``forward(a, prev, lower, candidate, p)`` takes the pre-activations, block by block; c before the
step (h, for a cell without c); c of the layer below; the block of U h that is not added to the
gates; and the elementwise parameters, row by row. It returns the activated gates, the new c (or h),
h, and candidate as the backward reads it.

``backward(a, prev, new, lower, candidate, p, dh, dnew)`` takes the same, but with activated gates,
and in addition the new c (or h), and the gradients of h and of ``new``; the latter excludes what
comes through h. It returns the gradients of the pre-activations, ``prev``, ``lower``, ``candidate``
and ``p``.

Arguments that a cell does not have are 0 (``p``: an empty tuple), and so are their gradients. These
files need Triton; :mod:`fairseq_casrnn.recurrence.triton.kernels.single_steps` imports them when a
kernel is launched.
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
    """tanh(x). In float32, uses the Taylor series near 0, where 1 - exp(-2x) would lose digits."""
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
    """Backward of h = o ⊙ tanh(c): the gradient of o's pre-activation, and the whole one of c."""
    tanh_c = tanh(c)
    return dsigmoid(dh * tanh_c, o), dc + dtanh(dh * o, tanh_c)

"""Fake kernels of the registered operators: their results' shapes, for torch.compile and export.

Those that write into their arguments, or whose results' number is in the data, have none: they are
called where autograd runs alone. Shapes are those of ``csrc/ops.cpp``.
"""

from __future__ import annotations

import torch


def register() -> None:
    """Once the extension has defined the operators."""
    for function in (layer_forward, routed_layer, mm, best_sums, look_around):
        torch.library.register_fake(f"fairseq_casrnn::{function.__name__}", function)


def layer_forward(
    kernel, x, weight_ih, bias, weight_hh, h0, c0, side, params, rows, keep
):  # the schema's names
    """Without gates and candidate, which exist where autograd runs alone."""
    torch._check(not keep, lambda: "layer_forward has no fake kernel for training")
    hs = h0.new_empty(h0.size(0) + x.size(0), h0.size(1))
    return hs, None if c0 is None else torch.empty_like(hs), None, None


def routed_layer(x, weight_ih, bias, weight_hh, h0, c0, cells):
    """States ``(T + 1, B, H)``."""
    hs = h0.new_empty(x.size(0) + 1, *h0.shape)
    return hs, torch.empty_like(hs)


def mm(a, b, bias):
    """``(M, N)``."""
    return a.new_empty(a.size(0), b.size(1))


def best_sums(lprobs, scores, count):
    """``(B, count)`` each."""
    values = lprobs.new_empty(lprobs.size(0), count)
    return values, torch.empty_like(values, dtype=torch.int64)


def look_around(h, window, counts):
    """``(N, (2w+1)*H)`` and ``(B, H)``."""
    return h.new_empty(h.size(0), (2 * window + 1) * h.size(1)), h.new_empty(counts[0], h.size(1))

"""A trivial kernel, to find out whether Triton can compile and launch kernels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_one(
    number,  # (1,)
):
    """Adds 1 in place."""
    tl.store(number, tl.load(number) + 1)

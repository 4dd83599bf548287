"""A kernel for tests; a module of its own, for Triton finds names among a module's only."""

import triton
import triton.language as tl

from fairseq_casrnn.recurrence.triton_sequences import factor


@triton.jit
def factors(x, y, PRECISION: tl.constexpr):
    """y ``(16,)``: x as factors of a product."""
    at = tl.arange(0, 16)
    tl.store(y + at, factor(tl.load(x + at), tl.float32, PRECISION))

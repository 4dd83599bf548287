"""A Triton kernel for tests; Triton needs it at the top level of a module."""

import triton
import triton.language as tl

from fairseq_casrnn.recurrence.triton.kernels.products import to_dot_operand


@triton.jit
def operands(x, y, PRECISION: tl.constexpr):
    """Store x, rounded as an operand of a product, in y ``(16,)``."""
    at = tl.arange(0, 16)
    tl.store(y + at, to_dot_operand(tl.load(x + at), tl.float32, PRECISION))

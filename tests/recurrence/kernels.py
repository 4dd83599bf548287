"""A Triton kernel for tests, in its own module because Triton looks names up in modules."""

import triton
import triton.language as tl

from fairseq_casrnn.recurrence.triton.kernels.products import to_dot_operand


@triton.jit
def operands(x, y, PRECISION: tl.constexpr):
    """Store in y ``(16,)`` the values of x as rounded for a product."""
    at = tl.arange(0, 16)
    tl.store(y + at, to_dot_operand(tl.load(x + at), tl.float32, PRECISION))

"""A kernel for tests; a module of its own, since Triton looks names up in modules."""

import triton
import triton.language as tl

from fairseq_casrnn.recurrence.triton.kernels.products import to_dot_operand


@triton.jit
def operands(x, y, PRECISION: tl.constexpr):
    """y ``(16,)``: x as operands of a product."""
    at = tl.arange(0, 16)
    tl.store(y + at, to_dot_operand(tl.load(x + at), tl.float32, PRECISION))

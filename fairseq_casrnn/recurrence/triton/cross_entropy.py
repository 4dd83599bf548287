"""Cross entropy of a linear map on a GPU: logits from cuBLAS, one kernel forward, one backward.

The forward kernel reduces each row of logits with an online softmax in float32. The backward kernel
overwrites the logits with their gradient, which includes the incoming gradient, so that a loss
scale acts before rounding to float16, as in PyTorch's own operations. (Gradients computed in the
forward, as in Liger Kernel's ``FusedLinearCrossEntropy``, would underflow.)

Logits, ``(N, V)`` in the weights' dtype, are kept for the backward if they have at most ``KEPT``
bytes. Otherwise they are computed in chunks of rows, and again in the backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from ..cross_entropy import refuse_second_derivatives
from ..eager import retain_graph_requested, without_autocast
from ..inputs import LossSpec, cast
from . import launching
from .host import on_its_device
from .launching import may_launch

KEPT = 2**30
"""Maximum bytes of logits that are kept for the backward."""
CHUNK = 2**28
"""Bytes of logits per chunk if they are not kept."""
BLOCK = 2048
"""Number of classes that a program processes at a time."""
UNALIGNED = ["target", "stats", "grad"]
NUMBERS = ["rows", "first", "pad", "target_share", "other_share"]


@triton.jit
def reduce_logits(logits, V: tl.constexpr, BLOCK: tl.constexpr):
    """Reductions of a row of V logits: the maximum, Σ exp(logit − maximum), and partial sums of the
    logits ``(BLOCK,)``."""
    top, total, sums = -3.4e38, 0.0, tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(logits + at, mask=at < V, other=float("-inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), 0)
        sums += tl.where(at < V, x, 0.0)
        top = new_top
    return top, total, sums


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=UNALIGNED)
def forward_rows(
    logits,  # (*, V)
    target,  # (rows,), int64
    stats,  # (3, rows)
    rows, first, pad, target_share, other_share, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes loss, loss without smoothing and log-sum-exp of a row to the three rows of stats.

    ``logits`` are those of the batch's row ``first`` and the rows after it. The target distribution
    has ``other_share`` for every class, and ``target_share`` more for the target.
    """
    row = first + tl.program_id(0)
    word = tl.load(target + row)
    loss, nll, log_total = 0.0, 0.0, 0.0
    if word != pad:
        logits += tl.program_id(0).to(tl.int64) * V
        top, total, sums = reduce_logits(logits, V, BLOCK)
        log_total = top + tl.log(total)
        # NaN for a target that is not a class; it must not be read out of bounds.
        is_class = (word >= 0) & (word < V)
        nll = log_total - tl.load(logits + word, mask=is_class, other=float("nan")).to(tl.float32)
        loss = target_share * nll
        if other_share > 0:  # otherwise skip the sum, which may contain -inf
            loss += other_share * (V * log_total - tl.sum(sums, 0))
    tl.store(stats + row, loss)
    tl.store(stats + rows + row, nll)
    tl.store(stats + 2 * rows + row, log_total)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=UNALIGNED)
def backward_rows(
    logits,  # (*, V)
    target,  # (rows,), int64
    stats,  # (3, rows)
    grad,  # ()
    rows, first, pad, target_share, other_share, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Overwrites logits with their gradient; ``grad`` is the gradient of the summed loss."""
    row = first + tl.program_id(0)
    word = tl.load(target + row)
    log_total, scale = tl.load(stats + 2 * rows + row), tl.load(grad)
    logits += tl.program_id(0).to(tl.int64) * V
    for start in range(0, V, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(logits + at, mask=at < V).to(tl.float32)
        d_x = tl.exp(x - log_total) - other_share - tl.where(at == word, target_share, 0.0)
        d_x = tl.where(word == pad, 0.0, d_x * scale)
        tl.store(logits + at, d_x.to(logits.dtype.element_ty), mask=at < V)


class Shares(NamedTuple):
    """The target distribution, as the kernels take it; see :func:`forward_rows`."""

    pad: int
    target_share: float
    other_share: float


def launch(
    kernel: Any,
    logits: Tensor,
    target: Tensor,
    stats: Tensor,
    first: int,
    shares: Shares,
    **more: Any,
) -> None:
    """Run a kernel on ``logits``, whose first row is row ``first`` of the batch."""
    grid, (rows, size) = (logits.size(0),), (stats.size(1), logits.size(1))
    arguments = {"logits": logits, "target": target, "stats": stats, **more, **shares._asdict()}
    arguments |= {"rows": rows, "first": first, "V": size, "BLOCK": BLOCK, "num_warps": 8}
    if may_launch(kernel, grid, arguments):
        launching.run(kernel, grid, **arguments)


def launch_rows(logits: Tensor) -> None:
    """Launch both kernels on ``logits``, with zeros for everything else, to compile them."""
    target = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    stats = torch.zeros(3, len(logits), dtype=torch.float32, device=logits.device)
    launch(forward_rows, logits, target, stats, 0, Shares(-1, 1.0, 0.0))
    launch(backward_rows, logits, target, stats, 0, Shares(-1, 1.0, 0.0), grad=stats[0, 0])


def cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, loss_spec: LossSpec
) -> tuple[Tensor, Tensor]:
    """See :func:`.cross_entropy.cross_entropy`; x is ``(N, E)``, the target ``(N,)``, contiguous.

    A target that is not one of the classes makes the loss NaN.

    Raises:
        RuntimeError: x and target have different lengths.
    """
    words = loss_spec.target.numel()
    if words != x.size(0):
        raise RuntimeError(f"target has {words} words, x has {x.size(0)} rows")
    loss, nll = _CrossEntropy.apply(x, weight, bias, *loss_spec, torch.is_grad_enabled())
    return loss, nll


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    @on_its_device
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        pad: int,
        enable_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        rows, size = x.size(0), weight.size(0)
        stats = torch.empty(3, rows, dtype=torch.float32, device=x.device)
        row_bytes = size * x.element_size()
        keep = enable_grad and rows * row_bytes <= KEPT
        chunk = max(1, rows if keep else CHUNK // row_bytes)
        other = smoothing / (size - 1)
        shares = Shares(pad, 1.0 - smoothing - other, other)
        logits = None
        for first in range(0, rows, chunk):
            logits = F.linear(x[first : first + chunk], weight, bias)
            launch(forward_rows, logits, target, stats, first, shares)
        ctx.save_for_backward(x, weight, bias, target, stats, logits if keep else None)
        ctx.chunk, ctx.shares = chunk, shares
        loss, nll = stats[0].sum(), stats[1].sum()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @on_its_device
    @without_autocast
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        x, weight, bias, target, stats, kept = ctx.saved_tensors
        rows = len(x)
        if kept is not None and retain_graph_requested():
            kept = kept.clone()
        d_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        sums: list[Tensor | None] = [None, None]
        for first in range(0, max(rows, 1), ctx.chunk):
            part = x[first : first + ctx.chunk]
            logits = F.linear(part, weight, bias) if kept is None else kept
            launch(backward_rows, logits, target, stats, first, ctx.shares, grad=grad)
            if d_x is not None:
                torch.mm(logits, weight, out=d_x[first : first + ctx.chunk])
            if ctx.needs_input_grad[1]:
                sums[0] = _added(sums[0], logits.t() @ part)
            if ctx.needs_input_grad[2]:
                sums[1] = _added(sums[1], logits.sum(0))
        d_weight, d_bias = (cast(total, weight.dtype) for total in sums)
        return d_x, d_weight, d_bias, None, None, None, None


def _added(total: Tensor | None, part: Tensor) -> Tensor:
    """The sum of both in float32, or ``part`` if there is no total yet."""
    return part if total is None else total.float().add_(part)

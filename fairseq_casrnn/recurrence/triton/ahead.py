"""Compile the kernels of a training in parallel, before they are needed.

Triton compiles each kernel at its first launch, which takes seconds, one kernel after another.
Instead, other threads run the forward and backward of layers and decoders on zeros, with batches of
both tile heights, and compile each kernel instead of launching it. The kernels of a forward without
gradients come last, since they are needed at the first validation.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...cells.base import Cell
from ..decoder import DecoderInputs, DecoderLayer
from ..inputs import LoopTensors, accumulation_dtype
from .decoder import run_forward
from .decoder_loop import backward as backward_decoder
from .decoder_loop import dense, gather_weights
from .launching import compiling_only
from .layer_loop import backward, forward
from .plan import HEIGHTS, chip

logger = logging.getLogger(__name__)

THREADS = 8
"""More threads would slow down the start of training, since some of the work holds the GIL."""

LOW = 1
"""Rows of a batch for which tiles have the smaller of their two heights."""


class Job(NamedTuple):
    """The compilation of one kernel.

    Attributes:
        kernel: its name.
        run: runs code that launches the kernel.
        batch: number of rows in that launch; 0 if the kernel is the same for all batches.
        trains: whether a training update launches it.
    """

    kernel: str
    run: Callable[[], None]
    batch: int
    trains: bool = True


class ForkGuard:
    """Keeps this process from forking while jobs run.

    A job starts an assembler or a C compiler. If another thread forks at that moment, for a worker
    of a DataLoader, the worker inherits a pipe whose end the job waits for. Neither would go on.
    """

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(
            before=self.begin_fork, after_in_parent=self.end_fork, after_in_child=self.reset
        )

    def reset(self) -> None:
        """Start without jobs; a forked process has no other threads."""
        self.changed, self.jobs, self.forks = threading.Condition(), 0, 0

    def begin_fork(self) -> None:
        """Wait for running jobs, and keep others from starting."""
        with self.changed:
            self.forks += 1
            self.changed.wait_for(lambda: not self.jobs)

    def end_fork(self) -> None:
        """Let jobs start."""
        with self.changed:
            self.forks -= 1
            self.changed.notify_all()

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """Run a job."""
        with self.changed:
            self.changed.wait_for(lambda: not self.forks)
            self.jobs += 1
        try:
            yield
        finally:
            with self.changed:
                self.jobs -= 1
                self.changed.notify_all()


fork_guard = functools.cache(ForkGuard)
"""The one guard of this process."""


def start(jobs: list[Job], device: torch.device, rows: int) -> None:
    """Start jobs in other threads without waiting; kernels for batches of ``rows`` come first."""
    high = rows >= max(job.batch for job in jobs)

    def is_later(job: Job) -> tuple[bool, bool]:
        return not job.trains, job.batch > 0 and (job.batch > LOW) != high

    pool = ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1), "compile_ahead")
    for job in sorted(jobs, key=is_later):
        pool.submit(run, job, device)
    pool.shutdown(wait=False)


def run(job: Job, device: torch.device) -> None:
    """Run a job. Errors are only logged, since the real launch raises and handles them again."""
    try:
        with fork_guard().job(), compiling_only(job.kernel), torch.no_grad():
            if device.type == "cuda":
                torch.cuda.set_device(device)  # the current device is per thread
            job.run()
    except Exception:
        logger.debug("%s could not be compiled ahead", job.kernel, exc_info=True)


def batches(size: int, device: torch.device) -> tuple[int, int]:
    """Two batch sizes, one for each tile height."""
    processors = chip(device)[0]
    columns = next((n for n in (-(-size // 16), -(-size // 32)) if n <= processors), processors)
    return LOW, HEIGHTS[0] * (processors // columns) + 1


def layer_jobs(
    cell: Cell, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, params: Sequence[Tensor]
) -> Iterator[Job]:
    """The kernels of a layer with this cell; parameters as in :func:`.one_step`."""
    w_ih, w_hh, b = (t.detach() for t in (weight_ih, weight_hh, bias))
    params = [p.detach() for p in params]
    for batch in batches(weight_hh.size(1), weight_hh.device):
        launch = partial(launch_layer, cell, w_ih, w_hh, b, params, batch)
        yield Job("forward_sequence", launch, batch)
        yield Job("backward_sequence", launch, batch)
        yield Job("forward_sequence", partial(launch, trains=False), batch, trains=False)


def launch_layer(
    cell: Cell,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    params: Sequence[Tensor],
    batch: int,
    trains: bool = True,
) -> None:
    """Run the forward of a layer over two steps of zeros and, if it ``trains``, the backward."""
    size, wide = weight_hh.size(1), accumulation_dtype(weight_hh.dtype)
    x = weight_ih.new_zeros(2, batch, weight_ih.size(1))
    h0 = x.new_zeros(batch, size)
    side: Tensor | None = None
    if cell.num_cells:
        side = x.new_zeros(2, batch, cell.num_cells)
    elif cell.lower_cell:
        side = x.new_zeros(2, batch, size, dtype=wide)
    c0 = h0.clone() if cell.has_cell else None
    tensors = LoopTensors(None, x, weight_ih, bias, weight_hh, h0, c0, side)
    saved, *_ = forward(cell, tensors, None, params, keep=trains)
    if not trains:
        return
    gates = saved.gates
    d_gates = gates if gates.dtype == x.dtype else torch.empty_like(gates, dtype=x.dtype)
    backward(
        cell,
        saved,
        side=side,
        weight_hh=weight_hh,
        d_gates=d_gates,
        grads=(None, None, None, None),
        last=None,
        wants_side=True,
    )


def decoder_jobs(
    layers: list[DecoderLayer],
    embed_dim: int,
    weight_out: Tensor,
    dropped: tuple[bool, bool],
    temperature: Tensor | None,
) -> Iterator[Job]:
    """The kernels of a decoder with attention and input feeding.

    Args:
        layers: as in :class:`..decoder.DecoderInputs`.
        embed_dim: E.
        weight_out: ``(H, H)``, W_oh.
        dropped: whether training has dropout between layers, and whether on the output.
        temperature: scalar, of soft routing, or None.
    """
    for batch in batches(weight_out.size(0), weight_out.device):
        launch = partial(launch_decoder, layers, embed_dim, weight_out, batch)
        yield Job("decode_forward", partial(launch, dropped, temperature), batch)
        yield Job("decode_backward", partial(launch, dropped, temperature), batch)
        yield Job("decode_forward", launch, batch, trains=False)


def launch_decoder(
    layers: list[DecoderLayer],
    embed_dim: int,
    weight_out: Tensor,
    batch: int,
    dropped: tuple[bool, bool] | None = None,
    temperature: Tensor | None = None,
) -> None:
    """Run the forward of a decoder over two steps and three source words of zeros.

    With ``dropped`` and ``temperature``, see :func:`decoder_jobs`, as in training, and backward.
    """
    size, new = weight_out.size(0), weight_out.new_zeros
    states = new(len(layers), batch, size)
    keys, mask = new(batch, 3, size), new(batch, 3, dtype=torch.bool)
    d = DecoderInputs(
        layers,
        new(2, batch, embed_dim),
        h0=states,
        c0=states.clone() if layers[0].cell.has_cell else None,
        keys=keys,
        values=keys.clone(),
        mask=mask,
        weight_out=weight_out,
        drop_layers=new(len(layers) - 1, 2, batch, size) if dropped and dropped[0] else None,
        drop_out=new(2, batch, size) if dropped and dropped[1] else None,
        temperature=temperature,
    )
    d = dense(d)
    saved = run_forward(d, keep=dropped is not None)
    if dropped is None:
        return
    weights = gather_weights(layers, embed_dim)
    backward_decoder(
        d,
        weights,
        saved,
        grad_out=torch.zeros_like(saved.fed),
        grad_alphas=None,
        retain=False,
    )


def loss_jobs(weight: Tensor) -> Iterator[Job]:
    """The kernels of the fused loss for a vocabulary with this ``weight`` (V, E)."""
    for kernel in ("forward_rows", "backward_rows"):
        yield Job(kernel, partial(launch_loss, weight.detach()), 0)


def launch_loss(weight: Tensor) -> None:
    """Run forward and backward of the loss for one row of zeros."""
    from .cross_entropy import launch_rows  # needs Triton

    launch_rows(weight.new_zeros(1, weight.size(0)))

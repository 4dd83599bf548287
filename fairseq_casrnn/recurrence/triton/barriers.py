"""Launching kernels whose programs wait for each other, and the counters of their barriers."""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch import Tensor

from .launching import may_launch, run
from .plan import Plan, interpreting


class RefusedError(RuntimeError):
    """The GPU has no room for a kernel, which has not run."""


class Counters:
    """Zeros ``(COUNT,)`` for barriers. A launch takes unused ones; when there are not enough left,
    all are zeroed again.
    """

    COUNT = 1 << 14
    ALIGNED = 4  # a kernel is compiled anew for an address that is not a multiple of 16 bytes

    def __init__(self, device: torch.device):
        self.lock, self.used = threading.Lock(), 0
        with torch.inference_mode(False):
            self.zeros = torch.zeros(self.COUNT, dtype=torch.int32, device=device)

    def take(self, count: int) -> Tensor:
        """``count`` unused zeros."""
        with self.lock:
            if self.used + count > self.COUNT:
                self.zeros.zero_()
                self.used = 0
            start = self.used
            self.used += -(-count // self.ALIGNED) * self.ALIGNED
            return self.zeros[start : start + count]


@functools.cache
def stream_counters(device: torch.device, stream: int) -> Counters:
    """The counters of a stream, on which launches and zeroing run one after the other."""
    return Counters(device)


def counters(how: Plan, gates: Tensor) -> Tensor:
    """A counter, 0, for the barriers of each tile of rows; gates are ``(T, B, ·)``."""
    return zeros(-(-gates.size(1) // how.tiles["ROWS"]), gates.device)


def zeros(count: int, device: torch.device) -> Tensor:
    """``count`` counters for one launch on the current stream."""
    if device.type != "cuda" or count > Counters.COUNT or torch.cuda.is_current_stream_capturing():
        return torch.zeros(count, dtype=torch.int32, device=device)
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    return stream_counters(device, stream).take(count)


def launch(kernel: Any, how: Plan, /, backwards: bool = False, **arguments: Any) -> None:
    """Run a kernel of :mod:`.kernels.sequences` over all steps, in reverse order if backwards.

    Raises:
        RefusedError: the programs do not fit on the GPU after all.
    """
    arguments |= how.tiles | {"count": counters(how, arguments["gates"])}
    steps = arguments["steps"]
    if interpreting():
        if not backwards:  # store the initial states
            kernel[how.grid](**arguments, begin=0, end=0, BARRIER=False)
        for t in reversed(range(steps)) if backwards else range(steps):
            kernel[how.grid](**arguments, begin=t, end=t + 1, BARRIER=False)
        return
    options = {"begin": 0, "end": steps, "BARRIER": True, "num_warps": how.tiles["SPLIT"]}
    launch_together(kernel, how.grid, **arguments, **options)


def launch_together(kernel: Any, grid: tuple[int, int], /, **arguments: Any) -> None:
    """Launch a kernel whose programs wait for each other, as a cooperative grid.

    Raises:
        RefusedError: they do not fit on the GPU at the same time.
    """
    arguments["launch_cooperative_grid"] = True
    if not may_launch(kernel, grid, arguments):
        return
    try:
        run(kernel, grid, **arguments)
    except Exception as error:
        # Triton's OutOfResources, and CUDA's messages for too many blocks or no cooperative launch.
        refusals = ("OutOfResources", "cooperative", "operation not supported")
        if not any(words in f"{type(error).__name__}: {error}" for words in refusals):
            raise
        raise RefusedError(str(error)) from error

"""Launch kernels whose programs wait for each other, and provide their barrier counters."""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch import Tensor

from . import launching
from .launching import may_launch
from .plan import Plan, interpreting


class RefusedError(RuntimeError):
    """A kernel's programs do not fit on the GPU at the same time; nothing was launched."""


class Counters:
    """A buffer of zeros ``(COUNT,)`` for barrier counters.

    Each launch takes unused ones; when too few are left, the whole buffer is zeroed again.
    """

    COUNT = 1 << 14
    ALIGNED = 4  # counters per 16 bytes; a kernel is compiled again for other alignments

    def __init__(self, device: torch.device):
        self.lock, self.used = threading.Lock(), 0
        with torch.inference_mode(False):
            self.zeros = torch.zeros(self.COUNT, dtype=torch.int32, device=device)

    def take(self, count: int) -> Tensor:
        """A view of ``count`` unused zeros."""
        with self.lock:
            if self.used + count > self.COUNT:
                self.zeros.zero_()
                self.used = 0
            start = self.used
            self.used += -(-count // self.ALIGNED) * self.ALIGNED
            return self.zeros[start : start + count]


@functools.cache
def stream_counters(device: torch.device, stream: int) -> Counters:
    """The counters of a stream, which orders launches and zeroing."""
    return Counters(device)


def counters(launch_plan: Plan, gates: Tensor) -> Tensor:
    """A zeroed barrier counter for each tile of rows; gates are ``(T, B, ·)``."""
    return zeros(-(-gates.size(1) // launch_plan.tiles.ROWS), gates.device)


def zeros(count: int, device: torch.device) -> Tensor:
    """``count`` zeroed counters, int32, for one launch on the current stream."""
    if device.type != "cuda" or count > Counters.COUNT or torch.cuda.is_current_stream_capturing():
        return torch.zeros(count, dtype=torch.int32, device=device)
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    return stream_counters(device, stream).take(count)


def launch(kernel: Any, launch_plan: Plan, /, backwards: bool = False, **arguments: Any) -> None:
    """Run a kernel of :mod:`.kernels.sequences` over all steps, in reverse if ``backwards``.

    Raises:
        RefusedError: the programs do not fit on the GPU at the same time.
    """
    arguments |= {
        "tiles": launch_plan.tiles,
        "count": counters(launch_plan, arguments["gates"]),
    }
    steps = arguments["steps"]
    if interpreting():
        if not backwards:  # store the initial states
            kernel[launch_plan.grid](**arguments, begin=0, end=0, BARRIER=False)
        for t in reversed(range(steps)) if backwards else range(steps):
            kernel[launch_plan.grid](**arguments, begin=t, end=t + 1, BARRIER=False)
        return
    options = {"begin": 0, "end": steps, "BARRIER": True, "num_warps": launch_plan.tiles.SPLIT}
    launch_together(kernel, launch_plan.grid, **arguments, **options)


def launch_together(kernel: Any, grid: tuple[int, int], /, **arguments: Any) -> None:
    """Launch a kernel whose programs wait for each other, as a cooperative grid.

    Raises:
        RefusedError: they do not fit on the GPU at the same time.
    """
    arguments["launch_cooperative_grid"] = True
    if not may_launch(kernel, grid, arguments):
        return
    try:
        launching.run(kernel, grid, **arguments)
    except Exception as error:
        # Triton's OutOfResources, and CUDA's messages for too many blocks or no cooperative launch.
        refusals = ("OutOfResources", "cooperative", "operation not supported")
        if not any(words in f"{type(error).__name__}: {error}" for words in refusals):
            raise
        raise RefusedError(str(error)) from error

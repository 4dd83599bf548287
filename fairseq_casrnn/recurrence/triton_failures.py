"""Whether Triton works here at all: what engine ``triton`` needs beside itself.

Triton compiles kernels when they are first launched, a stub in C among them, into a folder in the
user's home. Where that fails, ``eager`` runs instead, and a message says why. There are two places
where it can be found out: :func:`why_not` launches a kernel that does nothing, before an engine is
chosen; and :func:`attempt` stands around what launches real ones, for a first that compiled may
have come from the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable

import torch

from ..errors import UserError
from .memory import readable
from .triton_plan import interpreting, supports_grid_barrier

REFUSALS = (
    "active drivers",  # it finds no CUDA driver
    "cache dir",
    "Cannot find",  # its assembler
    "PassManager",  # its compiler
    "no kernel image",
    "kernel image is invalid",
    "unsupported toolchain",  # a driver older than Triton's assembler
    "operation not supported",
)
"""Parts of RuntimeErrors. Others, as of an illegal access to memory, are the program's own."""

_failure: str | None = None  # of a real kernel
_found: dict[int, str | None] = {}  # by the trial on each GPU


def why_not() -> str | None:
    """Why kernels cannot run on the current GPU, and what to do; or None."""
    if _failure is not None or interpreting():
        return _failure
    if not torch.cuda.is_initialized() and not torch.cuda.is_available():
        return "torch sees no GPU"
    index = torch.cuda.current_device()
    if index not in _found:
        # Within a transformation or a capture nothing can be launched; the next time, perhaps.
        if not readable(torch.empty(0)) or torch.cuda.is_current_stream_capturing():
            return None
        _found[index] = try_out(index)
    return _found[index]


def try_out(index: int) -> str | None:
    """:func:`why_not` for the GPU of that number, by a trial where the card will do."""
    if torch.version.hip is not None:
        return "its kernels are for NVIDIA's GPUs"
    if not supports_grid_barrier(torch.device("cuda", index)):
        major, minor = torch.cuda.get_device_capability(index)
        return f"this GPU's compute capability is {major}.{minor}, and its kernels need 8.0"
    try:
        trial(index)
    except Exception as error:
        if not raised_in_triton(error):
            raise
        return explain(error) or first_line(error)
    return None


def trial(index: int) -> None:
    """Launch the smallest kernel on the GPU of that number, and wait for it."""
    from .triton_trial import add_one  # needs Triton

    with torch.cuda.device(index):
        number = torch.zeros(1, device="cuda", dtype=torch.float32)
        add_one[(1,)](number)
        torch.cuda.synchronize()


def attempt(launch: Callable, otherwise: Callable):
    """``launch()``, or ``otherwise()`` where Triton can neither compile nor launch its kernels.

    From then on no kernel is tried again. What fails must not have changed anything: it is called
    for a forward, whose first launch comes before all else is written.
    """
    try:
        return launch()
    except Exception as error:
        give_up(error)
    return otherwise()


def give_up(error: Exception) -> None:
    """Use the engine no more; raises ``error`` again if it is not one of Triton's circumstances."""
    global _failure
    reason = explain(error) if raised_in_triton(error) and not interpreting() else None
    if reason is None:
        raise error
    _failure = reason


def stop(error: Exception) -> None:
    """In a backward, for which no other engine can step in.

    Raises:
        UserError: Triton cannot compile or launch; ``error`` itself, if it is of another kind.
    """
    give_up(error)
    raise UserError(
        f"engine 'triton' cannot run the backward: {_failure}; or start again with "
        "CASRNN_ENGINE=eager in the environment"
    ) from error


def raised_in_triton(error: Exception) -> bool:
    """Whether the error comes out of Triton, not of the operations around a launch."""
    names = (f.f_globals.get("__name__", "") for f, _ in traceback.walk_tb(error.__traceback__))
    return any(name.partition(".")[0] == "triton" for name in names)


def explain(error: Exception) -> str | None:
    """What is missing and what to do, in half a sentence; None for errors of another kind."""
    compiler = "install gcc, or name a C compiler in the environment variable CC"
    if isinstance(error, subprocess.CalledProcessError):
        return (
            f"Triton's stub in C does not compile ({error.cmd[0]} ended with status "
            f"{error.returncode}); install Python's headers (python3-dev)"
        )
    if isinstance(error, OSError) and error.filename == os.environ.get("CC", ""):
        return f"{error.filename} is no C compiler ({error.strerror}); {compiler}"
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        return (
            f"Triton's cache of kernels cannot be written ({error}); name a folder where it can in "
            "the environment variable TRITON_CACHE_DIR"
        )
    if isinstance(error, RuntimeError) and "C compiler" in str(error):
        return f"Triton needs a C compiler; {compiler}"
    refused = isinstance(error, RuntimeError) and any(part in str(error) for part in REFUSALS)
    if refused or isinstance(error, (FileNotFoundError, ImportError, *_triton_errors())):
        return f"Triton cannot compile or launch its kernels ({first_line(error)})"
    return None


def _triton_errors() -> tuple[type, ...]:
    """Of Triton's compiler; none where it was not imported."""
    errors = sys.modules.get("triton.errors")
    return () if errors is None else (errors.TritonError,)


def first_line(error: Exception) -> str:
    """The error in a line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]

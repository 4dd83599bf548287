"""Detect whether Triton works on this machine: compiler, driver, a writable cache folder.

At the first launch, Triton compiles the kernel and a stub in C into a folder in the user's home. If
that fails, ``eager`` runs instead, and a message says why. Failures are detected in two places:
:func:`why_not` launches a trivial kernel before an engine is chosen, and :func:`attempt` wraps the
launches of real kernels, since the trivial one may come from the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar

import torch

from ...errors import UserError
from ..memory import readable
from .plan import interpreting, supports_grid_barrier

R = TypeVar("R")

REFUSALS = (
    "active drivers",  # no CUDA driver
    "cache dir",
    "Cannot find",  # the assembler is missing
    "PassManager",  # the compiler failed
    "no kernel image",
    "kernel image is invalid",
    "unsupported toolchain",  # the driver is older than Triton's assembler
    "operation not supported",
)
"""Substrings of Triton's own RuntimeErrors. Others, such as illegal memory accesses, are bugs."""

failure: str | None = None
"""Why a kernel of the engine failed, or None if none has."""
trials: dict[int, str | None] = {}
"""The result of :func:`try_out` by GPU index."""


def why_not() -> str | None:
    """Why kernels cannot run on the current GPU, with a remedy; or None."""
    if failure is not None or interpreting():
        return failure
    if not torch.cuda.is_initialized() and not torch.cuda.is_available():
        return "torch sees no GPU"
    index = torch.cuda.current_device()
    if index not in trials:
        # Within a transformation or a graph capture, nothing can be launched: try again later.
        if not readable(torch.empty(0)) or torch.cuda.is_current_stream_capturing():
            return None
        trials[index] = try_out(index)
    return trials[index]


def try_out(index: int) -> str | None:
    """:func:`why_not` for the GPU ``index``: check its type, then launch a trial kernel."""
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
    """Launch a trivial kernel on the GPU ``index`` and wait for it."""
    from .kernels.trial import add_one  # needs Triton

    with torch.cuda.device(index):
        number = torch.zeros(1, device="cuda", dtype=torch.float32)
        add_one[(1,)](number)
        torch.cuda.synchronize()


def attempt(launch: Callable[[], R], otherwise: Callable[[], R]) -> R:
    """``launch()``, or ``otherwise()`` if Triton can neither compile nor launch its kernels.

    After such a failure, no kernel is tried again. ``launch`` must not have side effects if it
    fails; a forward writes nothing before its first launch.
    """
    try:
        return launch()
    except Exception as error:
        give_up(error)
    return otherwise()


def give_up(error: Exception) -> None:
    """Stop using the engine. Raises ``error`` again unless Triton's environment caused it."""
    global failure
    reason = explain(error) if raised_in_triton(error) and not interpreting() else None
    if reason is None:
        raise error
    failure = reason


def stop(error: Exception) -> NoReturn:
    """:func:`give_up` in a backward pass, which no other engine can continue.

    Raises:
        UserError: Triton cannot compile or launch. Any other ``error`` is raised as it is.
    """
    give_up(error)
    raise UserError(
        f"engine 'triton' cannot run the backward: {failure}; or start again with "
        "CASRNN_ENGINE=eager in the environment"
    ) from error


def raised_in_triton(error: Exception) -> bool:
    """Whether the error was raised within Triton, and not by an operation around a launch."""
    names = (f.f_globals.get("__name__", "") for f, _ in traceback.walk_tb(error.__traceback__))
    return any(name.partition(".")[0] == "triton" for name in names)


def explain(error: Exception) -> str | None:
    """A clause with the cause and a remedy; None for other kinds of errors."""
    compiler = "install gcc, or name a C compiler in the environment variable CC"
    if isinstance(error, subprocess.CalledProcessError):
        return (
            f"Triton's stub in C does not compile ({error.cmd[0]} ended with status "
            f"{error.returncode}); install Python's headers (python3-dev)"
        )
    if isinstance(error, OSError) and error.filename == os.environ.get("CC", ""):
        return f"{error.filename} is not a usable C compiler ({error.strerror}); {compiler}"
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


def _triton_errors() -> tuple[type[Exception], ...]:
    """The exceptions of Triton's compiler; empty if Triton was not imported."""
    errors = sys.modules.get("triton.errors")
    return () if errors is None else (errors.TritonError,)


def first_line(error: Exception) -> str:
    """The error's type and first line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]

"""Tensors and cells that engine ``triton`` supports, and whether Triton is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterable

import torch
from torch import Tensor

from ...cells.base import Cell
from ..inputs import accumulation_dtype
from .plan import interpreting

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
OLDEST = 3, 6
"""The oldest version of Triton that works."""


def missing() -> str | None:
    """Why engine ``triton`` is not available in this installation, or None."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:  # a distribution under another name
        return None
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        return f"Triton {version} is too old; it needs {'.'.join(map(str, OLDEST))} or newer"
    return None


def runs_on(device: str) -> bool:
    """Whether kernels run on this type of device: a GPU or, in Triton's interpreter, the CPU."""
    return device == "cuda" or (device == "cpu" and interpreting())


def why_not(
    cell: Cell, tensors: Iterable[Tensor | None], states: Iterable[Tensor | None] = ()
) -> str | None:
    """Why the kernels cannot run ``cell`` on these tensors, or None. None among them is ignored.

    All must have the same dtype, but ``states`` may also have the accumulation dtype.
    """
    if cell.kernel is None:
        return f"it has no kernel for {type(cell).__name__}"
    return why_not_on(tensors, states)


def why_not_on(
    tensors: Iterable[Tensor | None], states: Iterable[Tensor | None] = ()
) -> str | None:
    """Why kernels cannot run on these tensors, or None; see :func:`why_not`."""
    tensors = list(tensors)
    first = next(t for t in tensors if t is not None)
    device, dtype = first.device, first.dtype
    if not runs_on(device.type):
        return f"it runs on CUDA tensors, these are on {device.type}"
    if dtype not in DTYPES:
        return f"it does not run in {dtype}"
    wide = accumulation_dtype(dtype)
    for given, allowed in ((tensors, (dtype,)), (states, (dtype, wide))):
        for t in given:
            if t is not None and t.device != device:
                return "the tensors are on several devices"
            if t is not None and t.dtype not in allowed:
                return "the tensors are of several dtypes"
    return None

"""Whether the kernels of :mod:`.triton_sequences` can run a layer, their tiles and their launch.

U is spread over the programs of a tile of rows, and all programs must be on the GPU at once, one a
multiprocessor, so there must be memory and multiprocessors enough.

Tiles depend on the batch, and a kernel is compiled for each: batches of very different sizes cost
some compilations more (seconds to two minutes each, kept in Triton's cache).
"""

from __future__ import annotations

import itertools
import os
from typing import NamedTuple

import torch

LOADED = 128
"""Rows of tiles that are loaded before the first is multiplied: as many as registers hold."""
SPARE = 4 * 1024
"""Bytes of a multiprocessor's memory left for anything but products' factors."""
H200 = 132, 227 * 1024
"""Multiprocessors, and bytes of memory that a program may have on each."""
OFF = ("", "0", "false", "False")
"""Values of an environment variable that turn off what it names."""


class RefusedError(RuntimeError):
    """The GPU has no room for a kernel; it has not run."""


class Plan(NamedTuple):
    """How a kernel is launched.

    Attributes:
        grid: numbers of tiles of rows and of units.
        tiles: sizes, by the names of the kernel's arguments.
    """

    grid: tuple[int, int]
    tiles: dict


def interpreting() -> bool:
    """Whether Triton interprets its kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") not in OFF


def chip(device: torch.device) -> tuple[int, int]:
    """Multiprocessors and bytes for a program on ``device``; an H200's for the interpreter."""
    if device.type != "cuda":
        return H200
    found = torch.cuda.get_device_properties(device)
    return found.multi_processor_count, found.shared_memory_per_block_optin


def meets(device: torch.device) -> bool:
    """Whether programs on ``device`` may wait for each other: on NVIDIA's from Ampere on."""
    if device.type != "cuda":
        return True
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def wanted() -> bool:
    """Whether whole sequences may be launched: not with CASRNN_TRITON_SEQUENCES=0."""
    return os.environ.get("CASRNN_TRITON_SEQUENCES", "1") not in OFF


def plan(cell, weight_hh: torch.Tensor, batch: int) -> Plan | None:
    """How a sequence is launched whole, with as few rows a program as there is room for, or None.

    Args:
        cell: the cell.
        weight_hh: ``(hh_blocks*H, H)``.
        batch: number of rows.
    """
    size, dtype = weight_hh.size(1), weight_hh.dtype
    known = dtype != torch.float64 or interpreting()
    if not (wanted() and known and meets(weight_hh.device)):
        return None
    processors, memory = chip(weight_hh.device)
    factors = factors_of(dtype)
    # Factors that are split in two are kept in two parts.
    width = weight_hh.element_size() * (2 if factors["PRECISION"] == "tf32x3" else 1)
    depth = 16 if size <= 16 else 32 if size <= 32 else 64
    chunks = -(-size // depth)
    # Rather more rows a program than few tiles loaded at once.
    for least, rows, units in itertools.product((LOADED // 2, 1), (16, 32, 64, 128), (32, 16, 8)):
        # Warps share out the larger side of a tile: of 16 rows and 16 units all would do the same.
        if units == 32 and rows != 16:
            continue
        grid = -(-batch // rows), -(-size // units)
        # What is left beside U holds the tiles that it is multiplied with.
        left = (memory - SPARE) // (depth * width) - cell.hh_blocks * units * chunks
        group = min(LOADED, left) // rows
        if grid[0] * grid[1] <= processors and group * rows >= least:
            tiles = {"ROWS": rows, "UNITS": units, "DEPTH": depth, "CHUNKS": chunks}
            return Plan(grid, tiles | {"GROUP": group} | factors)
    return None


def factors_of(dtype: torch.dtype) -> dict:
    """The dtype of products' factors, and how float32 ones are multiplied on a GPU.

    They are rounded to TF32 where torch's own products may be, and otherwise split in sums of two
    such numbers.
    """
    import triton.language as tl  # only where there is Triton

    if dtype == torch.float32:
        return {"FACTOR": tl.float32, "PRECISION": "tf32" if may_round() else "tf32x3"}
    factor = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}.get(dtype, tl.float64)
    if interpreting() and dtype != torch.float64:
        factor = tl.float32  # exact, where the interpreter's products of half precision are not
    return {"FACTOR": factor, "PRECISION": "ieee"}


def may_round() -> bool:
    """Whether torch's own products of float32 matrices on a GPU may be rounded to TF32."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was set with torch's newer switch
        return torch.backends.cuda.matmul.fp32_precision == "tf32"


def launch(kernel, how: Plan, steps: int, /, backwards: bool = False, **arguments) -> None:
    """Run a kernel of :mod:`.triton_sequences` over all steps, the last one first if backwards.

    Raises:
        RefusedError: the programs do not fit on the GPU after all.
    """
    tensor = arguments["gates"]
    count = torch.zeros(how.grid[0], dtype=torch.int32, device=tensor.device)
    arguments |= how.tiles | {"count": count}
    if interpreting():
        for t in reversed(range(steps)) if backwards else range(steps):
            kernel[how.grid](**arguments, begin=t, end=t + 1, MEET=False)
        return
    try:
        kernel[how.grid](
            **arguments,
            begin=0,
            end=steps,
            MEET=True,
            num_warps=4 if how.tiles["ROWS"] <= 64 else 8,
            num_stages=1,
            launch_cooperative_grid=True,
        )
    except Exception as error:
        # Triton's OutOfResources; CUDA's "too many blocks in cooperative launch"; or it has none
        refusals = ("OutOfResources", "cooperative", "operation not supported")
        if not any(words in f"{type(error).__name__}: {error}" for words in refusals):
            raise
        raise RefusedError(str(error)) from error

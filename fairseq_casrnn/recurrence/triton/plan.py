"""Whether the kernels of :mod:`.kernels.sequences` can run a layer, and their tiles.

A multiprocessor runs one program at a time, and programs that wait for each other must be on the
GPU at the same time: UNITS is chosen so that there are no more tiles of units than multiprocessors.
A kernel is compiled per layer size, dtype and one of two heights of row tiles, for any batch size.
"""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...cells.base import Cell

HEIGHTS = 16, 32
"""Rows of a tile: the first spreads a batch over the GPU; the second if not all tiles fit then."""
DEPTHS = 256, 128
"""Columns that are loaded and multiplied at once."""
AHEAD = {2: 3, 4: 2, 8: 2}
"""How many such groups of columns are prefetched into registers, by bytes of a weight."""
SUMS = 32 * 16 * 5
"""Elements of products' results that fit in the registers of each warp at once."""
SPARE = 1024
"""Bytes of shared memory left for anything but products' factors."""
GIVEN = tuple(1 << bit for bit in range(5))
"""Bits of the kernels' argument ``given``: whether there are ``last`` and gradients of all h, all
c, the last h and the last c. With None for these, a kernel would be compiled per combination."""
OFF = ("", "0", "false", "False")
"""Values of an environment variable that mean no."""


class Plan(NamedTuple):
    """How a kernel is launched.

    Attributes:
        grid: numbers of tiles of rows and of units.
        tiles: the kernel's arguments of the tiles' sizes, by name.
    """

    grid: tuple[int, int]
    tiles: dict[str, Any]


class Chip(NamedTuple):
    """What bounds a launch on a GPU.

    Attributes:
        processors: number of multiprocessors.
        memory: bytes of shared memory that a program may have on each.
    """

    processors: int
    memory: int


H200 = Chip(132, 227 * 1024)


def interpreting() -> bool:
    """Whether Triton interprets its kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") not in OFF


@functools.cache
def chip(device: torch.device) -> Chip:
    """The chip of ``device``; H200's in the interpreter."""
    if device.type != "cuda":
        return H200
    found = torch.cuda.get_device_properties(device)
    memory: int = found.shared_memory_per_block_optin  # type: ignore[attr-defined] # not in stubs
    return Chip(found.multi_processor_count, memory)


@functools.cache
def supports_grid_barrier(device: torch.device) -> bool:
    """Whether programs on ``device`` may wait for each other: NVIDIA's from Ampere on."""
    if device.type != "cuda":
        return True
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def persistent_kernels_enabled() -> bool:
    """Whether a launch may run a whole sequence: not with CASRNN_TRITON_SEQUENCES=0."""
    return os.environ.get("CASRNN_TRITON_SEQUENCES", "1") not in OFF


def plan(cell: Cell, weight_hh: Tensor, batch: int, backwards: bool = False) -> Plan | None:
    """How one launch runs a whole sequence; None if it cannot.

    Args:
        cell: the cell.
        weight_hh: ``(hh_blocks*H, H)``.
        batch: number of rows.
        backwards: whether it is for the backward.
    """
    if not (persistent_kernels_enabled() and supports_grid_barrier(weight_hh.device)):
        return None
    rounded = weight_hh.dtype == torch.float32 and may_round()
    key = PlanKey(cell.hh_blocks, weight_hh.size(1), weight_hh.dtype, weight_hh.device)
    return _plan(key, batch, backwards, rounded, interpreting())


class PlanKey(NamedTuple):
    """What a plan depends on in a recurrent weight: its blocks, H, dtype and device."""

    blocks: int
    size: int
    dtype: torch.dtype
    device: torch.device


@functools.lru_cache(maxsize=1024)
def _plan(
    key: PlanKey, batch: int, backwards: bool, rounded: bool, interpreted: bool
) -> Plan | None:
    """:func:`plan`, which depends on nothing else."""
    blocks, size, dtype, device = key
    if dtype == torch.float64 and not interpreted:
        return None
    factors = factors_of(dtype)
    parts = 2 if factors["PRECISION"] == "tf32x3" else 1
    product = Product(size, blocks, dtype.itemsize, parts, backwards)
    processors, memory = chip(device)
    tiles = layout(product, batch, processors, memory)
    if tiles is None:
        return None
    columns = -(-size // tiles["UNITS"])
    grid = min(-(-batch // tiles["ROWS"]), processors // columns), columns
    return Plan(grid, tiles | factors)


class Product(NamedTuple):
    """The recurrent product of each step.

    Attributes:
        size: H.
        blocks: of U, ``(blocks*H, H)``.
        width: bytes of a weight.
        parts: number of factors into which a weight is split, of ``width`` bytes each.
        backwards: whether it sums over the rows of U; if not, each block has a result of its own.
    """

    size: int
    blocks: int
    width: int
    parts: int
    backwards: bool


def layout(product: Product, batch: int, processors: int, memory: int) -> dict[str, Any] | None:
    """The tiles' sizes, or None if a tile does not fit; for the GPU's numbers see :func:`chip`."""
    size, blocks, width, parts, backwards = product
    results, summed = (1, blocks * size) if backwards else (blocks, size)
    units = next((n for n in (16, 32, 64) if -(-size // n) <= processors), None)
    if units is None:
        return None
    columns = -(-size // units)
    rows = next((n for n in HEIGHTS if -(-batch // n) * columns <= processors), HEIGHTS[-1])
    group = -(-results // -(-results * rows * units // SUMS))  # as few groups as possible
    tiles = {
        "ROWS": rows,
        "UNITS": units,
        "SPLIT": rows // 4,
        "GROUP": group,
        "AHEAD": AHEAD[width],
    }
    # Memory beside the weights: a part of the rows, or the sums of all warps for a block.
    scratch = max(rows * max(DEPTHS), rows // 4 * rows * units) * 4 + SPARE
    # Few parts, since each is unrolled, unless they would exceed the width by more than a tenth.
    depth = min(DEPTHS, key=lambda n: -(-summed // n) * n * (1 if n == DEPTHS[0] else 1.1))
    kept = -(-summed // depth) * depth * units * results * width * parts
    if kept + scratch <= memory:
        return tiles | {"DEPTH": depth, "RESIDENT": True}
    depth = DEPTHS[-1]
    ahead = 2 * (rows + units * group) * depth * width  # two parts of both factors
    return tiles | {"DEPTH": depth, "RESIDENT": False} if ahead + scratch <= memory else None


def factors_of(dtype: torch.dtype) -> dict[str, Any]:
    """The kernels' arguments FACTOR, the dtype of products' factors, and PRECISION.

    float32 factors are rounded to TF32 if torch's own products may be; otherwise each is split into
    a sum of two such numbers.
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
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")

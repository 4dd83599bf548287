"""Decide whether the kernels of :mod:`.kernels.sequences` can run a layer, and choose their tiles.

A multiprocessor runs one program at a time, and programs that wait for each other must all run at
the same time. UNITS is therefore chosen so that there are no more tiles of units than
multiprocessors. One kernel is compiled for each hidden size, dtype and tile height, of which there
are two; it serves any batch size.
"""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...cells.base import Cell

HEIGHTS = 16, 32
"""Rows of a tile: the first, which uses more multiprocessors, unless the tiles do not all fit."""
DEPTHS = 256, 128
"""Columns that are loaded and multiplied at a time."""
AHEAD = {2: 3, 4: 2, 8: 2}
"""How many such groups of columns are prefetched into registers, by bytes per weight."""
SUMS = 32 * 16 * 5
"""Elements of products' results that fit in a warp's registers."""
SPARE = 1024
"""Bytes of shared memory reserved for anything but the factors of products."""
GIVEN = tuple(1 << bit for bit in range(5))
"""Bits of the kernels' argument ``given``: which of ``last`` and the gradients of hs, cs, h_n and
c_n are given. If None were passed for missing ones, each combination would need its own kernel."""
OFF = ("", "0", "false", "False")
"""Values of an environment variable that mean "off"."""


class Tiles(NamedTuple):
    """How a kernel divides its work, as compile-time constants.

    Attributes:
        ROWS: rows of the batch in a program's tile.
        UNITS: hidden units in a program's tile.
        DEPTH: columns that are loaded and multiplied at a time.
        SPLIT: parts into which the sum of a product is divided, one per warp.
        GROUP: maximum blocks of U that are multiplied at a time.
        AHEAD: number of groups of DEPTH columns that are prefetched, if RESIDENT.
        RESIDENT: whether weights stay in shared memory.
        FACTOR: dtype of a product's operands.
        PRECISION: ``input_precision`` of tl.dot, or "tf32x3", see :func:`.to_dot_operands`.
    """

    ROWS: int
    UNITS: int
    DEPTH: int = 0
    SPLIT: int = 0
    GROUP: int = 0
    AHEAD: int = 0
    RESIDENT: bool = False
    FACTOR: Any = None
    PRECISION: str = ""


class CellShape(NamedTuple):
    """The shapes of a cell's tensors, as compile-time constants.

    Attributes:
        BLOCKS: blocks of H pre-activations, W x.
        PRODUCTS: blocks of U h.
        ADDED: how many of PRODUCTS are added to the pre-activations: all, or all but the last.
        PARAMS: rows of elementwise parameters.
        GRADS: rows for which to compute gradients: PARAMS or 0.
        CELLS: number of cells of a mixture, otherwise 0.
    """

    BLOCKS: int
    PRODUCTS: int
    ADDED: int
    PARAMS: int
    GRADS: int
    CELLS: int


def shape_of(cell: Cell, rows: Tensor | None) -> CellShape:
    """The constants of a cell with elementwise parameters ``rows`` (…, PARAMS, H)."""
    params = 0 if rows is None else rows.size(-2)
    return CellShape(
        BLOCKS=cell.ih_blocks,
        PRODUCTS=cell.hh_blocks,
        ADDED=cell.hh_blocks - cell.num_separate_gates,
        PARAMS=params,
        GRADS=params if cell.params else 0,
        CELLS=cell.num_cells,
    )


class Plan(NamedTuple):
    """The grid of a launch, numbers of tiles of rows and of units, and its tiles."""

    grid: tuple[int, int]
    tiles: Tiles


class Chip(NamedTuple):
    """The limits of a GPU for a launch.

    Attributes:
        processors: number of multiprocessors.
        memory: maximum bytes of shared memory per program.
    """

    processors: int
    memory: int


H200 = Chip(132, 227 * 1024)


def interpreting() -> bool:
    """Whether Triton interprets its kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") not in OFF


@functools.cache
def chip(device: torch.device) -> Chip:
    """The limits of ``device``; in the interpreter those of an H200."""
    if device.type != "cuda":
        return H200
    found = torch.cuda.get_device_properties(device)
    memory: int = found.shared_memory_per_block_optin  # type: ignore[attr-defined] # not in stubs
    return Chip(found.multi_processor_count, memory)


@functools.cache
def supports_grid_barrier(device: torch.device) -> bool:
    """Whether programs on ``device`` may wait for each other: on NVIDIA GPUs from Ampere on."""
    if device.type != "cuda":
        return True
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def persistent_kernels_enabled() -> bool:
    """Whether a launch may run a whole sequence; CASRNN_TRITON_SEQUENCES=0 disables this."""
    return os.environ.get("CASRNN_TRITON_SEQUENCES", "1") not in OFF


def plan(cell: Cell, weight_hh: Tensor, batch: int, backwards: bool = False) -> Plan | None:
    """The plan for running a whole sequence in one launch; None if that is impossible.

    Args:
        cell: the cell.
        weight_hh: ``(hh_blocks*H, H)``.
        batch: number of rows.
        backwards: whether to plan the backward.
    """
    if not (persistent_kernels_enabled() and supports_grid_barrier(weight_hh.device)):
        return None
    rounded = weight_hh.dtype == torch.float32 and may_round()
    key = PlanKey(cell.hh_blocks, weight_hh.size(1), weight_hh.dtype, weight_hh.device)
    return _plan(key, batch, backwards, rounded, interpreting())


class PlanKey(NamedTuple):
    """The properties of a recurrent weight that determine a plan: blocks, H, dtype, device."""

    blocks: int
    size: int
    dtype: torch.dtype
    device: torch.device


@functools.lru_cache(maxsize=1024)
def _plan(
    key: PlanKey, batch: int, backwards: bool, rounded: bool, interpreted: bool
) -> Plan | None:
    """:func:`plan`, cached by everything it depends on."""
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
    columns = -(-size // tiles.UNITS)
    grid = min(-(-batch // tiles.ROWS), processors // columns), columns
    return Plan(grid, tiles._replace(**factors))


class Product(NamedTuple):
    """The recurrent product of each step.

    Attributes:
        size: H.
        blocks: number of blocks of U, ``(blocks*H, H)``.
        width: bytes per weight.
        parts: number of terms into which each weight is split, of ``width`` bytes each.
        backwards: whether the product sums over all rows of U; otherwise each block has a result.
    """

    size: int
    blocks: int
    width: int
    parts: int
    backwards: bool


def layout(product: Product, batch: int, processors: int, memory: int) -> Tiles | None:
    """The tiles, without FACTOR and PRECISION, or None if no tile fits; limits as in `Chip`."""
    size, blocks, width, parts, backwards = product
    results, summed = (1, blocks * size) if backwards else (blocks, size)
    units = next((n for n in (16, 32, 64) if -(-size // n) <= processors), None)
    if units is None:
        return None
    columns = -(-size // units)
    rows = next((n for n in HEIGHTS if -(-batch // n) * columns <= processors), HEIGHTS[-1])
    # Blocks per group, with as few groups as possible.
    group = -(-results // -(-results * rows * units // SUMS))
    tiles = Tiles(rows, units, SPLIT=rows // 4, GROUP=group, AHEAD=AHEAD[width])
    # Memory besides the weights: a part of the rows, or all warps' partial sums for a block.
    scratch = max(rows * max(DEPTHS), rows // 4 * rows * units) * 4 + SPARE
    # Few parts, since their loop is unrolled, unless padding would add more than a tenth.
    depth = min(DEPTHS, key=lambda n: -(-summed // n) * n * (1 if n == DEPTHS[0] else 1.1))
    kept = -(-summed // depth) * depth * units * results * width * parts
    if kept + scratch <= memory:
        return tiles._replace(DEPTH=depth, RESIDENT=True)
    depth = DEPTHS[-1]
    ahead = 2 * (rows + units * group) * depth * width  # two parts of both factors
    return tiles._replace(DEPTH=depth) if ahead + scratch <= memory else None


def factors_of(dtype: torch.dtype) -> dict[str, Any]:
    """FACTOR, the dtype of products' operands, and PRECISION of :class:`Tiles`, by name.

    float32 factors are rounded to TF32 if torch may do so in its own products; otherwise each
    factor is split into a sum of two TF32 numbers.
    """
    import triton.language as tl  # Triton may not be installed

    if dtype == torch.float32:
        return {"FACTOR": tl.float32, "PRECISION": "tf32" if may_round() else "tf32x3"}
    factor = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}.get(dtype, tl.float64)
    if interpreting() and dtype != torch.float64:
        factor = tl.float32  # the interpreter's products of half precision are inexact
    return {"FACTOR": factor, "PRECISION": "ieee"}


def may_round() -> bool:
    """Whether torch's own products of float32 matrices on a GPU may be rounded to TF32."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # set through torch's newer switch
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")

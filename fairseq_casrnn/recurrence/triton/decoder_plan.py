"""Launch the kernels of :mod:`.kernels.decoder`: grid, tile sizes, phases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .barriers import launch_together, zeros
from .host import kernels
from .plan import Tiles, factors_of, interpreting

WARPS = 8
"""Warps of a program, among which the sum of a product is divided."""
STAGES = 3
"""Pipeline stages of the loads in a product."""
ROWS = 16, 32
"""Tile heights: the second if, with the first, the rows do not all fit on the GPU at once."""


class Tiling(NamedTuple):
    """The grid (tiles of rows, tiles of units), and the rows and units of a tile."""

    grid: tuple[int, int]
    rows: int
    units: int


class AttentionTiles(NamedTuple):
    """How the attention divides its work, as compile-time constants.

    Attributes:
        ROWS: rows of the batch that a program computes at a time.
        SPAN: source positions that it reads at a time.
        CHUNK: features that it reads at a time.
    """

    ROWS: int
    SPAN: int
    CHUNK: int


def tiling(size: int, batch: int, processors: int) -> Tiling | None:
    """The division of rows and units into tiles, or None if it does not fit.

    A tile's units depend only on the hidden size, and its rows are one of two numbers, so that few
    kernels suffice for all batch sizes.
    """
    for units in (16, 32):
        across = -(-size // units)
        if across <= processors:
            break
    else:
        return None
    room = processors // across
    rows = ROWS[0] if batch <= ROWS[0] * room else ROWS[1]
    return Tiling((min(-(-batch // rows), room), across), rows, units)


def tiles(size: int, tile_plan: Tiling, dtype: torch.dtype) -> tuple[Tiles, AttentionTiles]:
    """The tiles of the layers and of the attention, for weights of this dtype."""
    share = -(-tile_plan.rows // tile_plan.grid[1])  # rows whose attention a program computes
    rows_at_once = min(4, 1 << (share - 1).bit_length())
    width = 1 if dtype in (torch.float16, torch.bfloat16) else 2
    chunk = max(16, min(128, 1 << (size - 1).bit_length()))
    depth = 256 // width
    return (
        Tiles(tile_plan.rows, tile_plan.units, DEPTH=depth, SPLIT=WARPS, **factors_of(dtype)),
        AttentionTiles(rows_at_once, 32 // rows_at_once, chunk),
    )


def launch(
    kernel: Any,
    phases: tuple[str, ...],
    tile_plan: Tiling,
    backwards: bool = False,
    **arguments: Any,
) -> None:
    """Run a kernel over all steps, in one launch, or in the interpreter phase by phase.

    With ``backwards``, steps and layers are in reverse order.

    Raises:
        RefusedError: the programs do not fit on the GPU at the same time.
    """
    layers, steps = arguments["layers"], arguments["steps"]
    if interpreting():
        arguments["count"] = None
        for t in reversed(range(steps)) if backwards else range(steps):
            for phase, layer in order(phases, layers, backwards):
                first, last = (1, 1) if layer is None else (layer, layer + 1)
                kernel[tile_plan.grid](
                    **arguments, begin=t, end=t + 1, first=first, last=last, PHASE=phase
                )
        return
    tensor = arguments["saved"].hs
    arguments["count"] = zeros(
        tile_plan.grid[0] * kernels("decoder").COUNTER_STRIDE.value, tensor.device
    )
    options = {"PHASE": "all", "num_warps": WARPS, "num_stages": STAGES}
    span = {"begin": 0, "end": steps, "first": 1, "last": layers}
    with torch.cuda.device_of(tensor):  # there may be several GPUs
        launch_together(kernel, tile_plan.grid, **arguments, **span, **options)


def order(
    phases: tuple[str, ...], layers: int, backwards: bool
) -> Iterator[tuple[str, int | None]]:
    """The phases of a step, each with its layer if it is a phase of the upper layers."""
    upper = [phase for phase in phases if phase in ("upper", "between")]
    for phase in phases:
        if phase not in upper:
            yield phase, None
        elif phase == upper[0]:
            for layer in range(layers - 1, 0, -1) if backwards else range(1, layers):
                for part in upper:
                    yield part, layer

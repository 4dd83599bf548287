"""How the kernels of :mod:`.kernels.decoder` are launched: grid, tiles, phases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .barriers import launch_together, zeros
from .host import kernels
from .plan import factors_of, interpreting

WARPS = 8
"""Warps of a program; each computes a part of a product's sum."""
STAGES = 3
"""Pipeline stages of the loads in a product."""
ROWS = 16, 32
"""Heights of tiles: the second if not all rows fit on the GPU at once with the first."""


class Tiling(NamedTuple):
    """The grid of programs (tiles of rows, tiles of units) and a program's tile."""

    grid: tuple[int, int]
    rows: int
    units: int


def tiling(size: int, batch: int, processors: int) -> Tiling | None:
    """How rows and units are divided into tiles, or None if they do not fit.

    The units of a tile depend on the size alone, and its rows are one of two numbers, so that few
    kernels serve batches of all sizes.
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


def tiles(size: int, how: Tiling, dtype: torch.dtype) -> dict[str, Any]:
    """The kernels' arguments of the tiles' sizes and the products' precision, by name."""
    share = -(-how.rows // how.grid[1])  # rows whose attention a program computes
    together = min(4, 1 << (share - 1).bit_length())
    halved = 1 if dtype in (torch.float16, torch.bfloat16) else 2
    return {
        "ROWS": how.rows,
        "UNITS": how.units,
        "RB": together,
        "SPAN": 32 // together,
        "CHUNK": max(16, min(128, 1 << (size - 1).bit_length())),
        "DEPTH": 256 // halved,
        "SPLIT": WARPS,
        **factors_of(dtype),
    }


def launch(
    kernel: Any, phases: tuple[str, ...], how: Tiling, backwards: bool = False, **arguments: Any
) -> None:
    """Run a kernel over all steps: in one launch, or phase by phase in the interpreter.

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
                kernel[how.grid](
                    **arguments, begin=t, end=t + 1, first=first, last=last, PHASE=phase
                )
        return
    tensor = arguments["hs"]
    arguments["count"] = zeros(how.grid[0] * kernels("decoder").APART.value, tensor.device)
    options = {"PHASE": "all", "num_warps": WARPS, "num_stages": STAGES}
    span = {"begin": 0, "end": steps, "first": 1, "last": layers}
    with torch.cuda.device_of(tensor):  # there may be several GPUs
        launch_together(kernel, how.grid, **arguments, **span, **options)


def order(
    phases: tuple[str, ...], layers: int, backwards: bool
) -> Iterator[tuple[str, int | None]]:
    """The phases of a step; with those of the upper layers, the layer."""
    upper = [phase for phase in phases if phase in ("upper", "between")]
    for phase in phases:
        if phase not in upper:
            yield phase, None
        elif phase == upper[0]:
            for layer in range(layers - 1, 0, -1) if backwards else range(1, layers):
                for part in upper:
                    yield part, layer

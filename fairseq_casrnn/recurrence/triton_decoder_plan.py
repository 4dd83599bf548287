"""How the kernels of :mod:`.triton_decoder` are launched: grid, tiles, phases."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .triton_plan import factors_of, interpreting, launch_together, zeros
from .triton_steps import kernels

WARPS = 8
"""Of a program; they share out the sum of a product."""
STAGES = 3
"""Steps of a product for which memory is asked before the first has come."""
ROWS = 16, 32
"""Heights of tiles: the second where the first does not have all rows on the GPU at once."""


class Tiling(NamedTuple):
    """The grid of programs (tiles of rows, tiles of units) and a program's tile."""

    grid: tuple[int, int]
    rows: int
    units: int


def tiling(size: int, batch: int, processors: int) -> Tiling | None:
    """How rows and units are shared out, or None where there is no room.

    The units of a tile depend on the size alone, and of the rows there are two choices, so that
    batches of all sizes need few kernels.
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


def tiles(size: int, how: Tiling, dtype: torch.dtype) -> dict:
    """The kernels' arguments that say how they work, by name."""
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


def launch(kernel, phases: tuple[str, ...], how: Tiling, **arguments):
    """Run a kernel over all steps: whole, or phase by phase in the interpreter.

    Raises:
        RefusedError: the programs do not fit on the GPU at the same time.
    """
    backwards, layers, steps = phases[-1] == "bottom", arguments["layers"], arguments["steps"]
    if interpreting():
        arguments["count"] = None
        for t in reversed(range(steps)) if backwards else range(steps):
            for phase, several, layer in order(phases, layers, backwards):
                between = (layer, layer + 1) if several else (1, 1)
                kernel[how.grid](
                    **arguments, begin=t, end=t + 1, first=between[0], last=between[1], PHASE=phase
                )
        return
    tensor = arguments["hs"]
    arguments["count"] = zeros(how.grid[0] * kernels("decoder").APART.value, tensor.device)
    options = {"PHASE": -1, "num_warps": WARPS, "num_stages": STAGES}
    steps = {"begin": 0, "end": steps, "first": 1, "last": layers}
    with torch.cuda.device_of(tensor):  # there may be several GPUs
        launch_together(kernel, how.grid, **arguments, **steps, **options)


def order(phases: tuple[str, ...], layers: int, backwards: bool):
    """The phases of a step, as ``(number, whether of an upper layer, layer)``."""
    upper = [i for i, phase in enumerate(phases) if phase in ("upper", "between")]
    for i in range(len(phases)):
        if i not in upper:
            yield i, False, 0
        elif i == upper[0]:
            for layer in range(layers - 1, 0, -1) if backwards else range(1, layers):
                for phase in upper:
                    yield phase, True, layer

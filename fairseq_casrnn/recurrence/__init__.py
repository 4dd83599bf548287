"""How a cell is run over time: one signature, several engines (:mod:`.engine`).

With weights in float16 or bfloat16 all engines but ``reference`` keep the sums of gates and the
cell states in float32.
"""

from . import engines  # noqa: F401 (makes the engines known)
from .engine import ENGINES, Engine, autocast, choose, default, installed
from .inputs import HardRouting, InputProduct
from .layer import one_step, run

__all__ = [
    "ENGINES",
    "Engine",
    "HardRouting",
    "InputProduct",
    "autocast",
    "choose",
    "default",
    "installed",
    "one_step",
    "run",
]

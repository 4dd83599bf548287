"""Running a cell over time: one function, several engines.

:mod:`.base` says what an engine is, :mod:`.engines` has all of them, :mod:`.choice` chooses one.

For weights in float16 or bfloat16, all engines but ``reference`` keep pre-activations and cell
states in float32.
"""

from . import engines  # noqa: F401 (registers the engines)
from .base import Engine
from .choice import ENGINES, choose, default, installed
from .inputs import InputProduct
from .layer import one_step, run
from .mixture import HardRouting

__all__ = [
    "ENGINES",
    "Engine",
    "HardRouting",
    "InputProduct",
    "choose",
    "default",
    "installed",
    "one_step",
    "run",
]

"""Run a cell over time, on one of several engines.

===========================================  ==================================================
:mod:`.layer`                                :func:`run` and :func:`one_step`, for a layer
:mod:`.inputs`, :mod:`.mixture`              the inputs of engines
:mod:`.base`, :mod:`.engines`                the base class of engines, and all engines
:mod:`.choice`                               the choice of the engine that runs
:mod:`.reference`, :mod:`.eager`,            the engines' loops over time
:mod:`.cpp`, :mod:`.triton`
:mod:`.ragged`, :mod:`.memory`               padding; tensors that compiled code may read
:mod:`.decoding`, ``.decoder*``              the loop of the decoder with attention
:mod:`.sentence_state`                       steps of the sentence-state LSTM
:mod:`.products`, :mod:`.shared_weight`      linear maps in C++
:mod:`.cross_entropy`, :mod:`.next_words`    loss and beam search without a table of logits
===========================================  ==================================================

For weights in float16 or bfloat16, all engines but ``reference`` keep pre-activations and cell
states in float32.
"""

from . import engines  # noqa: F401 (registers the engines)
from .base import Engine
from .choice import ENGINES, check_name, choose, default, installed
from .inputs import InputProduct
from .layer import one_step, run
from .mixture import HardRouting

__all__ = [
    "ENGINES",
    "Engine",
    "HardRouting",
    "InputProduct",
    "check_name",
    "choose",
    "default",
    "installed",
    "one_step",
    "run",
]

"""fairseq and NLTK without libraries that they import for what we do not use.

A command that answers a line of text would else spend more time on these than on torch.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

# For the scores of RoBERTa's fine-tuning and of audio, and for NLTK's classifiers.
UNUSED = ("sklearn", "sklearn.metrics", "scipy", "scipy.stats")


class _StandIn(ModuleType):
    """A module whose functions import the real one when they are called."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **kwargs):
            return getattr(importlib.import_module(self.__name__), name)(*args, **kwargs)

        return call


@contextlib.contextmanager
def deferred_imports() -> Iterator[None]:
    """Within, :data:`UNUSED` modules that nobody has imported are not imported until they are used.

    Afterwards they are imported as ever; what was bound to their functions within calls these. Nor
    is garbage collected within: imports make a million objects that stay, and looking at them again
    and again takes a sixth of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    ours = {name: _StandIn(name) for name in UNUSED if name.partition(".")[0] not in sys.modules}
    for name, module in ours.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(ours[parent], child, module)
    sys.modules.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del sys.modules[name]
        gc.freeze()
        if collects:
            gc.enable()

"""Defer slow imports of fairseq and NLTK that inference does not use.

A command that processes a line of text would spend more time importing them than importing torch.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

# Imported for scores of RoBERTa's fine-tuning and of audio, and for NLTK's classifiers.
UNUSED = ("sklearn", "sklearn.metrics", "scipy", "scipy.stats")


class _DeferredModule(ModuleType):
    """A module whose functions import the real module when they are called."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **kwargs):
            return getattr(importlib.import_module(self.__name__), name)(*args, **kwargs)

        return call


@contextlib.contextmanager
def deferred_imports() -> Iterator[None]:
    """A context in which importing an :data:`UNUSED` module defers the import until its use.

    Afterwards they are imported as usual. Functions imported from them in the context import the
    module when they are called. Garbage collection is off in the context: imports create a million
    permanent objects, and scanning them repeatedly takes a sixth of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    missing = [name for name in UNUSED if name.partition(".")[0] not in sys.modules]
    deferred = {name: _DeferredModule(name) for name in missing}
    for name, module in deferred.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(deferred[parent], child, module)
    sys.modules.update(deferred)
    try:
        yield
    finally:
        for name in deferred:
            del sys.modules[name]
        gc.freeze()
        if collects:
            gc.enable()

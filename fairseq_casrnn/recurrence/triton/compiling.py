"""Compiling Triton's kernels: a message to the user, and threads that compile in advance.

The message appears once, because compiling makes the first steps slow. Threads of
:mod:`.ahead` compile a kernel instead of launching it; a launch of that kernel waits.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import torch

logger = logging.getLogger(__name__)


class _Thread(threading.local):
    kernel: str | None = None  # the one kernel that this thread compiles; it launches none


_thread = _Thread()
_lock = threading.Lock()
begun: dict[tuple[str, ...], threading.Event] = {}
"""Kernels that threads compile or have compiled; the event is set when one is done."""
_unfinished: list[tuple[str, ...]] = []

PACKAGE = __name__.partition(".")[0]


@functools.cache
def listen() -> None:
    """Have Triton report what it compiles; an existing listener is kept."""
    import triton

    compilation = triton.knobs.compilation
    compilation.listener = functools.partial(compiled, compilation.listener)


def compiled(other: Any, *, src: Any, cache_hit: bool, **details: Any) -> None:
    """Triton calls this after it has compiled a kernel, or read it from its cache on disk."""
    if other is not None:
        other(src=src, cache_hit=cache_hit, **details)
    module = getattr(getattr(src, "fn", None), "module", "")
    if not cache_hit and module.partition(".")[0] == PACKAGE:
        announce()


@functools.cache
def announce() -> None:
    """Log the message."""
    import triton

    logger.info(
        "engine 'triton' compiles kernels, a second or two each, once on this machine (they are "
        "kept in %s); 'casrnn warm-up' does it ahead of a training",
        triton.knobs.cache.dir,
    )


@contextlib.contextmanager
def compiling_only(kernel: str) -> Iterator[None]:
    """This thread launches no kernels meanwhile; that of this name is compiled instead."""
    _thread.kernel = kernel
    try:
        yield
    finally:
        _thread.kernel = None


def may_launch(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> bool:
    """Whether to launch a kernel: not in :func:`compiling_only`, where this compiles it.

    Waits if another thread is compiling that kernel.
    """
    if _thread.kernel is None:
        if _unfinished and (event := begun.get(_key(kernel, arguments))):
            event.wait()
        return True
    if kernel.__name__ == _thread.kernel:
        _compile_once(kernel, grid, arguments)
    return False


def _compile_once(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> None:
    key, event = _key(kernel, arguments), threading.Event()
    with _lock:
        if key in begun:
            return
        begun[key] = event
        _unfinished.append(key)
    try:
        made = kernel.warmup(grid=grid, **arguments)
        if torch.cuda.is_initialized() and made is not None:
            _ = made.run  # loads it; before Triton 3.7, this compiles a launcher in C for a second
    finally:
        with _lock:
            _unfinished.remove(key)
        event.set()


def _key(kernel: Any, arguments: dict[str, Any]) -> tuple[str, ...]:
    """What distinguishes a model's kernels from each other."""
    names = "cell0", "cell", "size", "ROWS", "FACTOR", "PRECISION", "V"
    return kernel.__name__, *(str(arguments.get(name)) for name in names)

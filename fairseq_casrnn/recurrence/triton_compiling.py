"""What happens when Triton compiles a kernel.

The user is told, once: the first steps are slow for it. And threads that compile ahead
(:mod:`.triton_ahead`) do so here, in the place of a launch; who needs what they compile waits.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading

logger = logging.getLogger(__name__)


class _Thread(threading.local):
    kernel: str | None = None  # the only one, which this thread compiles and does not launch


_thread = _Thread()
_lock = threading.Lock()
_begun: dict[tuple, threading.Event] = {}  # set when it is compiled
_unfinished: list[tuple] = []

PACKAGE = __package__.partition(".")[0]


@functools.cache
def listen() -> None:
    """Have Triton report what it compiles, beside whoever it reports to already."""
    import triton

    compilation = triton.knobs.compilation
    compilation.listener = functools.partial(compiled, compilation.listener)


def compiled(other, *, src, cache_hit: bool, **details) -> None:
    """What Triton calls after it has compiled a kernel, or read it from its cache on disk."""
    if other is not None:
        other(src=src, cache_hit=cache_hit, **details)
    module = getattr(getattr(src, "fn", None), "module", "")
    if not cache_hit and module.partition(".")[0] == PACKAGE:
        announce()


@functools.cache
def announce() -> None:
    """The message."""
    import triton

    logger.info(
        "engine 'triton' compiles kernels, a second or two each, once on this machine (they are "
        "kept in %s); 'casrnn warm-up' does it ahead of a training",
        triton.knobs.cache.dir,
    )


@contextlib.contextmanager
def compiling_only(kernel: str):
    """Let this thread launch nothing, and compile the kernel of that name where it would be."""
    _thread.kernel = kernel
    try:
        yield
    finally:
        _thread.kernel = None


def may_launch(kernel, grid, arguments: dict) -> bool:
    """Whether to launch a kernel: not in :func:`compiling_only`, where this compiles it.

    Otherwise it waits for a thread that is compiling that kernel, if there is one.
    """
    if _thread.kernel is None:
        if _unfinished and (event := _begun.get(_key(kernel, arguments))):
            event.wait()
        return True
    if kernel.__name__ == _thread.kernel:
        _compile_once(kernel, grid, arguments)
    return False


def _compile_once(kernel, grid, arguments: dict) -> None:
    key, event = _key(kernel, arguments), threading.Event()
    with _lock:
        if key in _begun:
            return
        _begun[key] = event
        _unfinished.append(key)
    try:
        kernel.warmup(grid=grid, **arguments)
    finally:
        with _lock:
            _unfinished.remove(key)
        event.set()


def _key(kernel, arguments: dict) -> tuple:
    """What tells a model's kernels from each other."""
    names = "cell0", "cell", "size", "ROWS", "FACTOR", "PRECISION"
    return kernel.__name__, *(str(arguments.get(name)) for name in names)

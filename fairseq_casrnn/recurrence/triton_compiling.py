"""Tells the user, once, that kernels are being compiled: the first steps are slow for it."""

from __future__ import annotations

import functools
import logging

logger = logging.getLogger(__name__)
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

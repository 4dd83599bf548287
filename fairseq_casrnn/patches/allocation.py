"""Keep freed memory for the next batch instead of returning it to the system.

A training step repeatedly frees and allocates buffers of many megabytes. By default glibc returns
such blocks to the system at once, so each new block causes a page fault per page.
"""

from __future__ import annotations

import ctypes
import os
import platform

# Parameters of mallopt(3).
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LIMIT = 2**31 - 1  # bytes, the largest that mallopt takes

VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Raise glibc's thresholds unless the environment sets them; return whether that succeeded."""
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in VARIABLES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LIMIT) and mallopt(M_TRIM_THRESHOLD, LIMIT))

"""Keep freed memory for the next batch instead of giving it back to the system.

A training step frees and asks again for buffers of many megabytes. glibc returns such blocks to the
system at once, and every page of the next one is a fault, zeroed by the kernel.
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
    """Tell glibc's malloc, unless the environment tunes it already; returns whether it did."""
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in VARIABLES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LIMIT) and mallopt(M_TRIM_THRESHOLD, LIMIT))

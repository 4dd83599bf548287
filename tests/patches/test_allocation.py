"""glibc keeps freed memory, unless the user's environment variables configure it."""

import platform
import subprocess
import sys

import pytest

from fairseq_casrnn.patches import allocation

# Minor page faults of a second allocation of 64 MiB, after a first one was freed.
FAULTS = """
import resource, sys
from fairseq_casrnn.patches import allocation
print(allocation.keep_freed_memory())
size = 64 << 20
block = bytearray(size); del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
block = bytearray(size)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc's malloc")


def page_faults(monkeypatch, **variables):
    for name in allocation.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True
    )
    kept, count = done.stdout.split()
    return kept == "True", int(count)


@glibc
def test_freed_memory_is_reused(monkeypatch):
    kept, count = page_faults(monkeypatch)
    assert kept
    assert count < 100


@glibc
def test_environment_variables_take_precedence(monkeypatch):
    kept, count = page_faults(monkeypatch, MALLOC_MMAP_THRESHOLD_="1000000")
    assert not kept
    assert count > 10000

"""For damaged files, readers return or raise a UserError, in bounded time and memory.

Ordinary tests try the same 50 inputs for each reader; ``make fuzz`` tries 2,000 random ones.
"""

import contextlib
import resource
import signal

import pytest
from hypothesis import given

from fairseq_casrnn.errors import LONGEST, UserError, printable

from .damage import damaged
from .profile import PROFILE
from .readers import CASES

# per input; usual are a thousandth of the time and a hundredth of the memory
SECONDS, BYTES = 20, 2**30


@contextlib.contextmanager
def bounded():
    """Fail instead of hanging or exhausting the memory."""

    def stop(*_):
        raise TimeoutError(f"not read after {SECONDS} seconds")

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, limits[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_damaged_files(name, tmp_path):
    path, read = CASES[name](tmp_path)
    read()  # the valid file
    content = path.read_bytes()

    @PROFILE
    @given(damaged(content))
    def try_one(damaged_content):
        path.write_bytes(damaged_content)
        try:
            with bounded():
                read()
        except UserError as error:
            message = str(error)
            assert message == printable(message)
            assert len(message) <= LONGEST

    try_one()

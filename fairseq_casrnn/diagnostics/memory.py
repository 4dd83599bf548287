"""Memory that does not suffice."""

import errno
import re

from fairseq_casrnn.diagnostics.frames import Rules

# Python's MemoryError comes from numpy and pybind11, too; torch raises RuntimeErrors.
SHORT = re.compile(
    "std::bad_alloc|can't allocate memory|not enough memory|out of memory|can't start new thread"
)


def out_of_memory(error: BaseException) -> str | None:
    """That an allocation failed."""
    short = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if not short and not SHORT.search(str(error)):
        return None
    return (
        "the memory does not suffice; give smaller batches (--max-tokens, --batch-size), a smaller "
        "model or less data, or raise the limit on memory"
    )


RULES: Rules = (((MemoryError, RuntimeError, OSError), out_of_memory),)

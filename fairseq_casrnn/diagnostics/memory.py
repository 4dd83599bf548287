"""Failed allocations of memory."""

import errno
import re

from fairseq_casrnn.diagnostics.frames import Rules

# numpy and pybind11 raise MemoryError, torch raises RuntimeError.
SHORT = re.compile(
    "std::bad_alloc|can't allocate memory|not enough memory|out of memory|can't start new thread"
)


def out_of_memory(error: BaseException) -> str | None:
    """The message if an allocation failed."""
    short = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if not short and not SHORT.search(str(error)):
        return None
    return (
        "out of memory; use smaller batches (--max-tokens, --batch-size), a smaller model or less "
        "data, or raise the memory limit"
    )


RULES: Rules = (((MemoryError, RuntimeError, OSError), out_of_memory),)

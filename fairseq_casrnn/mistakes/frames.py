"""What an exception crossed on its way."""

from collections.abc import Callable

Sentence = Callable[[BaseException], str | None]
"""One sentence about an exception, or None if it is something else."""
Rules = tuple[tuple[type | tuple[type, ...], Sentence], ...]


def local(error: BaseException, function: str, variable: str):
    """The value of ``variable`` in the innermost frame of ``function`` that ``error`` crossed."""
    value, traceback = None, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code.co_name == function:
            value = frame.f_locals.get(variable, value)
        traceback = traceback.tb_next
    return value

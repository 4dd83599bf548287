"""What an exception crossed on its way."""

import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

Sentence = Callable[[Any], str | None]
"""One sentence about an exception of the rule's types, or None if it is something else."""
Rules = tuple[tuple[type | tuple[type, ...], Sentence], ...]

OURS = ("fairseq", "fairseq_cli", "fairseq_casrnn")
"""Packages whose errors are explained."""
LIBRARIES = tuple({sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()})
"""Folders of Python and of what is installed."""


def is_of_other_code(error: BaseException) -> bool:
    """Whether ``error`` crossed code that is neither of these packages nor installed.

    That is the user's own, from ``--user-dir``: models and tasks whose author needs the traceback.
    Only what fairseq called counts, not what called fairseq.
    """
    inside, traceback = False, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        name, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if name == "fairseq_casrnn.diagnostics.explain":  # of ``explained()``, which calls nothing
            pass
        elif name.split(".")[0] in OURS:
            inside = True
        elif inside and Path(file).is_absolute() and not file.startswith(LIBRARIES):
            return True
        traceback = traceback.tb_next
    return False


def frame_local(error: BaseException, function: str, variable: str):
    """The value of ``variable`` in the innermost frame of ``function`` that ``error`` crossed.

    ``function`` is a dotted name with its module's, as fairseq.trainer.Trainer.train_step. What an
    error does not say itself is looked up so, where it cannot be known before.
    """
    value, traceback = None, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if _dotted_name(frame) == function:
            value = frame.f_locals.get(variable, value)
        traceback = traceback.tb_next
    return value


def _dotted_name(frame) -> str:
    spec = frame.f_globals.get("__spec__")  # of a module that was started with python -m
    module = frame.f_globals.get("__name__") if spec is None else spec.name
    return f"{module}.{frame.f_code.co_qualname}"

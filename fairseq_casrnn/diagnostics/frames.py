"""Inspect the frames of an exception's traceback."""

import functools
import site
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

Sentence = Callable[[Any], str | None]
"""Returns the sentence for an exception of the rule's types, or None if the rule does not apply."""
Rules = tuple[tuple[type | tuple[type, ...], Sentence], ...]

GENERATE = "fairseq_cli.generate._main"
"""The function of ``fairseq-generate``, for :func:`frame_local`."""

OURS = ("fairseq", "fairseq_cli", "fairseq_casrnn")
"""Packages whose errors are explained."""


@functools.cache
def library_folders() -> tuple[Path, ...]:
    """Folders of Python's library and of installed packages."""
    folders = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple({Path(folder).resolve() for folder in folders})


def is_library(file: str) -> bool:
    """Whether a source file is Python's or installed, or is not a file, such as ``<string>``."""
    path = Path(file)
    return not path.is_absolute() or any(map(path.resolve().is_relative_to, library_folders()))


def crossed_user_code(error: BaseException) -> bool:
    """Whether ``error`` passed through a user's own code that fairseq called.

    This is code that is not installed, such as models in a ``--user-dir``, whose author needs the
    traceback. Code that called fairseq does not count.
    """
    inside, traceback = False, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        name, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if name == "fairseq_casrnn.diagnostics.explain":  # ``explained()`` is around any code
            pass
        elif name.split(".")[0] in OURS:
            inside = True
        elif inside and not is_library(file):
            return True
        traceback = traceback.tb_next
    return False


def frame_local(error: BaseException, function: str, variable: str):
    """The value of ``variable`` in the innermost frame of ``function`` in the traceback.

    ``function`` is a full dotted name such as fairseq.trainer.Trainer.train_step. This finds file
    names and options that the error message lacks. None if there is no such frame or variable.
    """
    value, traceback = None, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if _dotted_name(frame) == function:
            value = frame.f_locals.get(variable, value)
        traceback = traceback.tb_next
    return value


def _dotted_name(frame) -> str:
    spec = frame.f_globals.get("__spec__")  # has the real name of a module run with python -m
    module = frame.f_globals.get("__name__") if spec is None else spec.name
    return f"{module}.{frame.f_code.co_qualname}"

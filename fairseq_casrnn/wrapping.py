"""Functions of fairseq that call something of this package in their place."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

from fairseq_casrnn.errors import UserError


def wrap(owner, name: str, replacement: Callable, key: str | None = None) -> None:
    """Put ``replacement(original, *args, **kwargs)`` in the place of ``owner.name``, once.

    Several replacements of one function go around each other.

    Args:
        owner: module or class.
        name: of the function or (static) method.
        replacement: calls ``original`` where it wants to.
        key: tells replacements apart (default: the function's own name).

    Raises:
        UserError: there is no such function, so that what depends on it would be lost in silence.
    """
    original = getattr(owner, name, None)
    key = key or f"{replacement.__module__}.{replacement.__qualname__}"
    if original is None:
        where = getattr(owner, "__name__", type(owner).__name__)
        raise UserError(
            f"{where} has no {name}, which fairseq_casrnn has to change for safety or to be right: "
            "it is of another version than fairseq-fixed 0.12.3.1; install that one"
        )
    if wrapped(original, key):
        return

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        return replacement(original, *args, **kwargs)

    wrapper._replacements = getattr(original, "_replacements", frozenset()) | {key}
    static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(wrapper) if static else wrapper)


def wrapped(function, key: str) -> bool:
    """Whether ``function`` comes from :func:`wrap` with ``key``."""
    return key in getattr(function, "_replacements", frozenset())


def is_hydra_train() -> bool:
    """Whether this process is ``fairseq-hydra-train``, also as ``python -m``."""
    return Path(sys.argv[0]).stem in ("fairseq-hydra-train", "hydra_train")


def program(name: str):
    """The module of fairseq's program ``name``: __main__, when it was started with python -m."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == f"fairseq_cli.{name}":
        return main
    return importlib.import_module(f"fairseq_cli.{name}")

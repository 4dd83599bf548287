"""Choice of the engine that runs: the requested one, or a replacement.

A layer's ``engine=`` takes precedence over the environment variable ``CASRNN_ENGINE``. Without
either, the engine is ``triton`` on a GPU and ``cpp`` on the CPU. An engine that is not available is
replaced by the default of the device. If the chosen engine does not support its inputs, its
``fallback`` runs instead, and so on down to ``reference``, which supports everything. The log says
why.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import torch

from ..errors import UserError
from .base import Engine

logger = logging.getLogger(__name__)

logged: set[tuple[str, tuple[object, ...]]] = set()
"""Messages that :func:`log_once` has logged, with their arguments."""

ENGINES: dict[str, Engine] = {}
"""All engines by name, available or not; :mod:`.engines` registers them."""


def installed(device: str = "cpu") -> list[str]:
    """The names of the engines that can run on this type of device in this installation."""
    return [name for name, engine in ENGINES.items() if engine.available(device) is None]


def default(device: str = "cpu") -> str:
    """The engine used on this type of device unless another one is requested."""
    best = preferred(device)
    return best if ENGINES[best].available(device) is None else "eager"


def preferred(device: str) -> str:
    """The fastest engine for this type of device, available or not."""
    return "triton" if device == "cuda" else "cpp"


def choose(
    name: str | None = None,
    device: str = "cpu",
    supports: Callable[[Engine], str | None] | None = None,
) -> Engine:
    """The engine to run; if it is not the requested one, a line in the log says so, once.

    Args:
        name: an engine; None or "auto" for the environment variable's or the default.
        device: type of the device to run on.
        supports: returns None if an engine supports the inputs, and otherwise the reason.

    Raises:
        UserError: no engine of that name.
    """
    engine = by_name(name, device)
    if supports is None or (reason := supports(engine)) is None:
        return engine
    other = ENGINES[engine.fallback(device)]
    while supports(other) is not None:
        other = ENGINES[other.fallback(device)]
    log_fallback(engine, other, reason)
    return other


def log_fallback(engine: Engine, other: Engine, reason: str) -> None:
    """Log once that ``other`` runs instead of ``engine``."""
    log_once(logging.INFO, "engine '%s' falls back to '%s': %s", engine.name, other.name, reason)


def by_name(name: str | None, device: str) -> Engine:
    """:func:`choose` without a check of the inputs."""
    label = "engine"
    if name is None or name == "auto":
        label, name = "environment variable CASRNN_ENGINE: engine", os.environ.get("CASRNN_ENGINE")
        if not name or name == "auto":
            name = preferred(device)
    check_name(name, label)
    engine = ENGINES[name]
    if (reason := engine.available(device)) is None:
        log_once(logging.INFO, "recurrence engine: %s", name)
        return engine
    # Not an error: the checkpoint may come from a machine that had this engine.
    other = default(device)
    log_once(
        logging.WARNING, "engine '%s' is not available, '%s' runs instead: %s", name, other, reason
    )
    return ENGINES[other]


def check_name(name: str, label: str = "engine") -> None:
    """Check the name of an engine, which may not be available.

    Raises:
        UserError: no engine of that name; ``label`` says what it names.
    """
    if name not in ENGINES and name != "auto":
        raise UserError(f"{label} {name!r} is unknown; choose from {', '.join(ENGINES)}")


def log_once(level: int, message: str, *arguments: object) -> None:
    """Log a message once; never while torch.compile or torch.export trace."""
    if (message, arguments) not in logged and not torch.compiler.is_compiling():
        logged.add((message, arguments))
        logger.log(level, message, *arguments)

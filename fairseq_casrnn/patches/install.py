"""Puts the changes of :mod:`.table` into fairseq: one wrapper a function, whoever adds to it."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import pkgutil
from collections.abc import Callable, Iterable, Set
from typing import Any

from fairseq_casrnn.errors import UserError

from .patch import KINDS, VERSIONS, Patch
from .programs import program_module, program_name
from .table import TABLE

VARIABLE = "CASRNN_PATCHES"

logger = logging.getLogger(__name__)


def install() -> None:
    """Change fairseq as :data:`.table.TABLE` says; again and again does no harm.

    Raises:
        UserError: ``CASRNN_PATCHES`` names no kind, or something is not there in fairseq on which
            safety depends.
    """
    try:
        omitted = omitted_kinds()
        program = program_name()
        apply(patch for patch in TABLE if patch.kind not in omitted and patch.belongs_in(program))
        if omitted:
            report_omitted(frozenset(omitted))
        check_version()
    except UserError:
        apply(patch for patch in TABLE if patch.target == "sys.excepthook" and program_name())
        raise


def omitted_kinds() -> set[str]:
    """The kinds of changes that ``CASRNN_PATCHES=-KIND,-KIND`` leaves out.

    Raises:
        UserError: one is unknown.
    """
    asked = os.environ.get(VARIABLE, "")
    names = [name.strip() for name in asked.split(",") if name.strip()]
    for name in names:
        if name[:1] != "-" or name[1:] not in KINDS:
            raise UserError(
                f"environment variable {VARIABLE} is {asked!r}; give the kinds to leave out, such "
                f"as -speed,-message, of {', '.join(KINDS)}"
            )
    return {name[1:] for name in names}


@functools.cache
def report_omitted(kinds: frozenset[str]) -> None:
    """Log, once, which changes are left out."""
    logger.info("%s", omitted_line(kinds))


def omitted_line(kinds: Set[str]) -> str:
    """Which changes are left out, in one line."""
    count = sum(patch.kind in kinds for patch in TABLE)
    names = ", ".join(sorted(kinds))
    return f"left out by {VARIABLE}: {names} ({count} of {len(TABLE)} changes)"


@functools.cache
def check_version() -> None:
    """Warn, once, of a fairseq for which the table was not written."""
    import fairseq

    version = getattr(fairseq, "__version__", "unknown")
    if version not in VERSIONS:
        logger.warning(
            "fairseq %s is not known to fairseq_casrnn, whose changes are for %s: they may not fit",
            *(version, ", ".join(VERSIONS)),
        )


def apply(patches: Iterable[Patch]) -> None:
    """Make these changes, unless they have been made.

    Raises:
        UserError: a function is not there, and safety depends on its change.
    """
    for patch in patches:
        if patch.when == "call":
            _call_once(patch)
            continue
        try:
            owner, name, current = find(patch.target)
        except (ImportError, AttributeError):
            _report_missing(patch)
            continue
        if patch.when == "replace":
            _replace(owner, name, current, patch)
        else:
            _add(owner, name, current, patch)


def find(target: str) -> tuple[object, str, Callable]:
    """The module or class that has ``target``, its name there, and what stands there now.

    Raises:
        ImportError, AttributeError: there is none.
    """
    where, _, name = target.rpartition(".")
    if where.startswith("fairseq_cli."):
        owner = program_module(where.removeprefix("fairseq_cli."))
    else:
        owner = pkgutil.resolve_name(where)
    if name not in vars(owner):
        raise AttributeError(target)
    return owner, name, getattr(owner, name)


def patches_of(function: Callable) -> tuple[Patch, ...]:
    """The changes that have been made to a function of fairseq."""
    return getattr(function, "_patches", ())


@functools.cache
def _piece(path: str) -> Any:
    return pkgutil.resolve_name(f"fairseq_casrnn.{path}")


@functools.cache
def _call_once(patch: Patch) -> None:
    _piece(patch.piece)()


def _report_missing(patch: Patch) -> None:
    sentence = (
        f"fairseq has no {patch.target}, which fairseq_casrnn changes ({patch.why}): it is of "
        f"another version than {VERSIONS[-1]}; install fairseq-fixed {VERSIONS[-1]}"
    )
    if patch.kind == "safety":
        raise UserError(sentence)
    logger.warning(sentence)


def _replace(owner, name: str, current: Callable, patch: Patch) -> None:
    """Put the piece itself there, so that it is pickled as a function of this package."""
    piece = _piece(patch.piece)
    if current is not piece:
        piece.__wrapped__, piece._patches = current, (patch,)
        setattr(owner, name, piece)


def _add(owner, name: str, current: Any, patch: Patch) -> None:
    """Have the function's one wrapper call one more piece."""
    patches = patches_of(current)
    if patch in patches:
        return
    original = current.__wrapped__ if patches else current
    wrapper = _wrapper(original, (*patches, patch))
    static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(wrapper) if static else wrapper)


def _deferred(path: str) -> Callable:
    """The piece; of models and tasks, which are registered later, found when it is called."""
    if not path.startswith(("models.", "tasks.")):
        return _piece(path)
    return lambda *args, **kwargs: _piece(path)(*args, **kwargs)


def _wrapper(original: Callable, patches: tuple[Patch, ...]) -> Callable:
    def pieces(when: str) -> list[Callable]:
        return [_deferred(patch.piece) for patch in patches if patch.when == when]

    before, after, call = pieces("before"), pieces("after"), original
    for piece in reversed(pieces("around")):
        call = functools.partial(piece, call)

    @functools.wraps(original)
    def patched(*args, **kwargs):
        for piece in before:
            piece(*args, **kwargs)
        result = call(*args, **kwargs)
        for piece in after:
            result = piece(result, *args, **kwargs)
        return result

    patched._patches = patches  # type: ignore[attr-defined] # read by patches_of
    return patched

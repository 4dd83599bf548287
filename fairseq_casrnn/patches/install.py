"""Applies the patches of :mod:`.table`. A patched function has one wrapper for all its hooks."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import pkgutil
from collections.abc import Callable, Iterable, Set
from typing import Any

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.patches.patch import KINDS, VERSIONS, Patch
from fairseq_casrnn.patches.programs import program_module, program_name
from fairseq_casrnn.patches.table import TABLE

VARIABLE = "CASRNN_PATCHES"

logger = logging.getLogger(__name__)


def install() -> None:
    """Apply the patches of :data:`.table.TABLE`; calling it again has no effect.

    Raises:
        UserError: ``CASRNN_PATCHES`` is invalid, or fairseq lacks the target of a safety patch.
    """
    try:
        omitted = omitted_names()
        program = program_name()
        apply(p for p in TABLE if not p.is_omitted(omitted) and p.belongs_in(program))
        if omitted:
            report_omitted(frozenset(omitted))
        check_version()
    except UserError:
        apply(patch for patch in TABLE if patch.target == "sys.excepthook" and program_name())
        raise


def omitted_names() -> set[str]:
    """The kinds and names of patches that ``CASRNN_PATCHES=-KIND,-NAME`` leaves out.

    Raises:
        UserError: one of them is unknown.
    """
    asked = os.environ.get(VARIABLE, "")
    names = [name.strip() for name in asked.split(",") if name.strip()]
    known = {*KINDS, *(patch.name for patch in TABLE)}
    for name in names:
        if name[:1] != "-" or name[1:] not in known:
            raise UserError(
                f"environment variable {VARIABLE} is {asked!r}; give the kinds to leave out, such "
                f"as -speed,-message, of {', '.join(KINDS)}; or names that casrnn patches prints"
            )
    return {name[1:] for name in names}


@functools.cache
def report_omitted(names: frozenset[str]) -> None:
    """Log once which patches are left out."""
    logger.info("%s", omitted_line(names))


def omitted_line(names: Set[str]) -> str:
    """One line that says which patches are left out."""
    count = sum(patch.is_omitted(names) for patch in TABLE)
    return f"left out by {VARIABLE}: {', '.join(sorted(names))} ({count} of {len(TABLE)} changes)"


@functools.cache
def check_version() -> None:
    """Warn once if the patches were not written for this version of fairseq."""
    import fairseq

    version = getattr(fairseq, "__version__", "unknown")
    if version not in VERSIONS:
        logger.warning(
            "fairseq %s is untested: the patches of fairseq_casrnn are for %s and may not fit",
            version,
            ", ".join(VERSIONS),
        )


def apply(patches: Iterable[Patch]) -> None:
    """Apply these patches unless they are applied already.

    Raises:
        UserError: fairseq lacks the target of a safety patch.
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
    """The module or class that defines ``target``, the attribute's name and its current value.

    Raises:
        ImportError, AttributeError: ``target`` does not exist.
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
    """The patches applied to a function of fairseq."""
    return getattr(function, "_patches", ())


@functools.cache
def _hook(path: str) -> Any:
    return pkgutil.resolve_name(f"fairseq_casrnn.{path}")


@functools.cache
def _call_once(patch: Patch) -> None:
    _hook(patch.hook)()


def _report_missing(patch: Patch) -> None:
    sentence = (
        f"fairseq has no {patch.target}, which fairseq_casrnn patches ({patch.why}): its version "
        f"is not {VERSIONS[-1]}; install fairseq-fixed {VERSIONS[-1]}"
    )
    if patch.kind == "safety":
        raise UserError(sentence)
    logger.warning(sentence)


def _replace(owner, name: str, current: Callable, patch: Patch) -> None:
    """Put the hook itself in place of the function, to be pickled as a function of this package."""
    hook = _hook(patch.hook)
    if current is not hook:
        hook.__wrapped__, hook._patches = current, (patch,)
        setattr(owner, name, hook)


def _add(owner, name: str, current: Any, patch: Patch) -> None:
    """Add a hook to the function's wrapper."""
    patches = patches_of(current)
    if patch in patches:
        return
    original = current.__wrapped__ if patches else current
    wrapper = _wrapper(original, (*patches, patch))
    static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(wrapper) if static else wrapper)


def _deferred(path: str) -> Callable:
    """The hook; those in models and tasks, registered later, are imported on the first call."""
    if not path.startswith(("models.", "tasks.")):
        return _hook(path)
    return lambda *args, **kwargs: _hook(path)(*args, **kwargs)


def _wrapper(original: Callable, patches: tuple[Patch, ...]) -> Callable:
    def hooks(when: str) -> list[Callable]:
        return [_deferred(patch.hook) for patch in patches if patch.when == when]

    before, after, call = hooks("before"), hooks("after"), original
    for hook in reversed(hooks("around")):
        call = functools.partial(hook, call)

    @functools.wraps(original)
    def patched(*args, **kwargs):
        for hook in before:
            hook(*args, **kwargs)
        result = call(*args, **kwargs)
        for hook in after:
            result = hook(result, *args, **kwargs)
        return result

    patched._patches = patches  # type: ignore[attr-defined] # read by patches_of
    return patched

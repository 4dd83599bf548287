"""Launching Triton's kernels: with little work on the host, and not while they are compiled.

``kernel[grid](…)`` examines every argument to find the compiled kernel. For the forty arguments of
the kernels here that takes longer than a small kernel runs. :func:`run` keeps compiled kernels by
what they depend on, and launches them directly. A training step of two layers, four launches, takes
751 instead of 860 µs on the host (AMD EPYC, with launches that do nothing).

Threads of :mod:`.ahead` compile a kernel instead of launching it, in :func:`compiling_only`; a
launch of that kernel in another thread waits, in :func:`may_launch`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import torch

compiled_kernels: dict[tuple[Any, ...], Any] = {}
"""What :func:`run` has launched, by what a compiled kernel depends on."""


class Arguments(NamedTuple):
    """Functions that take a kernel's arguments out of a dictionary; tuples, in their order.

    Attributes:
        everything: all of them.
        constants: those with ``tl.constexpr``.
        numbers: those with ``do_not_specialize``.
        pointers: the others: tensors, or None.
    """

    everything: Callable[[dict[str, Any]], tuple[Any, ...]]
    constants: Callable[[dict[str, Any]], tuple[Any, ...]]
    numbers: Callable[[dict[str, Any]], tuple[Any, ...]]
    pointers: Callable[[dict[str, Any]], tuple[Any, ...]]


@functools.cache
def arguments_of(kernel: Any) -> Arguments | None:
    """How :func:`run` reads the arguments of ``kernel``; None in Triton's interpreter."""
    params = getattr(kernel, "params", None)
    if params is None:
        return None
    groups: tuple[list[str], ...] = [], [], []
    for p in params:
        groups[0 if p.is_constexpr else 1 if p.do_not_specialize else 2].append(p.name)
    names = [p.name for p in params]
    return Arguments(*(getter(group) for group in (names, *groups)))


def getter(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """``itemgetter``, whose result is a tuple for one name or none, too."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda arguments: tuple(arguments[name] for name in names)


def run(kernel: Any, grid: tuple[int, ...], /, **arguments: Any) -> None:
    """``kernel[grid](**arguments)``.

    Options like ``num_warps`` must follow from the kernel and its constants. All arguments that are
    neither constants nor tensors must have ``do_not_specialize``.
    """
    known = arguments_of(kernel)
    if known is None:
        kernel[grid](**arguments)
        return
    dtypes = [
        None if p is None else p.dtype if p.data_ptr() & 15 == 0 else (p.dtype,)
        for p in known.pointers(arguments)
    ]
    small = all(-(2**31) <= number < 2**31 for number in known.numbers(arguments))
    key = (kernel, current_device(), small, known.constants(arguments), *dtypes)
    found = compiled_kernels.get(key)
    if found is not None:
        found[(*grid, 1, 1)](*known.everything(arguments))
        return
    made = kernel[grid](**arguments)
    if small and made is not None:
        compiled_kernels[key] = made


def current_device() -> int:
    """The current GPU's number, or -1."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else -1


class _Thread(threading.local):
    kernel: str | None = None  # the one kernel that this thread compiles; it launches none


_thread = _Thread()
_lock = threading.Lock()
begun: dict[tuple[str, ...], threading.Event] = {}
"""Kernels that threads compile or have compiled; the event is set when one is done."""
_unfinished: list[tuple[str, ...]] = []


@contextlib.contextmanager
def compiling_only(kernel: str) -> Iterator[None]:
    """This thread launches no kernels meanwhile; that of this name is compiled instead."""
    _thread.kernel = kernel
    try:
        yield
    finally:
        _thread.kernel = None


def may_launch(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> bool:
    """Whether to launch a kernel: not in :func:`compiling_only`, where this compiles it.

    Waits if another thread is compiling that kernel.
    """
    if _thread.kernel is None:
        if _unfinished and (event := begun.get(_key(kernel, arguments))):
            event.wait()
        return True
    if kernel.__name__ == _thread.kernel:
        _compile_once(kernel, grid, arguments)
    return False


def _compile_once(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> None:
    key, event = _key(kernel, arguments), threading.Event()
    with _lock:
        if key in begun:
            return
        begun[key] = event
        _unfinished.append(key)
    try:
        made = kernel.warmup(grid=grid, **arguments)
        if torch.cuda.is_initialized() and made is not None:
            _ = made.run  # loads it; before Triton 3.7, this compiles a launcher in C for a second
    finally:
        with _lock:
            _unfinished.remove(key)
        event.set()


def _key(kernel: Any, arguments: dict[str, Any]) -> tuple[str, ...]:
    """What distinguishes a model's kernels from each other."""
    names = "cell0", "cell", "size", "ROWS", "FACTOR", "PRECISION", "V"
    return kernel.__name__, *(str(arguments.get(name)) for name in names)

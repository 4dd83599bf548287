"""Launch Triton kernels with little overhead on the host, and wait while they are compiled.

``kernel[grid](…)`` examines every argument to find the compiled kernel. With forty arguments, this
takes longer than a small kernel runs. :func:`run` caches compiled kernels by what they depend on
and launches them directly. A training step of two layers, with four launches, takes 751 instead of
860 µs on the host (AMD EPYC, launches without effect).

Within :func:`compiling_only`, the threads of :mod:`.ahead` compile a kernel instead of launching
it. In other threads, :func:`may_launch` waits until such a kernel is compiled.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import torch

compiled_kernels: dict[tuple[Any, ...], Any] = {}
"""Compiled kernels that :func:`run` has launched, by what a compiled kernel depends on."""


PARSER_TRIALS = 10


class Arguments(NamedTuple):
    """Functions that select a kernel's arguments from a dictionary, as tuples in their order.

    Attributes:
        everything: all arguments.
        constants: arguments declared ``tl.constexpr``, which may be named tuples.
        numbers: arguments in ``do_not_specialize``.
        pointers: all others, which are tensors, None, or named tuples of them.
    """

    everything: Callable[[dict[str, Any]], tuple[Any, ...]]
    constants: Callable[[dict[str, Any]], tuple[Any, ...]]
    numbers: Callable[[dict[str, Any]], tuple[Any, ...]]
    pointers: Callable[[dict[str, Any]], tuple[Any, ...]]


@functools.cache
def arguments_of(kernel: Any) -> Arguments | None:
    """The selectors of the arguments of ``kernel``; None in Triton's interpreter."""
    params = getattr(kernel, "params", None)
    if params is None:
        return None
    groups: tuple[list[str], ...] = [], [], []
    for p in params:
        groups[0 if p.is_constexpr else 1 if p.do_not_specialize else 2].append(p.name)
    names = [p.name for p in params]
    return Arguments(*(getter(group) for group in (names, *groups)))


def getter(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """``itemgetter`` that returns a tuple for any number of names."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda arguments: tuple(arguments[name] for name in names)


def run(kernel: Any, grid: tuple[int, ...], /, **arguments: Any) -> None:
    """``kernel[grid](**arguments)``, with less overhead after the first launch.

    Options such as ``num_warps`` must be determined by the kernel and its constants. All arguments
    that are neither constants nor tensors must be in ``do_not_specialize``.
    """
    select = arguments_of(kernel)
    if select is None:
        kernel[grid](**arguments)
        return
    dtypes = [
        None if p is None else p.dtype if p.data_ptr() & 15 == 0 else (p.dtype,)
        for p in flattened(select.pointers(arguments))
    ]
    small = all(-(2**31) <= number < 2**31 for number in select.numbers(arguments))
    key = (kernel, current_device(), small, select.constants(arguments), *dtypes)
    cached = compiled_kernels.get(key)
    if cached is not None:
        cached[(*grid, 1, 1)](*select.everything(arguments))
        return
    binary = parse_again_if_disturbed(kernel[grid], **with_constants(kernel, arguments))
    if small and binary is not None:
        compiled_kernels[key] = binary


def parse_again_if_disturbed(parse: Callable[..., Any], **arguments: Any) -> Any:
    """``parse(**arguments)``, which parses a kernel's source.

    It is repeated if another thread disturbs Python's parser, as happens before Python 3.11.8
    (python/cpython#106905).
    """
    for _ in range(PARSER_TRIALS - 1):
        try:
            return parse(**arguments)
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise
    return parse(**arguments)


def with_constants(kernel: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """``arguments``, with ``tl.constexpr`` as fields of those constants that are named tuples.

    In the kernel, fields of other types would not be constants.
    """
    constants = {p.name: arguments[p.name] for p in kernel.params if p.is_constexpr}
    groups = {name: value for name, value in constants.items() if isinstance(value, tuple)}
    if not groups:
        return arguments
    import triton.language as tl  # Triton may not be installed

    return arguments | {n: type(t)(*map(tl.constexpr, t)) for n, t in groups.items()}


def flattened(values: Iterable[Any]) -> Iterator[Any]:
    """Values, and those in tuples, to any depth."""
    for value in values:
        if isinstance(value, tuple):
            yield from flattened(value)
        else:
            yield value


def current_device() -> int:
    """The index of the current GPU, or -1."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else -1


class _Thread(threading.local):
    kernel: str | None = None  # the kernel that this thread compiles, if any


_thread = _Thread()
_lock = threading.Lock()
begun: dict[tuple[str, ...], threading.Event] = {}
"""Kernels whose compilation has begun, with an event that is set when it has ended."""
_unfinished: list[tuple[str, ...]] = []


@contextlib.contextmanager
def compiling_only(kernel: str) -> Iterator[None]:
    """Launch no kernels in this thread; compile the one of this name when it would be launched."""
    _thread.kernel = kernel
    try:
        yield
    finally:
        _thread.kernel = None


def may_launch(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> bool:
    """Whether to launch a kernel; within :func:`compiling_only`, compile it and return False.

    If another thread is compiling the kernel, wait for that.
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
        binary = parse_again_if_disturbed(
            kernel.warmup, grid=grid, **with_constants(kernel, arguments)
        )
        if torch.cuda.is_initialized() and binary is not None:
            _ = binary.run  # loads it; before Triton 3.7, compiles a launcher in C for a second
    finally:
        with _lock:
            _unfinished.remove(key)
        event.set()


def _key(kernel: Any, arguments: dict[str, Any]) -> tuple[str, ...]:
    """A key that tells the kernels of a model apart."""
    names = "cell", "bottom_cell", "upper_cell", "size", "tiles", "V", "KEEP"
    given = "".join("-" if value is None else "+" for value in flattened(arguments.values()))
    return kernel.__name__, *(str(arguments.get(name)) for name in names), given

"""Helpers for launching kernels: loading modules, devices, arguments, matrix products."""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from ..inputs import MaybeTensor
from .launching import parse_again_if_disturbed
from .plan import GIVEN

logger = logging.getLogger(__name__)
PACKAGE = __name__.partition(".")[0]

P = ParamSpec("P")
R = TypeVar("R")


@functools.cache
def kernels(kind: str) -> Any:
    """The module ``kernels.<kind>``, whose import needs Triton and takes a second."""
    listen()
    module = importlib.import_module(f"{__package__}.kernels.{kind}")
    hash_callees_first(module)
    return module


@functools.cache
def hash_callees_first(module: ModuleType) -> None:
    """Let Triton hash all functions of a module, after those that they call.

    Triton's hash of a kernel includes the global constants of a function that it calls only if that
    function has already been hashed. It would depend on which kernel is compiled first, and a
    kernel in the cache on disk would not be found.
    """
    import triton

    functions = [f for f in vars(module).values() if isinstance(f, triton.JITFunction)]
    for name in sorted({f.__module__ for f in functions} - {module.__name__}):
        hash_callees_first(sys.modules[name])
    for function in functions:
        parse_again_if_disturbed(hash_function, function=function)


def hash_function(function: Any) -> None:
    """Let Triton hash a function; after an error, it would keep a placeholder."""
    try:
        _ = function.cache_key
    except SystemError:
        function.hash = None
        raise


@functools.cache
def listen() -> None:
    """Register :func:`compiled` as Triton's compilation listener, which calls an existing one."""
    import triton

    compilation = triton.knobs.compilation
    compilation.listener = functools.partial(compiled, compilation.listener)


def compiled(other: Any, *, src: Any, cache_hit: bool, **details: Any) -> None:
    """Called by Triton when it has compiled a kernel or read one from its cache on disk."""
    if other is not None:
        other(src=src, cache_hit=cache_hit, **details)
    module = getattr(getattr(src, "fn", None), "module", "")
    if not cache_hit and module.partition(".")[0] == PACKAGE:
        announce()


@functools.cache
def announce() -> None:
    """Log, once, why the first steps are slow."""
    import triton

    logger.info(
        "engine 'triton' compiles kernels, a second or two each, once on this machine (they are "
        "kept in %s); 'casrnn warm-up' does it ahead of a training",
        triton.knobs.cache.dir,
    )


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Write the product of two matrices to ``out``, accumulated in the dtype of ``out``."""
    if a.dtype == out.dtype:
        return torch.mm(a, b, out=out)
    if a.is_cuda and hasattr(torch.ops.aten.mm, "dtype_out"):
        return torch.mm(a, b, out_dtype=out.dtype, out=out)
    return torch.mm(a.to(out.dtype), b.to(out.dtype), out=out)


def contiguous(tensor: MaybeTensor) -> MaybeTensor:
    """``tensor``, or None, contiguous, without a pending negation, and aligned to 16 bytes.

    Triton would compile another kernel for other alignments.
    """
    if tensor is None:
        return None
    tensor = tensor.contiguous().resolve_neg()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


@functools.cache
@torch.inference_mode(False)
def placeholder(dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor to pass to a kernel in place of a missing one; it is not read."""
    return torch.zeros(16, dtype=dtype, device=device)


def optional_arguments(
    device: torch.device, **tensors: tuple[Tensor | None, torch.dtype]
) -> dict[str, Any]:
    """Kernel arguments for tensors that may be missing, and ``given``, which tells which exist.

    Args:
        device: of the placeholders.
        tensors: ``(tensor or None, dtype)`` by name, in the order of :data:`.plan.GIVEN`.
    """
    arguments: dict[str, Any] = {}
    bits = 0
    for bit, (name, (tensor, dtype)) in zip(GIVEN, tensors.items(), strict=False):
        bits |= 0 if tensor is None else bit
        arguments[name] = placeholder(dtype, device) if tensor is None else contiguous(tensor)
    return arguments | {"given": bits}


def on_its_device(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: make the device of the first tensor argument the current one.

    Kernels are launched on the current GPU. Tensors in tuples count, too.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        values = (t for arg in args for t in (arg if isinstance(arg, tuple) else (arg,)))
        first = next(t for t in values if isinstance(t, Tensor))
        with torch.cuda.device_of(first):
            return function(*args, **kwargs)

    return wrapped

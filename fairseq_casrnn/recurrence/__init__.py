"""How a cell is run over time: one signature, several engines.

======================  =======================================================================
``reference``           the cell's own step under autograd, any dtype: the specification
``eager``               one ``autograd.Function`` with hand-written backward, for all cells
``cpp``                 the same loop in C++, where it was compiled at installation
``triton``              the same loop in kernels on a GPU, where Triton works
======================  =======================================================================

The engine is chosen by ``engine=`` of a layer, else by the environment variable ``CASRNN_ENGINE``,
else it is ``triton`` on a GPU and ``cpp`` on the CPU. Where the one chosen cannot run, ``eager``
does, and a line in the log says why.

Tensors that are no plain memory (see :mod:`.memory`), a batch without sequences, and a cell that
has a ``step`` only, go to ``reference``, whichever engine was chosen.

With weights in float16 or bfloat16 all engines but ``reference`` keep the sums of gates and the
cell states in float32.
"""

from __future__ import annotations

import functools
import logging
import os

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UserError
from . import cpp, eager, reference, triton_failures, triton_loop
from .inputs import HardRouting, InputProduct, accumulation_dtype, cast
from .memory import readable

logger = logging.getLogger(__name__)

ENGINES = {"reference": reference.run, "eager": eager.run}
DEFAULT = "eager"
"""The engine for the CPU."""
TAKES_INPUT = {"cpp", "triton"}
"""The engines that take an :class:`InputProduct` as it is."""
if cpp.extension()[0] is not None:
    ENGINES["cpp"] = cpp.run
    DEFAULT = "cpp"
if triton_loop.missing() is None:
    ENGINES["triton"] = triton_loop.run

OPTIONAL = {"cpp": lambda: cpp.extension()[1], "triton": triton_loop.missing}
"""The engines that may be missing, and the functions that say why."""


def default(device: str) -> str:
    """The engine taken for this type of device unless another one is asked for."""
    if device != "cuda":
        return DEFAULT
    return "triton" if why_not("triton", device) is None else "eager"


def why_not(name: str, device: str = "cpu") -> str | None:
    """Why the engine ``name`` cannot run on this type of device, and what to do; or None."""
    if name not in OPTIONAL:
        return None
    if name not in ENGINES:
        return OPTIONAL[name]()
    return triton_failures.why_not() if (name, device) == ("triton", "cuda") else None


def engine_name(name: str | None = None, device: str = "cpu") -> str:
    """The engine that ``name`` (None or "auto": the environment's or the default) stands for.

    It is the default, with a warning, where the engine asked for cannot run.

    Args:
        name: an engine, "auto" or None.
        device: type of the device it is to run on.

    Raises:
        UserError: no engine of that name.
    """
    asked = "engine"
    if name in (None, "auto"):
        asked, name = "environment variable CASRNN_ENGINE: engine", os.environ.get("CASRNN_ENGINE")
    if name in (None, "", "auto"):
        name = "triton" if device == "cuda" else DEFAULT
    if name in OPTIONAL and (reason := why_not(name, device)) is not None:
        # A checkpoint, too, names the engine of the machine it was trained on.
        instead = default(device)
        _replace(name, instead, reason)
        return instead
    if name not in ENGINES:
        raise UserError(f"{asked} {name!r} is unknown; choose from {', '.join(ENGINES)}")
    _announce(name)
    if device != "cuda" and name == "eager" == DEFAULT:
        _explain()
    return name


@functools.cache
def _announce(name: str) -> None:
    logger.info("recurrence engine: %s", name)


@functools.cache
def _replace(name: str, instead: str, reason: str) -> None:
    logger.warning("engine '%s' is not available, '%s' runs instead: %s", name, instead, reason)


@functools.cache
def _explain() -> None:
    logger.warning("the faster engine 'cpp' is not available: %s", OPTIONAL["cpp"]())


def autocast(device: str) -> bool:
    """Whether torch.autocast is active for this type of device."""
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device)


def run(engine, cell, gx, weight_hh, h0, c0, *, lower_c=None, mixture=None, last=None, params=()):
    """Run one layer in one direction over a padded batch.

    Args:
        engine: name of the engine, or None for the default.
        cell: a :class:`fairseq_casrnn.cells.Cell`.
        gx: ``(T, B, ih_blocks*H)``, W x + b for all steps, which the engine may overwrite; or an
            :class:`InputProduct`, for the engine to compute.
        weight_hh: ``(hh_blocks*H, H)``.
        h0, c0: ``(B, H)`` initial state (c0 None for a cell without c).
        lower_c: ``(T, B, H)``, the cells of the layer below, for a cell that reads them.
        mixture: ``(T, B, S)`` weights or a :class:`HardRouting`, for a mixture of cells.
        last: ``(B,)`` index of each sequence's last step, or None for T-1.
        params: the elementwise parameters in the cell's order.

    Returns:
        ``hs, cs`` of shape ``(T, B, H)`` and ``h_n, c_n`` of shape ``(B, H)``; the c's may be None.
        What ``hs`` and ``cs`` hold after ``last``, and gradients there, mean nothing: ``cpp``
        leaves padding out.
    """
    device = weight_hh.device.type
    name = engine_name(engine, device)
    if (
        not cell.is_fused()
        or h0.size(0) == 0
        or not readable(*_tensors(gx), weight_hh, h0, c0, lower_c, *_tensors(mixture), *params)
    ):
        name = "reference"
    if isinstance(mixture, HardRouting):
        alone = name == "cpp" and not autocast(device)
        if alone and cpp.supports_routing(cell, gx, weight_hh, h0, c0):
            return cpp.run_routed(gx, weight_hh, h0, c0, mixture.cells, last)
        mixture = mixture.weights(h0.dtype)
    if autocast(device):
        # The input's product as autocast likes; sums over time in the parameters' precision.
        gx = gx.compute() if isinstance(gx, InputProduct) else gx
        gx, h0, c0, lower_c, mixture = (
            cast(t, weight_hh.dtype) for t in (gx, h0, c0, lower_c, mixture)
        )
        reads = {"lower_c": lower_c, "mixture": mixture}
        with torch.autocast(device, enabled=False):
            return run(name, cell, gx, weight_hh, h0, c0, **reads, last=last, params=params)
    if isinstance(gx, InputProduct) and name not in TAKES_INPUT:
        gx = gx.compute()
    return ENGINES[name](cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params)


def _tensors(given) -> tuple[Tensor | None, ...]:
    if isinstance(given, InputProduct):
        return given.x, given.weight, given.bias
    return (given.cells if isinstance(given, HardRouting) else given,)


def one_step(
    cell, x, weight_ih, bias, weight_hh, h, c=None, *, lower_c=None, mixture=None, params=()
):
    """A differentiable step of a layer in PyTorch operations, for decoding.

    Args:
        cell, weight_hh, params: as in :func:`run`.
        x: ``(B, I)``.
        weight_ih: ``(ih_blocks*H, I)``.
        bias: ``(ih_blocks*H,)``.
        h, c: ``(B, H)``; c None for a cell without c.
        lower_c: ``(B, H)``, the layer below's c, for a cell that reads it.
        mixture: ``(B, S)`` weights or a :class:`HardRouting`, for a mixture of cells.

    Returns:
        h and c after the step, ``(B, H)`` each (c None without cells). With weights in half
        precision c comes out in float32.
    """
    wide = accumulation_dtype(weight_hh.dtype)
    mixture = mixture.weights(wide) if isinstance(mixture, HardRouting) else mixture
    sums = F.linear(x, weight_ih, bias), F.linear(h, weight_hh)
    reads = {"lower_c": cast(lower_c, wide), "mixture": cast(mixture, wide)}
    params = tuple(cast(p, wide) for p in params)
    new_h, new_c = cell.step(*(cast(t, wide) for t in (*sums, h, c)), **reads, params=params)
    return new_h.to(h.dtype), new_c

"""Run a layer in one direction over a padded batch, or a single step of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cells.base import Cell
from .choice import by_name, choose
from .inputs import (
    InputProduct,
    LayerInputs,
    LayerOutputs,
    accumulation_dtype,
    autocast,
    cast,
    take_step,
)
from .mixture import HardRouting


def run(
    engine: str | None,
    cell: Cell,
    gx: Tensor | InputProduct,
    weight_hh: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    *,
    lower_c: Tensor | None = None,
    mixture: Tensor | HardRouting | None = None,
    last: Tensor | None = None,
    params: Sequence[Tensor] = (),
) -> LayerOutputs:
    """Run one layer in one direction over a padded batch.

    Args:
        engine: name of the engine, or None for the default.
        cell: a :class:`fairseq_casrnn.cells.Cell`.
        gx: ``(T, B, ih_blocks*H)``, W x + b for all steps, which the engine may overwrite; or an
            :class:`InputProduct`, which the engine computes.
        weight_hh: ``(hh_blocks*H, H)``.
        h0, c0: ``(B, H)`` initial state (c0 None for a cell without c).
        lower_c: ``(T, B, H)``, the cells of the layer below, for a cell that reads them.
        mixture: ``(T, B, S)`` weights or a :class:`HardRouting`, for a mixture of cells.
        last: ``(B,)`` index of each sequence's last step, or None for T-1.
        params: the elementwise parameters in the cell's order.

    Returns:
        ``hs, cs`` of shape ``(T, B, H)`` and ``h_n, c_n`` of shape ``(B, H)``; the c's are None for
        a cell without c. ``hs`` and ``cs`` are undefined after ``last``, as are their gradients:
        ``cpp`` skips padding.
    """
    device = weight_hh.device.type
    if autocast(device):
        # Autocast chooses the dtype of W x + b; the recurrence keeps the parameters' dtype.
        gx = gx.compute() if isinstance(gx, InputProduct) else gx
        mixture = mixture.weights(h0.dtype) if isinstance(mixture, HardRouting) else mixture
        dtype = weight_hh.dtype
        h0, c0, lower_c = cast(h0, dtype), cast(c0, dtype), cast(lower_c, dtype)
        rest = lower_c, cast(mixture, dtype), last, params
        with torch.autocast(device, enabled=False):
            return run_on(engine, LayerInputs(cell, cast(gx, dtype), weight_hh, h0, c0, *rest))
    if isinstance(mixture, HardRouting):
        chosen = by_name(engine, device)
        routed = LayerInputs(cell, gx, weight_hh, h0, c0, None, None, last, params)
        if chosen.supports_routing(routed, mixture.cells) is None:
            return chosen.run_routed(routed, mixture.cells)
        mixture = mixture.weights(h0.dtype)
    inputs = LayerInputs(cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params)
    return run_on(engine, inputs)


def run_on(engine: str | None, inputs: LayerInputs) -> LayerOutputs:
    """:func:`run` without autocast and hard routing."""
    device = inputs.weight_hh.device.type
    chosen = choose(engine, device, lambda one: one.supports(inputs))
    if isinstance(inputs.gx, InputProduct) and not chosen.takes_input_product:
        inputs = inputs._replace(gx=inputs.gx.compute())
    return chosen.run(inputs)


def one_step(
    cell: Cell,
    x: Tensor,
    weight_ih: Tensor,
    bias: Tensor,
    weight_hh: Tensor,
    h: Tensor,
    c: Tensor | None = None,
    *,
    lower_c: Tensor | None = None,
    mixture: Tensor | HardRouting | None = None,
    params: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor | None]:
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
        h and c after the step, ``(B, H)`` each; c is None for a cell without c, and float32 for
        weights in half precision.
    """
    wide = accumulation_dtype(weight_hh.dtype)
    mixture = mixture.weights(wide) if isinstance(mixture, HardRouting) else mixture
    gx, gh = F.linear(x, weight_ih, bias), F.linear(h, weight_hh)
    new_h, new_c = take_step(
        cell,
        cast(gx, wide),
        cast(gh, wide),
        cast(h, wide),
        cast(c, wide),
        lower_c=cast(lower_c, wide),
        mixture=cast(mixture, wide),
        params=tuple(cast(p, wide) for p in params),
    )
    return new_h.to(h.dtype), new_c

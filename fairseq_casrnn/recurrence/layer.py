"""A layer in one direction over a padded batch, or one step of it, on the engine that is chosen."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .engine import autocast, by_name, choose
from .inputs import HardRouting, InputProduct, accumulation_dtype, cast


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
    if autocast(device):
        # The input's product as autocast likes; sums over time in the parameters' precision.
        gx = gx.compute() if isinstance(gx, InputProduct) else gx
        mixture = mixture.weights(h0.dtype) if isinstance(mixture, HardRouting) else mixture
        gx, h0, c0, lower_c, mixture = (
            cast(t, weight_hh.dtype) for t in (gx, h0, c0, lower_c, mixture)
        )
        with torch.autocast(device, enabled=False):
            return run_on(engine, cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params)
    if isinstance(mixture, HardRouting):
        chosen = by_name(engine, device)
        if chosen.supports_routing(cell, gx, weight_hh, h0, c0, mixture) is None:
            return chosen.run_routed(gx, weight_hh, h0, c0, mixture.cells, last)
        mixture = mixture.weights(h0.dtype)
    return run_on(engine, cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params)


def run_on(engine, cell, gx, weight_hh, *rest):
    """:func:`run` without autocast and hard routing; the arguments are those of Engine.run."""
    chosen = choose(
        engine, weight_hh.device.type, lambda one: one.supports(cell, gx, weight_hh, *rest)
    )
    if isinstance(gx, InputProduct) and not chosen.takes_input_product:
        gx = gx.compute()
    return chosen.run(cell, gx, weight_hh, *rest)


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

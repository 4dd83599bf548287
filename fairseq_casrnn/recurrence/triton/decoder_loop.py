"""Buffers, arguments and launches of the decoder's loops on engine ``triton``.

Shapes as in :class:`..decoder.DecoderInputs`: T steps, B rows, H units, L layers.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...cells.base import Cell
from ..decoder import DecoderInputs, DecoderLayer
from ..inputs import accumulation_dtype
from .decoder_plan import Tiling, launch, tiles, tiling
from .host import contiguous, kernels
from .layer_loop import trained
from .plan import chip


class Weights(NamedTuple):
    """The parameters as the kernels read them; those of the upper layers are stacked."""

    w_ih0: Tensor | None
    w_hh0: Tensor
    rows0: Tensor | None
    attention0: Tensor | None
    w_ih: Tensor | None
    w_hh: Tensor | None
    bias: Tensor | None
    rows: Tensor | None
    attention: Tensor | None


def stacked(tensors: list[Tensor | None]) -> Tensor | None:
    """Stack tensors to ``(N, …)``, skipping None; None if nothing is left."""
    present = [t for t in tensors if t is not None]
    if not present:
        return None
    if len(present) == 1:
        return present[0].contiguous().unsqueeze(0)
    return torch.stack(present)


def named(layer: DecoderLayer) -> tuple[str, Tensor | None]:
    """The name of the layer's kernel, and its elementwise parameters in the accumulation dtype."""
    assert layer.cell.kernel is not None  # as decoder.why_not has checked
    wide = accumulation_dtype(layer.weight_hh.dtype)
    like = torch.empty(0, dtype=wide, device=layer.weight_hh.device)
    params = [p.to(wide) for p in layer.params]
    return layer.cell.kernel, layer.cell.kernel_rows(params, like, layer.weight_hh.size(1))


def gather_weights(layers: list[DecoderLayer], embed_dim: int) -> tuple[Weights, list[str]]:
    """The parameters, without the columns for embeddings, and the names of the layers' kernels."""
    names, rows = zip(*(named(layer) for layer in layers), strict=True)
    bottom, upper = layers[0], layers[1:]
    fed = bottom.weight_ih.size(1) > embed_dim
    weights = Weights(
        w_ih0=bottom.weight_ih.contiguous()[:, embed_dim:] if fed else None,
        w_hh0=bottom.weight_hh.contiguous(),
        rows0=rows[0],
        attention0=None
        if bottom.attention is None or not fed
        else bottom.attention.contiguous()[:, embed_dim:],
        w_ih=stacked([layer.weight_ih for layer in upper]),
        w_hh=stacked([layer.weight_hh for layer in upper]),
        bias=stacked([layer.bias for layer in upper]),
        rows=stacked(list(rows[1:])),
        attention=stacked([layer.attention for layer in upper]),
    )
    return weights, list(names)


def shape_of(cell: Cell, rows: Tensor | None, number: str = "") -> dict[str, int]:
    """The kernels' arguments that describe a layer's cell; their names end with ``number``."""
    return {
        f"BLOCKS{number}": cell.ih_blocks,
        f"PRODUCTS{number}": cell.hh_blocks,
        f"ADDED{number}": cell.hh_blocks - cell.num_separate_gates,
        f"PARAMS{number}": 0 if rows is None else rows.size(-2),
    }


class Saved(NamedTuple):
    """What the forward computes; gates, candidate and mixture of the upper layers are stacked.

    Attributes:
        hs: ``(L, T+1, B, H)`` in the weights' dtype, the initial state first.
        states: ``(L, T+1, B, H)``, c, or h for cells without c.
        gates0, gates: ``(T, B, blocks*H)``, ``(L-1, T, B, blocks*H)``, activated, or None.
        candidate0, candidate: ``(T, B, H)``, ``(L-1, T, B, H)``, or None.
        mixture0, mixture: ``(T, B, S)``, ``(L-1, T, B, S)``, or None.
        ups: ``(L-1, T, B, H)``, what is passed up after dropout, or None without dropout.
        outs, fed: ``(T, B, H)``, attention outputs before and after dropout.
        alphas: ``(T, B, span)``.
    """

    hs: Tensor
    states: Tensor
    gates0: Tensor | None
    gates: Tensor | None
    candidate0: Tensor | None
    candidate: Tensor | None
    mixture0: Tensor | None
    mixture: Tensor | None
    ups: Tensor | None
    outs: Tensor
    fed: Tensor
    alphas: Tensor


def common(
    layers: list[DecoderLayer], weights: Weights, d: DecoderInputs, tile_plan: Tiling
) -> dict[str, Any]:
    """The arguments that both kernels have in common."""
    bottom, top = layers[0].cell, layers[-1].cell
    size = d.h0.size(-1)
    return {
        **weights._asdict(),
        "keys": d.keys,
        "values": d.values,
        "drop_layers": d.drop_layers,
        "drop_out": d.drop_out,
        "w_out": d.weight_out,
        "temperature": d.temperature,
        "batch": d.h0.size(1),
        "span": d.keys.size(1),
        "layers": len(layers),
        "size": size,
        "stride": size if weights.w_ih0 is None else weights.w_ih0.stride(0),
        "out_stride": d.weight_out.stride(0),
        "LOWER": top.lower_cell,
        "CELLS": bottom.num_cells,
        "WAYS": max(16, 1 << max(bottom.num_cells - 1, 0).bit_length()),
        **shape_of(bottom, weights.rows0, "0"),
        **shape_of(top, weights.rows),
        **tiles(size, tile_plan, d.h0.dtype),
    }


def pointers(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    """``arguments`` with a placeholder tensor for those of ``names`` that are None.

    The kernel does not read them; None would require another compiled kernel.
    """
    placeholder = arguments["hs"]
    return arguments | {n: placeholder for n in names if arguments.get(n) is None}


def forward(
    d: DecoderInputs,
    weights: Weights,
    names: list[str],
    gx: Tensor,
    routed: Tensor | None,
    keep: bool,
) -> Saved:
    """The forward loop; with ``keep``, gates, candidate and mixture are kept for the backward."""
    layers, (steps, batch) = d.layers, gx.shape[:2]
    depth, size, dtype = len(layers), d.h0.size(-1), d.h0.dtype
    wide, above = accumulation_dtype(dtype), layers[-1].cell
    bottom = layers[0].cell
    new = functools.partial(gx.new_empty, dtype=wide)
    hs = gx.new_empty(depth, steps + 1, batch, size)
    states = new(depth, steps + 1, batch, size) if bottom.has_cell or wide != dtype else hs
    hs[:, 0] = d.h0
    if states is not hs:
        states[:, 0] = d.h0 if d.c0 is None else d.c0
    fed = gx.new_empty(steps, batch, size)
    gates0 = gates = candidate0 = candidate = mixture0 = mixture = None
    if keep:
        gates0 = gx if dtype == wide else new(gx.shape)
        gates = new(depth - 1, steps, batch, above.ih_blocks * size)
        if bottom.num_separate_gates:
            candidate0, candidate = new(steps, batch, size), new(depth - 1, steps, batch, size)
        if bottom.num_cells:
            mixture0 = new(steps, batch, bottom.num_cells)
            mixture = new(depth - 1, *mixture0.shape)
    saved = Saved(
        hs=hs,
        states=states,
        gates0=gates0,
        gates=gates,
        candidate0=candidate0,
        candidate=candidate,
        mixture0=mixture0,
        mixture=mixture,
        ups=None if d.drop_layers is None else hs.new_empty(depth - 1, steps, batch, size),
        outs=fed if d.drop_out is None else torch.empty_like(fed),
        fed=fed,
        alphas=new(steps, batch, d.keys.size(1)),
    )
    tile_plan, arguments = prepare(d, weights, names, batch, (steps + 1) * batch, batch)
    arguments |= saved._asdict()
    arguments |= {"gx": gx, "routed": routed, "feed": None, "source": None}
    start(tile_plan, arguments, states.new_empty(batch, size), steps)
    return saved


def fitting(size: int, batch: int, device: torch.device) -> Tiling:
    """The tiling for sizes that :func:`.decoder.why_not` has checked."""
    tile_plan = tiling(size, batch, chip(device)[0])
    assert tile_plan is not None
    return tile_plan


def prepare(
    d: DecoderInputs, weights: Weights, names: list[str], batch: int, plane: int, hop: int
) -> tuple[Tiling, dict[str, Any]]:
    """The tiling, and those arguments of the forward kernel that are the same at every step.

    In the state buffers, layers are ``plane`` rows apart and steps ``hop`` rows.
    """
    tile_plan = fitting(d.h0.size(-1), batch, d.h0.device)
    tables = kernels("single_steps").FORWARD
    arguments = common(d.layers, weights, d, tile_plan) | {
        "padding": d.mask,
        "batch": batch,
        "plane": plane,
        "hop": hop,
        "FEED": weights.w_ih0 is not None,
        "cell0": tables[names[0]],
        "cell": tables[names[-1]],
    }
    return tile_plan, arguments


def start(tile_plan: Tiling, arguments: dict[str, Any], context: Tensor, steps: int) -> None:
    """Launch the forward kernel; ``context`` (B, H) is a scratch buffer that its programs share."""
    arguments = arguments | {"context": context, "steps": steps}
    arguments = pointers(arguments, "w_ih0", "w_ih", "w_hh", "bias", "rows", "rows0")
    module = kernels("decoder")
    launch(module.decode_forward, module.FORWARD, tile_plan, **arguments)


class Grads(NamedTuple):
    """Gradients that the backward kernel computes; shapes as in :class:`Saved`.

    They have the accumulation dtype, unless said otherwise.

    Attributes:
        gates0, gates: of the pre-activations, in the weights' dtype.
        products0, products: of U h, in the weights' dtype.
        rows0, rows: ``(tiles, 1 or L-1, rows, H)``, of the elementwise parameters, with a partial
            sum per tile of rows; or None.
        mixture0, mixture: of the mixtures' weights, with a partial sum per tile of units in a
            dimension before B; or None.
        states: ``(L, B, H)``.
        pre: ``(T, B, H)``, of the output before its tanh.
        scores: ``(T, B, span)``.
    """

    gates0: Tensor
    gates: Tensor
    products0: Tensor
    products: Tensor
    rows0: Tensor | None
    rows: Tensor | None
    mixture0: Tensor | None
    mixture: Tensor | None
    states: Tensor
    pre: Tensor
    scores: Tensor


def backward(
    d: DecoderInputs,
    weights: Weights,
    names: list[str],
    saved: Saved,
    *,
    grad_out: Tensor | None,
    grad_alphas: Tensor | None,
    retain: bool,
) -> Grads:
    """The backward loop; with ``retain``, the saved gates are not overwritten."""
    assert saved.gates0 is not None
    assert saved.gates is not None
    hs, states, layers = saved.hs, saved.states, d.layers
    depth, steps, batch, size = len(layers), hs.size(1) - 1, *hs.shape[2:]
    tile_plan = fitting(size, batch, hs.device)
    bottom, above = layers[0].cell, layers[-1].cell
    new, zeros = states.new_empty, states.new_zeros
    overwrite = hs.dtype == states.dtype and not retain
    d_gates0, d_gates = (
        g if overwrite else torch.empty_like(g, dtype=hs.dtype) for g in (saved.gates0, saved.gates)
    )
    d_products0, d_products = d_gates0, d_gates
    if bottom.num_separate_gates:
        d_products0 = hs.new_empty(steps, batch, bottom.hh_blocks * size)
        d_products = hs.new_empty(depth - 1, steps, batch, above.hh_blocks * size)
    learned0 = trained(bottom, weights.rows0)
    learned = trained(above, None if weights.rows is None else weights.rows[0])
    grads = Grads(
        gates0=d_gates0,
        gates=d_gates,
        products0=d_products0,
        products=d_products,
        rows0=zeros(tile_plan.grid[0], 1, learned0, size) if learned0 else None,
        rows=zeros(tile_plan.grid[0], depth - 1, learned, size) if learned else None,
        mixture0=parts_like(saved.mixture0, tile_plan.grid[1], d.temperature),
        mixture=parts_like(saved.mixture, tile_plan.grid[1], d.temperature),
        states=zeros(depth, batch, size),
        pre=hs.new_empty(steps, batch, size),
        scores=new(steps, batch, d.keys.size(1)),
    )
    tables = kernels("single_steps").BACKWARD
    arguments = common(layers, weights, d, tile_plan) | saved._asdict()
    arguments |= {f"d_{name}": tensor for name, tensor in grads._asdict().items()}
    arguments |= {
        "grad_out": contiguous(grad_out),
        "grad_alphas": contiguous(grad_alphas),
        "d_query": new(batch, size),
        "d_up": new(batch, size),
        "steps": steps,
        "GRADS0": learned0,
        "GRADS": learned,
        "PARTS": tile_plan.grid[1],
        "cell0": tables[names[0]],
        "cell": tables[names[-1]],
    }
    for name in ("bias", "ups", "fed"):
        del arguments[name]
    arguments = pointers(arguments, "w_ih", "w_hh", "rows", "rows0", "d_rows", "d_rows0")
    module = kernels("decoder")
    launch(module.decode_backward, module.BACKWARD, tile_plan, backwards=True, **arguments)
    return grads


def parts_like(mixture: Tensor | None, parts: int, temperature: Tensor | None) -> Tensor | None:
    """A buffer for partial gradients of ``mixture`` (…, B, S), one per tile of units."""
    if mixture is None or temperature is None:
        return None
    return mixture.new_empty(*mixture.shape[:-2], parts, *mixture.shape[-2:])


def dense(d: DecoderInputs) -> DecoderInputs:
    """``d`` with contiguous tensors, or for ``weight_out`` contiguous rows, as the kernels need."""
    names = ("keys", "values", "mask", "drop_layers", "drop_out")
    changed = {name: contiguous(getattr(d, name)) for name in names}
    if d.weight_out.stride(-1) != 1:
        changed["weight_out"] = d.weight_out.contiguous()
    return replace(d, **changed)

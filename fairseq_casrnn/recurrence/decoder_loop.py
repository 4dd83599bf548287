"""The decoder loop of :mod:`.decoder` as one ``autograd.Function`` with hand-written backward.

The forward loop fills :class:`Buffers`, which the backward loop reads. There are two pairs of
loops, :mod:`.decoder_eager` and :mod:`.decoder_cpp`. This module computes what can be computed for
all steps at once: products with the embeddings before the loop, weight gradients after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cells.base import Cell
from .decoder import (
    DecoderInputs,
    DecoderLayer,
    flatten_layers,
    unflatten_layers,
    without_embedding,
)
from .eager import check_backward, retain_graph_requested, without_autocast
from .inputs import wants_gradient
from .products import linear
from .reference import at_step


@dataclass
class Buffers:
    """Inputs and state of the loop; shapes as in :class:`.decoder.DecoderInputs`, lists by layer.

    Attributes:
        weight_ih, attention: those of the bottom layer without the embedding's columns.
        params: the cells' elementwise parameters, in the cells' order.
        hs, cs: ``(L, T+1, B, H)``, the initial state first (cs None without cells).
        feeds: ``(T+1, B, H)``, the input feeding of each step; zeros in the first one.
        outs: ``(T, B, H)``, attention outputs before dropout.
        alphas: ``(T, B, S)``.
        gates: ``(T, B, ih_blocks*H)``; the bottom layer's start as the product with embeddings.
        candidates: ``(T, B, num_separate_gates*H)`` or None.
        mixes: ``(T, B, S)`` mixture weights or None; the bottom layer's start as ``routed``, the
            embedding's part of the scores.
        ups: ``(L-1, T, B, H)``, the states passed up after dropout, or None without dropout.
        rows: the elementwise parameters as compiled kernels read them; of the compiled loop only.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor | None
    weight_out: Tensor
    drop_layers: Tensor | None
    drop_out: Tensor | None
    temperature: Tensor | None
    hs: Tensor
    cs: Tensor | None
    feeds: Tensor
    outs: Tensor
    alphas: Tensor
    ups: Tensor | None
    cells: list[Cell]
    weight_ih: list[Tensor]
    weight_hh: list[Tensor]
    bias: list[Tensor]
    attention: list[Tensor | None]
    gates: list[Tensor]
    candidates: list[Tensor | None]
    mixes: list[Tensor | None]
    params: list[tuple[Tensor, ...]]
    rows: list[Tensor | None] = field(default_factory=list)

    def x(self, k: int) -> Tensor:
        """The input of layer k, ``(T, B, H)``; for the bottom layer the fed attention outputs."""
        if k == 0:
            return self.feeds[:-1]
        return self.hs[k - 1, 1:] if self.ups is None else self.ups[k - 1]

    def states(self, k: int, t: int) -> tuple[Tensor | None, Tensor | None]:
        """``c_prev, c`` of layer k at step t; None without cells."""
        return (None, None) if self.cs is None else (self.cs[k, t], self.cs[k, t + 1])

    def reads(self, k: int, t: int) -> dict[str, Any]:
        """The keyword arguments of :meth:`.Cell.forward_` for layer k at step t."""
        lower = self.cells[k].lower_cell
        return {
            "candidate": at_step(self.candidates[k], t),
            "lower_c": None if self.cs is None or not lower else self.cs[k - 1, t + 1],
            "mixture": at_step(self.mixes[k], t),
            "params": self.params[k],
        }

    def pack(self) -> tuple[list[Tensor | None], dict[str, Any]]:
        """All tensors in a list that autograd can save, and each attribute's indices in it."""
        tensors: list[Tensor | None] = []

        def add(tensor: Tensor | None) -> int:
            tensors.append(tensor)
            return len(tensors) - 1

        indices = {name: nested(add, v) for name, v in vars(self).items() if name != "cells"}
        return tensors, indices

    @classmethod
    def unpack(
        cls, cells: list[Cell], tensors: Sequence[Tensor | None], indices: dict[str, Any]
    ) -> Buffers:
        """The inverse of :meth:`pack`."""
        return cls(
            cells=cells, **{name: nested(tensors.__getitem__, v) for name, v in indices.items()}
        )


def nested(function: Callable[[Any], Any], value: Any) -> Any:
    """``function`` of ``value`` or, if it is a list or tuple, of everything in it."""
    if isinstance(value, (list, tuple)):
        return type(value)(nested(function, part) for part in value)
    return function(value)


@dataclass
class Grads:
    """Gradients: the backward loop reads ``out`` and ``alpha`` and fills the others.

    Attributes:
        out, alpha: the incoming gradients of feeds[1:] and alphas, or None.
        dh, dc: ``(L, B, H)``; after the loop, of the initial state.
        d_pre: ``(T, B, H)``, of the attention output before its tanh.
        d_scores: ``(T, B, S)``, of the attention's scores.
        mixes: ``(T, B, S)`` by layer, of the routing's scores, or None.
        bias: ``(ih_blocks*H,)`` by layer.
        params: by layer, as ``Buffers.params``.
    """

    out: Tensor | None
    alpha: Tensor | None
    dh: Tensor
    dc: Tensor | None
    d_pre: Tensor
    d_scores: Tensor
    mixes: list[Tensor | None]
    bias: list[Tensor | None]
    params: list[tuple[Tensor, ...]]


class Loops(NamedTuple):
    """A forward loop, which fills Buffers, and a backward loop, which fills Grads.

    The backward loop overwrites gates and candidates with the gradients of their pre-activations.
    The forward loop's second argument is False for inference, where it need not fill them.
    """

    forward: Callable[[Buffers, bool], None]
    backward: Callable[[Buffers, Grads], None]
    engine: str


def run(d: DecoderInputs, loops: Loops) -> tuple[Tensor, Tensor]:
    """:func:`.decoder.run_reference` as one autograd function."""
    embed_dim = d.embedded.size(-1)
    bottom = d.layers[0]
    # The embedding's part of the bottom layer's products, for all steps at once.
    gx = linear(d.embedded, bottom.weight_ih[:, :embed_dim], bottom.bias, loops.engine)
    routed = None
    if bottom.attention is not None:
        routed = F.linear(d.embedded, bottom.attention[:, :embed_dim])
    layers = [without_embedding(bottom, embed_dim), *d.layers[1:]]
    tensors, cells = flatten_layers(layers), [layer.cell for layer in layers]
    constants = Constants(d.mask, d.drop_layers, d.drop_out, d.temperature)
    inputs = Inputs(gx, routed, d.h0, d.c0, d.keys, d.values, d.weight_out)
    if wants_gradient(*inputs, *tensors):
        result: tuple[Tensor, Tensor] = _Decode.apply(loops, cells, constants, *inputs, *tensors)
        return result
    b = allocate(layers, constants, inputs)
    loops.forward(b, False)
    return b.feeds[1:], b.alphas


class Constants(NamedTuple):
    """Inputs of the loop that have no gradient; see :class:`.decoder.DecoderInputs`."""

    mask: Tensor | None
    drop_layers: Tensor | None
    drop_out: Tensor | None
    temperature: Tensor | None


class Inputs(NamedTuple):
    """Inputs of the loop that have a gradient, except for the layers' parameters.

    Attributes:
        gx: ``(T, B, ih_blocks*H)``, the bottom layer's product with the embeddings.
        routed: ``(T, B, S)``, the same for its routing, or None.

    The rest is that of :class:`.decoder.DecoderInputs`.
    """

    gx: Tensor
    routed: Tensor | None
    h0: Tensor
    c0: Tensor | None
    keys: Tensor
    values: Tensor
    weight_out: Tensor


def allocate(layers: list[DecoderLayer], constants: Constants, inputs: Inputs) -> Buffers:
    """The buffers of a forward pass, with the initial state and the hoisted products in them."""
    gx, routed, h0, c0, keys, values, weight_out = inputs
    mask, drop_layers, drop_out, temperature = constants
    cells = [layer.cell for layer in layers]
    steps, batch, _ = gx.shape
    depth, size = len(cells), h0.size(-1)
    hs = gx.new_empty(depth, steps + 1, batch, size)
    hs[:, 0] = h0
    cs = None
    if c0 is not None:
        cs = torch.empty_like(hs)
        cs[:, 0] = c0
    feeds = gx.new_empty(steps + 1, batch, size)
    feeds[0].zero_()
    mixes = [
        None if layer.attention is None else gx.new_empty(steps, batch, layer.cell.num_cells)
        for layer in layers
    ]
    if routed is not None:
        mixes[0] = routed.detach().clone()
    # In place: gx is the output of a linear map, which autograd does not save.
    gates = [gx.detach().contiguous()]
    return Buffers(
        keys=keys,
        values=values,
        mask=mask,
        weight_out=weight_out,
        drop_layers=drop_layers,
        drop_out=drop_out,
        temperature=temperature,
        hs=hs,
        cs=cs,
        feeds=feeds,
        outs=feeds[1:] if drop_out is None else gx.new_empty(steps, batch, size),
        alphas=gx.new_empty(steps, batch, keys.size(1)),
        ups=None if drop_layers is None else hs.new_empty(depth - 1, steps, batch, size),
        cells=cells,
        weight_ih=[layer.weight_ih for layer in layers],
        weight_hh=[layer.weight_hh for layer in layers],
        bias=[layer.bias for layer in layers],
        attention=[layer.attention for layer in layers],
        gates=gates + [gx.new_empty(steps, batch, cell.ih_blocks * size) for cell in cells[1:]],
        candidates=[
            gx.new_empty(steps, batch, cell.num_separate_gates * size)
            if cell.num_separate_gates
            else None
            for cell in cells
        ],
        mixes=mixes,
        params=[layer.params for layer in layers],
    )


class _Decode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, loops: Loops, cells: list[Cell], constants: Constants, *inputs_and_parameters: Any
    ) -> tuple[Tensor, Tensor]:
        count = len(Inputs._fields)
        layers = unflatten_layers(cells, inputs_and_parameters[count:])
        b = allocate(layers, constants, Inputs(*inputs_and_parameters[:count]))
        loops.forward(b, True)
        tensors, ctx.indices = b.pack()
        ctx.loops, ctx.cells = loops, cells
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return b.feeds[1:].clone(), b.alphas

    @staticmethod
    @without_autocast
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_alpha: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        engine = ctx.loops.engine
        check_backward(engine, grad_out, grad_alpha)
        b = Buffers.unpack(ctx.cells, ctx.saved_tensors, ctx.indices)
        if retain_graph_requested():
            b.gates = [g.clone() for g in b.gates]
            b.candidates = [None if i is None else i.clone() for i in b.candidates]
        first = b.hs[:, 0]
        g = Grads(
            out=grad_out,
            alpha=grad_alpha,
            dh=torch.zeros_like(first, memory_format=torch.contiguous_format),
            dc=None if b.cs is None else torch.zeros_like(first),
            d_pre=torch.empty_like(b.outs),
            d_scores=torch.empty_like(b.alphas),
            mixes=[None if m is None else torch.empty_like(m) for m in b.mixes],
            bias=[None for _ in b.cells],
            params=[tuple(torch.zeros_like(p) for p in params) for params in b.params],
        )
        ctx.loops.backward(b, g)
        d_tensors: list[Tensor | None] = []
        for k in range(len(b.cells)):
            x = b.x(k)
            d_w, d_u = weight_grads(
                b.cells[k], b.gates[k], b.candidates[k], x, b.hs[k, :-1], engine
            )
            mixes = g.mixes[k]
            d_attention = None if mixes is None else time_product(mixes, x, engine)
            # The bottom layer's bias is in gx.
            d_tensors += [d_w, d_u, None if k == 0 else g.bias[k], d_attention, *g.params[k]]
        top = b.hs[-1, 1:]
        d_keys = torch.bmm(g.d_scores.permute(1, 2, 0), top.transpose(0, 1))  # (B,S,T) x (B,T,H)
        d_values = torch.bmm(b.alphas.permute(1, 2, 0), g.d_pre.transpose(0, 1))
        d_weight_out = time_product(g.d_pre, top, engine)
        return (
            *(None, None, None, b.gates[0], g.mixes[0], g.dh, g.dc, d_keys, d_values, d_weight_out),
            *d_tensors,
        )


def time_product(a: Tensor, b: Tensor, engine: str) -> Tensor:
    """Σ over time and batch of aᵀ b, for ``(T, B, M)`` and ``(T, B, N)``: ``(M, N)``."""
    return linear(a.reshape(-1, a.size(-1)).t(), b.reshape(-1, b.size(-1)).t(), engine=engine)


def weight_grads(
    cell: Cell, d_gates: Tensor, candidate: Tensor | None, x: Tensor, h_prev: Tensor, engine: str
) -> tuple[Tensor, Tensor]:
    """Gradients of weight_ih and weight_hh from those of the pre-activations, one product each."""
    split = (cell.hh_blocks - cell.num_separate_gates) * h_prev.size(-1)
    d_u = time_product(d_gates[:, :, :split], h_prev, engine)
    if candidate is not None:
        d_u = torch.cat([d_u, time_product(candidate, h_prev, engine)])
    return time_product(d_gates, x, engine), d_u

"""The decoder loop of :mod:`.decoder` in C++ (``csrc/decoder.cpp``), also step by step."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import cpp
from .decoder import DecoderInputs, without_embedding
from .decoder_loop import Buffers, Grads, Loops
from .reference import at_step


def why_not(d: DecoderInputs) -> str | None:
    """Why the compiled loop cannot run ``d``, or None."""
    shared = (d.embedded, d.h0, d.c0, d.keys, d.values, d.weight_out, d.drop_layers, d.drop_out)
    for layer in d.layers:
        weights = (layer.weight_ih, layer.weight_hh, layer.attention, *layer.params)
        reason = cpp.why_not(layer.cell, d.embedded.dtype, *shared, *weights)
        if reason is not None:
            return reason
    return None


def compiled_decoder(b: Buffers) -> Any:
    """The buffers as the extension's ``Decoder`` (``csrc/decoder.h``)."""
    module, _ = cpp.extension()
    layers = []
    for k, cell in enumerate(b.cells):
        passed_up = k + 1 < len(b.cells)  # after dropout
        layers.append(
            module.DecoderLayer(
                kernel=cell.kernel,
                weight_ih_t=b.weight_ih[k].t(),
                weight_hh_t=b.weight_hh[k].t(),
                bias=None if k == 0 else b.bias[k],
                params=b.rows[k],
                attention=b.attention[k],
                gates=b.gates[k],
                candidate=b.candidates[k],
                mixes=b.mixes[k],
                hs=b.hs[k],
                cs=None if b.cs is None else b.cs[k],
                drop=at_step(b.drop_layers, k) if passed_up else None,
                up=at_step(b.ups, k) if passed_up else None,
            )
        )
    return module.Decoder(
        layers=layers,
        keys=b.keys,
        values=b.values,
        mask=b.mask,
        weight_out_t=b.weight_out.t(),
        drop_out=b.drop_out,
        feeds=b.feeds,
        outs=b.outs,
        alphas=b.alphas,
        temperature=None if b.temperature is None else float(b.temperature),
    )


def forward(b: Buffers, keep: bool) -> None:
    """The forward loop; products may be quantised unless ``keep``, for a later backward."""
    size = b.hs.size(-1)
    b.rows = [
        cell.kernel_rows(params, b.hs, size) for cell, params in zip(b.cells, b.params, strict=True)
    ]
    cpp.extension()[0].decode_forward(compiled_decoder(b), keep)


def backward(b: Buffers, g: Grads) -> None:
    """The backward loop."""
    dc = [] if g.dc is None else list(g.dc)
    g.bias, d_rows = cpp.extension()[0].decode_backward(
        compiled_decoder(b),
        grad_out=cpp.dense(g.out),
        grad_alpha=cpp.dense(g.alpha),
        d_pre=g.d_pre,
        d_scores=g.d_scores,
        dh=list(g.dh),
        dc=dc,
        mixes=g.mixes,
    )
    g.params = [
        cell.kernel_param_grads(d_row, row, params)
        for cell, d_row, row, params in zip(b.cells, d_rows, b.rows, b.params, strict=True)
    ]


COMPILED = Loops(forward, backward, "cpp")


class CppDecoderSteps:
    """The decoder loop step by step, without gradients, for beam search.

    Several rows of the batch, such as the hypotheses of a beam, may share a source sentence, whose
    keys and values are stored once. Weights are packed once, at the first step.

    Args:
        d: as for the whole loop, but only the width of ``embedded`` is used; h0 and c0 are per
            row of the batch, keys, values and mask per sentence; dropout and temperature are None.
        source: ``(B,)`` int64, each row's sentence, or None if row i reads sentence i.
        input_feed: whether the bottom layer reads the attention output.
    """

    def __init__(self, d: DecoderInputs, source: Tensor | None, input_feed: bool = True):
        module, _ = cpp.extension()
        embed_dim, bottom = d.embedded.size(-1), d.layers[0]
        self.routing = None if bottom.attention is None else bottom.attention[:, :embed_dim]
        layers = []
        for k, layer in enumerate([without_embedding(bottom, embed_dim), *d.layers[1:]]):
            fed = k > 0 or input_feed
            mixes = None
            if layer.attention is not None:
                mixes = d.h0.new_empty(1, d.h0.size(1), layer.cell.num_cells)
            layers.append(
                module.DecoderLayer(
                    kernel=layer.cell.kernel,
                    weight_ih_t=layer.weight_ih.t() if fed else None,
                    weight_hh_t=layer.weight_hh.t(),
                    bias=layer.bias,
                    params=layer.cell.kernel_rows(layer.params, d.h0, d.h0.size(-1)),
                    attention=layer.attention if fed else None,
                    mixes=mixes,
                    hs=first_of_two(d.h0[k]),
                    cs=None if d.c0 is None else first_of_two(d.c0[k]),
                )
            )
        self.steps = module.DecoderSteps(
            module.Decoder(
                layers=layers,
                keys=d.keys,
                values=d.values,
                mask=d.mask,
                source=source,
                weight_in_t=bottom.weight_ih[:, :embed_dim].t(),
                weight_out_t=d.weight_out.t(),
                feeds=first_of_two(torch.zeros_like(d.h0[0])),
            )
        )

    def step(self, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """One step: attention output ``(B, H)`` and weights ``(B, S)``, given embeddings (B, E)."""
        routed = None if self.routing is None else F.linear(embedded, self.routing)
        out, alpha = self.steps.step(cpp.dense(embedded), routed)
        return out, alpha

    def reorder(self, order: Tensor) -> None:
        """Row i of the next step continues row ``order[i]`` of the last one; order is (B',)."""
        # The loop keeps the tensor and reads it by address, so it needs a contiguous copy.
        self.steps.reorder(order.clone(memory_format=torch.contiguous_format))


def first_of_two(state: Tensor) -> Tensor:
    """A buffer ``(2, B, H)`` whose first half is ``state`` (B, H)."""
    buffer = state.new_empty(2, *state.shape)
    buffer[0] = state
    return buffer

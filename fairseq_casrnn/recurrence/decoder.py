"""The decoder loop with attention and input feeding: at each step all layers, then attention.

At each step the bottom layer reads the embedding and the attention output of the step before
(input feeding, Luong et al. 2015). ``run_reference`` is the specification, under autograd;
:mod:`.decoder_loop` and :mod:`.decoder_cpp` have the fused loops, :mod:`.decoding` chooses.

Attention is Luong's "general" score with a tanh output: a = softmax(mᵀ W_a h),
out = tanh(W_o [Σ a m; h]). Both products with the source m are done once, before the loop:
``keys`` = m W_a and ``values`` = m W_ocᵀ, so that a step's scores are keysᵀ h and its output
tanh(a values + W_oh h).

Shapes: T target steps, B batch, S source steps, H hidden, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cells.base import Cell
from .inputs import cast, take_step
from .mixture import mix


@dataclass
class DecoderLayer:
    """One decoder layer: its cell and parameters; ``attention`` (S, I) routes a mixture's input."""

    cell: Cell
    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor
    params: tuple[Tensor, ...] = ()
    attention: Tensor | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All of its tensors."""
        return self.weight_ih, self.weight_hh, self.bias, self.attention, *self.params

    def to(self, dtype: torch.dtype) -> DecoderLayer:
        """The layer with all tensors in ``dtype``."""
        return unflatten_layers([self.cell], [cast(t, dtype) for t in self.tensors()])[0]


def without_embedding(bottom: DecoderLayer, embed_dim: int) -> DecoderLayer:
    """The bottom layer's weights without the columns that multiply the embedding."""
    attention = None if bottom.attention is None else bottom.attention[:, embed_dim:]
    return replace(bottom, weight_ih=bottom.weight_ih[:, embed_dim:], attention=attention)


def flatten_layers(layers: list[DecoderLayer]) -> list[Tensor | None]:
    """The tensors of all layers in one list, for ``autograd.Function``."""
    return [tensor for layer in layers for tensor in layer.tensors()]


def unflatten_layers(cells: list[Cell], tensors: Sequence[Any]) -> list[DecoderLayer]:
    """The inverse of :func:`flatten_layers`."""
    layers, rest = [], iter(tensors)
    for cell in cells:
        weight_ih, weight_hh, bias, attention = islice(rest, 4)
        params = tuple(islice(rest, len(cell.params)))
        layers.append(DecoderLayer(cell, weight_ih, weight_hh, bias, params, attention))
    return layers


@dataclass
class DecoderInputs:
    """The inputs of the loop.

    Attributes:
        layers: L layers; the bottom one reads [embedding; fed attention output].
        embedded: ``(T, B, E)`` target embeddings.
        h0, c0: ``(L, B, H)`` initial state; c0 is None for cells without c.
        keys, values: ``(B, S, H)``, the source projected for the scores and for the output.
        mask: ``(B, S)`` bool, True at source padding, or None.
        weight_out: ``(H, H)``, W_oh.
        drop_layers: ``(L-1, T, B, H)`` scaled dropout masks between layers, or None.
        drop_out: ``(T, B, H)`` scaled dropout mask of the attention output, or None.
        temperature: scalar, of the mixtures' softmax, or None for hard routing.
    """

    layers: list[DecoderLayer]
    embedded: Tensor
    h0: Tensor
    c0: Tensor | None
    keys: Tensor
    values: Tensor
    mask: Tensor | None
    weight_out: Tensor
    drop_layers: Tensor | None = None
    drop_out: Tensor | None = None
    temperature: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """All tensors, also those of the layers."""
        own = [t for t in vars(self).values() if torch.is_tensor(t)]
        return own + [t for t in flatten_layers(self.layers) if t is not None]

    def to(self, dtype: torch.dtype) -> DecoderInputs:
        """The inputs with all floating-point tensors in ``dtype``, except the temperature."""
        own: dict[str, Any] = {
            name: value.to(dtype)
            for name, value in vars(self).items()
            if torch.is_tensor(value) and value.is_floating_point() and name != "temperature"
        }
        return replace(self, layers=[layer.to(dtype) for layer in self.layers], **own)


class DecoderSteps(Protocol):
    """The decoder loop step by step, without gradients, for beam search."""

    def step(self, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """One step: attention output ``(B, H)`` and weights ``(B, S)``, given embeddings (B, E)."""

    def reorder(self, order: Tensor) -> None:
        """Row i of the next step continues row ``order[i]`` of the last one; order is (B',)."""


def run_reference(d: DecoderInputs) -> tuple[Tensor, Tensor]:
    """The loop under autograd.

    Returns:
        The fed outputs ``(T, B, H)`` and the attention ``(T, B, S)``.
    """
    h, c = list(d.h0), None if d.c0 is None else list(d.c0)
    feed = torch.zeros_like(d.h0[0])
    outputs, alphas = [], []
    for t in range(d.embedded.size(0)):
        x, lower_c = torch.cat([d.embedded[t], feed], dim=-1), None
        for k, layer in enumerate(d.layers):
            h[k], lower_c = take_step(
                layer.cell,
                F.linear(x, layer.weight_ih, layer.bias),
                F.linear(h[k], layer.weight_hh),
                h[k],
                None if c is None else c[k],
                lower_c=lower_c if layer.cell.lower_cell else None,
                mixture=route(layer, x, d.temperature),
                params=layer.params,
            )
            if c is not None and lower_c is not None:
                c[k] = lower_c
            x = h[k]
            if d.drop_layers is not None and k + 1 < len(d.layers):
                x = x * d.drop_layers[k, t]
        out, alpha = attend(h[-1], d.keys, d.values, d.mask, d.weight_out)
        feed = out if d.drop_out is None else out * d.drop_out[t]
        outputs.append(feed)
        alphas.append(alpha)
    if not outputs:  # no target word
        return feed.new_empty(0, *feed.shape), feed.new_empty(0, *d.keys.shape[:2])
    return torch.stack(outputs), torch.stack(alphas)


def route(layer: DecoderLayer, x: Tensor, temperature: Tensor | None) -> Tensor | None:
    """Mixture weights ``(…, S)`` for a layer's input, hard when ``temperature`` is None."""
    if layer.attention is None:
        return None
    return mix(F.linear(x, layer.attention), temperature)


def attend(
    h: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, weight_out: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of attention for ``h`` (B, H): the output ``(B, H)`` and the weights ``(B, S)``."""
    scores = torch.bmm(keys, h.unsqueeze(-1)).squeeze(-1)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    alpha = torch.softmax(scores, dim=-1)
    context = torch.bmm(alpha.unsqueeze(1), values).squeeze(1)
    return torch.tanh(context + F.linear(h, weight_out)), alpha

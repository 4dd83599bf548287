"""The decoder loop of :mod:`..decoder` on a GPU: engine ``triton``.

Forward and backward are one cooperative launch each (:mod:`.kernels.decoder`). This module computes
what can be computed for all steps at once: products with the embeddings before the loop, weight
gradients after it. In half precision only the products' factors are rounded; gates, states,
attention weights and sums are float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...cells.base import Cell
from ..decoder import DecoderInputs, DecoderLayer, flatten_layers, unflatten_layers
from ..decoder_loop import Constants
from ..eager import check_backward, retain_graph_requested, without_autocast
from ..inputs import accumulation_dtype, wants_gradient
from ..mixture import unmix
from ..reference import at_step
from . import support
from .decoder_loop import Grads, Saved, Weights, backward, dense, forward, gather_weights
from .decoder_plan import tiling
from .failures import stop
from .plan import chip, interpreting, supports_grid_barrier


def why_not(d: DecoderInputs) -> str | None:
    """Why the kernels cannot run ``d``, or None."""
    for layer in d.layers:
        weights = (layer.weight_ih, layer.weight_hh, layer.bias, layer.attention, *layer.params)
        shared = (d.embedded, d.h0, d.keys, d.values, d.weight_out, d.drop_layers, d.drop_out)
        reason = support.why_not(layer.cell, (*weights, *shared), (d.c0,))
        if reason is not None:
            return reason
    if len({(type(layer.cell), len(layer.params)) for layer in d.layers[1:]}) > 1:
        return "the upper layers are of several kinds"
    if not supports_grid_barrier(d.h0.device):
        return "the GPU's programs cannot wait for each other"
    if d.h0.dtype == torch.float64 and not interpreting():
        return "there is no product in float64"
    if tiling(d.h0.size(-1), d.h0.size(1), chip(d.h0.device)[0]) is None:
        return f"a hidden size of {d.h0.size(-1)} has no room on the GPU"
    return None


def run(d: DecoderInputs) -> tuple[Tensor, Tensor]:
    """Run the loop; see :func:`..decoder.run_reference`."""
    tensors = flatten_layers(d.layers)
    constants = Constants(d.mask, d.drop_layers, d.drop_out, d.temperature)
    inputs = d.embedded, d.h0, d.c0, d.keys, d.values, d.weight_out
    cells = [layer.cell for layer in d.layers]
    if wants_gradient(*inputs, *tensors):
        out, alpha = _Decode.apply(cells, constants, *inputs, *tensors)
        return out, alpha
    saved = run_forward(dense(d), keep=False)
    return saved.fed, saved.alphas.to(d.h0.dtype)


def run_forward(d: DecoderInputs, keep: bool) -> Saved:
    """Compute the products with the embeddings, then run the loop."""
    embed_dim = d.embedded.size(-1)
    weights = gather_weights(d.layers, embed_dim)
    bottom, routed = d.layers[0], None
    gx = F.linear(d.embedded, bottom.weight_ih[:, :embed_dim], bottom.bias)
    if bottom.attention is not None:
        routed = F.linear(d.embedded, bottom.attention[:, :embed_dim])
    return forward(d, weights, gx, routed, keep)


class _Decode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, cells: list[Cell], constants: Constants, *inputs_and_parameters: Any
    ) -> tuple[Tensor, Tensor]:
        embedded, h0, c0, keys, values, weight_out, *tensors = inputs_and_parameters
        mask, *dropped = constants
        layers = unflatten_layers(cells, tensors)
        d = dense(DecoderInputs(layers, embedded, h0, c0, keys, values, mask, weight_out, *dropped))
        saved = run_forward(d, keep=True)
        ctx.cells, ctx.num_saved = cells, len(saved.flat())
        ctx.save_for_backward(
            *saved.flat(), embedded, h0, c0, d.keys, d.values, weight_out,
            *(d.drop_layers, d.drop_out, d.temperature), *tensors,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        return saved.fed, saved.alphas.to(h0.dtype)

    @staticmethod
    @without_autocast
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_alphas: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        check_backward("triton", grad_out, grad_alphas)
        # Under torch.utils.checkpoint, ctx.saved_tensors can be read only once.
        tensors, count = ctx.saved_tensors, ctx.num_saved
        saved = Saved.of_flat(tensors[:count])
        embedded, h0, c0, keys, values, weight_out, *rest = tensors[count:]
        layers = unflatten_layers(ctx.cells, rest[3:])
        d = DecoderInputs(layers, embedded, h0, c0, keys, values, None, weight_out, *rest[:3])
        return None, None, *run_backward(d, saved, grad_out, grad_alphas)


def run_backward(
    d: DecoderInputs, saved: Saved, grad_out: Tensor | None, grad_alphas: Tensor | None
) -> list[Tensor | None]:
    """Gradients of embedded, h0, c0, keys, values, weight_out and the layers' parameters."""
    layers, dtype = d.layers, d.h0.dtype
    weights = gather_weights(layers, d.embedded.size(-1))
    if grad_alphas is not None:
        grad_alphas = grad_alphas.to(saved.alphas.dtype)
    try:
        g = backward(
            d,
            weights,
            saved,
            grad_out=grad_out,
            grad_alphas=grad_alphas,
            retain=retain_graph_requested(),
        )
    except Exception as error:
        stop(error)
    d_states_h, tensors = [], []
    for k, layer in enumerate(layers):
        of_layer = layer_grads(k, layer, d, saved, g)
        if k == 0:
            d_embedded = embedded_grad(d, of_layer.gates, of_layer.scores)
        x = saved.hs[k - 1, 1:] if saved.ups is None else saved.ups[k - 1]
        inputs = (d.embedded, saved.fed) if k == 0 else (x,)
        d_states_h.append(of_layer.h0)
        tensors += [
            input_grad(of_layer.gates, inputs, layer.weight_ih),
            torch.mm(of_layer.products.t(), saved.hs[k, :-1].flatten(0, 1)),
            of_layer.gates.sum(0, dtype=accumulation_dtype(dtype)).to(dtype),
            None
            if of_layer.scores is None or layer.attention is None
            else input_grad(of_layer.scores, inputs, layer.attention),
            *(p_grad.to(dtype) for p_grad in param_grads(k, layer, weights, g)),
        ]
    top, pre = saved.hs[-1, 1:], g.pre
    d_h0, d_states = torch.stack(d_states_h), g.states.to(dtype)
    if d.c0 is None:
        d_h0 += d_states
    d_keys = torch.bmm(g.scores.to(dtype).permute(1, 2, 0), top.transpose(0, 1))
    d_values = torch.bmm(saved.alphas.to(dtype).permute(1, 2, 0), pre.transpose(0, 1))
    d_weight_out = torch.mm(pre.flatten(0, 1).t(), top.flatten(0, 1))
    d_c0 = None if d.c0 is None else d_states.to(d.c0.dtype)
    return [d_embedded, d_h0, d_c0, d_keys, d_values, d_weight_out, *tensors]


class MatrixGrads(NamedTuple):
    """Gradients of one layer.

    Attributes:
        gates, products: ``(T*B, ·)``, of the pre-activations and of U h.
        scores: ``(T*B, S)``, of a mixture's scores, or None.
        h0: ``(B, H)``, only the part that comes through U.
    """

    gates: Tensor
    products: Tensor
    scores: Tensor | None
    h0: Tensor


def layer_grads(
    k: int, layer: DecoderLayer, d: DecoderInputs, saved: Saved, g: Grads
) -> MatrixGrads:
    """The gradients of layer k, from the results of the backward loop."""
    d_gates, d_products = g.bottom.gates, g.bottom.products
    mixture, d_mixture = saved.bottom.mixture, g.bottom.mixture
    if k > 0:
        d_gates, d_products = g.upper.gates[k - 1], g.upper.products[k - 1]
        mixture = at_step(saved.upper.mixture, k - 1)
        d_mixture = at_step(g.upper.mixture, k - 1)
    d_scores = None
    if layer.attention is not None and mixture is not None:
        # Summed over tiles of units; zero for hard routing.
        d_weights = torch.zeros_like(mixture) if d_mixture is None else d_mixture.sum(-3)
        d_scores = unmix(d_weights, mixture, d.temperature).to(d.h0.dtype).flatten(0, 1)
    width = layer.weight_hh.size(0)
    d_h0 = torch.mm(d_products[0, :, :width], layer.weight_hh)
    return MatrixGrads(d_gates.flatten(0, 1), d_products.flatten(0, 1)[:, :width], d_scores, d_h0)


def embedded_grad(d: DecoderInputs, d_gates: Tensor, d_scores: Tensor | None) -> Tensor:
    """The gradient of the embeddings, given the bottom layer's ``(T*B, ·)`` of gates and scores."""
    bottom, size = d.layers[0], d.embedded.size(-1)
    d_embedded = torch.mm(d_gates, bottom.weight_ih[:, :size])
    if d_scores is not None and bottom.attention is not None:
        d_embedded.addmm_(d_scores, bottom.attention[:, :size])
    return d_embedded.view_as(d.embedded)


def param_grads(k: int, layer: DecoderLayer, weights: Weights, g: Grads) -> tuple[Tensor, ...]:
    """The gradients of layer k's elementwise parameters."""
    if not layer.params:
        return ()
    rows, d_rows = weights.bottom.rows, g.bottom.rows
    if k > 0:
        rows = at_step(weights.upper.rows, k - 1)
        d_rows = None if g.upper.rows is None else g.upper.rows[:, k - 1 : k]
    d_rows = None if d_rows is None else d_rows.sum((0, 1))
    return layer.cell.kernel_param_grads(d_rows, rows, layer.params)


def input_grad(d: Tensor, inputs: tuple[Tensor, ...], weight: Tensor) -> Tensor:
    """The gradient of ``weight`` (M, I), given the gradient ``d`` (T*B, M) of its products.

    ``inputs`` are one or two tensors ``(T, B, ·)``, concatenated; the second is delayed by a step.
    """
    if len(inputs) == 1:
        return torch.mm(d.t(), inputs[0].flatten(0, 1))
    out, first = torch.empty_like(weight, memory_format=torch.contiguous_format), inputs[0].size(-1)
    batch = inputs[0].size(1)
    torch.mm(d.t(), inputs[0].flatten(0, 1), out=out[:, :first])
    torch.mm(d[batch:].t(), inputs[1][:-1].flatten(0, 1), out=out[:, first:])
    return out

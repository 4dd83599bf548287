"""The decoder loop with attention and input feeding: all layers, then attention, step after step.

At each step the bottom layer reads the embedding and the attention output of the step before
(input feeding, Luong et al. 2015). ``run_reference`` is the specification, under autograd.
``run_eager`` is one ``autograd.Function`` with hand-written backward: every weight gradient is one
product after the loop.

Attention is Luong's "general" score with a tanh output: a = softmax(mᵀ W_a h),
out = tanh(W_o [Σ a m; h]). Both products with the source m are done once, before the loop:
``keys`` = m W_a and ``values`` = m W_ocᵀ, so that a step's scores are keysᵀ h and its output
tanh(a values + W_oh h).

Shapes: T target steps, B batch, S source steps, H hidden, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cells.base import Cell
from .eager import add_recurrent_, keeps_graph, refuse_create_graph


@dataclass
class Layer:
    """One decoder layer: its cell, parameters and, of a mixture, ``attention`` (S, I), or None."""

    cell: Cell
    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor
    params: tuple[Tensor, ...] = ()
    attention: Tensor | None = None


@dataclass
class Decode:
    """What the loop works on.

    Attributes:
        layers: L layers; the bottom one reads [embedding; fed attention output].
        embedded: ``(T, B, E)`` target embeddings.
        h0, c0: ``(L, B, H)`` initial state (c0 None without cells).
        keys, values: ``(B, S, H)``, the source projected for the scores and for the output.
        mask: ``(B, S)`` bool, True at source padding, or None.
        weight_out: ``(H, H)``, W_oh.
        drop_layers: ``(L-1, T, B, H)`` scaled dropout masks between layers, or None.
        drop_out: ``(T, B, H)`` scaled dropout mask of the attention output, or None.
        temperature: scalar of the mixtures' softmax, or None for hard routing.
    """

    layers: list[Layer]
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


def run_reference(d: Decode) -> tuple[Tensor, Tensor]:
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
            extra = lower_c if layer.cell.lower_cell else route(layer, x, d.temperature)
            gx, gh = F.linear(x, layer.weight_ih, layer.bias), F.linear(h[k], layer.weight_hh)
            h[k], lower_c = layer.cell.step(
                gx, gh, h[k], None if c is None else c[k], extra, layer.params
            )
            if c is not None:
                c[k] = lower_c
            x = h[k]
            if d.drop_layers is not None and k + 1 < len(d.layers):
                x = x * d.drop_layers[k, t]
        out, alpha = attend(h[-1], d.keys, d.values, d.mask, d.weight_out)
        feed = out if d.drop_out is None else out * d.drop_out[t]
        outputs.append(feed)
        alphas.append(alpha)
    return torch.stack(outputs), torch.stack(alphas)


def route(layer: Layer, x: Tensor, temperature: Tensor | None) -> Tensor | None:
    """Mixture weights ``(…, S)`` for a layer's input, hard when ``temperature`` is None."""
    if layer.attention is None:
        return None
    return mix(F.linear(x, layer.attention), temperature)


def attend(h, keys, values, mask, weight_out):
    """One step of attention for ``h`` (B, H): the output ``(B, H)`` and the weights ``(B, S)``."""
    scores = torch.bmm(keys, h.unsqueeze(-1)).squeeze(-1)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    alpha = torch.softmax(scores, dim=-1)
    context = torch.bmm(alpha.unsqueeze(1), values).squeeze(1)
    return torch.tanh(context + F.linear(h, weight_out)), alpha


def run_eager(d: Decode) -> tuple[Tensor, Tensor]:
    """The loop as one autograd function; same arguments and results as :func:`run_reference`."""
    embed_dim = d.embedded.size(-1)
    bottom = d.layers[0]
    # The embedding's part of the bottom layer's product, for all steps at once; and of its routing.
    gx = F.linear(d.embedded, bottom.weight_ih[:, :embed_dim], bottom.bias)
    routed = None
    if bottom.attention is not None:
        routed = F.linear(d.embedded, bottom.attention[:, :embed_dim])
    tensors = []
    for k, layer in enumerate(d.layers):
        skip = embed_dim if k == 0 else 0
        attention = None if layer.attention is None else layer.attention[:, skip:]
        weights = (layer.weight_ih[:, skip:], layer.weight_hh, layer.bias, attention)
        tensors += [*weights, *layer.params]
    return _Decode.apply(
        [layer.cell for layer in d.layers],
        (d.mask, d.drop_layers, d.drop_out, d.temperature),
        gx,
        routed,
        d.h0,
        d.c0,
        d.keys,
        d.values,
        d.weight_out,
        *tensors,
    )


def split_tensors(cells, tensors):
    """Undo the flattening of run_eager: per layer ``(w_ih, w_hh, bias, attention, params)``."""
    layers, at = [], 0
    for cell in cells:
        count = 4 + len(cell.params)
        w_ih, w_hh, bias, attention, *params = tensors[at : at + count]
        layers.append((w_ih, w_hh, bias, attention, tuple(params)))
        at += count
    return layers


class _Decode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cells, constants, gx, routed, h0, c0, keys, values, weight_out, *tensors):
        mask, drop_layers, drop_out, temperature = constants
        layers = split_tensors(cells, tensors)
        steps, batch, _ = gx.shape
        depth, size = len(cells), h0.size(-1)
        hs = gx.new_empty(depth, steps + 1, batch, size)
        hs[:, 0] = h0
        cs = None
        if c0 is not None:
            cs = torch.empty_like(hs)
            cs[:, 0] = c0
        feeds = gx.new_empty(steps + 1, batch, size)
        feeds[0] = 0
        alphas = gx.new_empty(steps, batch, keys.size(1))
        outs = gx.new_empty(steps, batch, size) if drop_out is not None else feeds[1:]
        gates = [gx.detach().contiguous()]
        gates += [gx.new_empty(steps, batch, cell.ih_blocks * size) for cell in cells[1:]]
        inners = [
            gx.new_empty(steps, batch, cell.inner_blocks * size) if cell.inner_blocks else None
            for cell in cells
        ]
        mixes = [
            None if layer[3] is None else gx.new_empty(steps, batch, cell.routes)
            for cell, layer in zip(cells, layers, strict=True)
        ]
        weights_t = [(w.t().contiguous(), u.t().contiguous()) for w, u, *_ in layers]
        weight_out_t = weight_out.t().contiguous()
        ups = hs.new_empty(depth - 1, steps, batch, size) if drop_layers is not None else None
        for t in range(steps):
            x = feeds[t]
            for k, cell in enumerate(cells):
                w_t, u_t = weights_t[k]
                gates_t = gates[k][t]
                if k == 0:
                    gates_t.addmm_(x, w_t)
                else:
                    torch.addmm(layers[k][2], x, w_t, out=gates_t)
                inner = None if inners[k] is None else inners[k][t]
                add_recurrent_(cell, gates_t, inner, hs[k, t], u_t)
                extra = None
                if cell.lower_cell:
                    extra = cs[k - 1, t + 1]
                elif mixes[k] is not None:
                    scores = F.linear(x, layers[k][3])
                    if k == 0:
                        scores += routed[t]
                    mixes[k][t] = mix(scores, temperature)
                    extra = mixes[k][t]
                c_prev, c = (None, None) if cs is None else (cs[k, t], cs[k, t + 1])
                cell.forward_(
                    gates_t, inner, hs[k, t], c_prev, extra, layers[k][4], hs[k, t + 1], c
                )
                x = hs[k, t + 1]
                if ups is not None and k + 1 < depth:
                    x = torch.mul(x, drop_layers[k, t], out=ups[k, t])
            top = hs[-1, t + 1]
            scores = torch.bmm(keys, top.unsqueeze(-1)).squeeze(-1)
            if mask is not None:
                scores.masked_fill_(mask, float("-inf"))
            torch.softmax(scores, -1, out=alphas[t])
            out = torch.mm(top, weight_out_t, out=outs[t])
            out.unsqueeze(1).baddbmm_(alphas[t].unsqueeze(1), values)
            out.tanh_()
            if drop_out is not None:
                torch.mul(out, drop_out[t], out=feeds[t + 1])
        ctx.cells = cells
        before_dropout = None if drop_out is None else outs
        ctx.save_for_backward(
            *(mask, drop_layers, drop_out, temperature, keys, values, weight_out, hs, cs, feeds),
            *(alphas, before_dropout, ups, *gates, *inners, *mixes, *tensors),
        )
        ctx.set_materialize_grads(False)
        return feeds[1:].clone(), alphas

    @staticmethod
    def backward(ctx, grad_out, grad_alpha):
        refuse_create_graph()
        cells = ctx.cells
        depth = len(cells)
        saved = ctx.saved_tensors
        _, drop_layers, drop_out, temperature, keys, values, weight_out = saved[:7]
        hs, cs, feeds, alphas, outs, ups = saved[7:13]
        outs = feeds[1:] if outs is None else outs
        per_layer = [list(saved[at : at + depth]) for at in range(13, 13 + 3 * depth, depth)]
        gates, inners, mixes = per_layer
        layers = split_tensors(cells, saved[13 + 3 * depth :])
        if keeps_graph():
            gates = [g.clone() for g in gates]
            inners = [None if i is None else i.clone() for i in inners]
        steps, batch, _ = gates[0].shape
        size = hs.size(-1)
        d_layers = [tuple(torch.zeros_like(p) for p in layer[4]) for layer in layers]
        d_mixes = [None if m is None else torch.empty_like(m) for m in mixes]
        dh = [hs.new_zeros(batch, size) for _ in cells]
        dc = [None if cs is None else hs.new_zeros(batch, size) for _ in cells]
        d_feed = hs.new_zeros(batch, size)
        d_pre = torch.empty_like(outs)  # gradient before the output's tanh, (T, B, H)
        d_scores = torch.empty_like(alphas)
        for t in reversed(range(steps)):
            if grad_out is not None:
                d_feed.add_(grad_out[t])
            if drop_out is not None:
                d_feed.mul_(drop_out[t])
            torch.ops.aten.tanh_backward.grad_input(d_feed, outs[t], grad_input=d_pre[t])
            d_alpha = torch.bmm(values, d_pre[t].unsqueeze(-1)).squeeze(-1)
            if grad_alpha is not None:
                d_alpha.add_(grad_alpha[t])
            torch.ops.aten._softmax_backward_data.out(
                d_alpha, alphas[t], -1, alphas.dtype, grad_input=d_scores[t]
            )
            dh[-1].addmm_(d_pre[t], weight_out)
            dh[-1].unsqueeze(1).baddbmm_(d_scores[t].unsqueeze(1), keys)
            for k in reversed(range(depth)):
                cell, (w_ih, w_hh, _, attention, params) = cells[k], layers[k]
                gates_t, inner = gates[k][t], None if inners[k] is None else inners[k][t]
                c_prev, c = (None, None) if cs is None else (cs[k, t], cs[k, t + 1])
                extra = cs[k - 1, t + 1] if cell.lower_cell else None
                extra = extra if mixes[k] is None else mixes[k][t]
                direct, dc[k], d_extra = cell.backward_(
                    dh[k], dc[k], gates_t, inner, hs[k, t], c_prev, c, extra, params, d_layers[k]
                )
                split = (cell.hh_blocks - cell.inner_blocks) * size
                dh[k] = torch.mm(gates_t[:, :split], w_hh[:split])
                if inner is not None:
                    dh[k].addmm_(inner, w_hh[split:])
                if direct is not None:
                    dh[k].add_(direct)
                dx = torch.mm(gates_t, w_ih)
                if mixes[k] is not None:
                    d_mix = unmix(d_extra, extra, temperature)
                    d_mixes[k][t] = d_mix
                    dx.addmm_(d_mix, attention)
                elif d_extra is not None:
                    dc[k - 1].add_(d_extra)
                if k == 0:
                    d_feed = dx
                elif drop_layers is None:
                    dh[k - 1].add_(dx)
                else:
                    dh[k - 1].addcmul_(dx, drop_layers[k - 1, t])
        d_tensors = []
        for k, (cell, layer) in enumerate(zip(cells, layers, strict=True)):
            x = feeds[:-1] if k == 0 else (hs[k - 1, 1:] if ups is None else ups[k - 1])
            extra = cs[k - 1, 1:] if cell.lower_cell else None
            cell.param_grads(gates[k], None if cs is None else cs[k], extra, d_layers[k])
            d_w, d_u = weight_grads(cell, gates[k], inners[k], x, hs[k, :-1])
            d_bias = None if k == 0 else gates[k].sum((0, 1))
            d_attention = None if layer[3] is None else time_product(d_mixes[k], x)
            d_tensors += [d_w, d_u, d_bias, d_attention, *d_layers[k]]
        top = hs[-1, 1:]
        d_keys = torch.bmm(d_scores.permute(1, 2, 0), top.transpose(0, 1))  # (B, S, T) x (B, T, H)
        d_values = torch.bmm(alphas.permute(1, 2, 0), d_pre.transpose(0, 1))
        d_h0, d_c0 = torch.stack(dh), None if cs is None else torch.stack(dc)
        d_weight_out = time_product(d_pre, top)
        return (
            *(None, None, gates[0], d_mixes[0], d_h0, d_c0, d_keys, d_values, d_weight_out),
            *d_tensors,
        )


def mix(scores, temperature):
    """Mixture weights from scores: soft at ``temperature``, hard when it is None."""
    if temperature is None:
        return F.one_hot(scores.argmax(-1), scores.size(-1)).to(scores.dtype)
    return torch.softmax(scores / temperature.to(scores.dtype), dim=-1)


def unmix(d_alpha, alpha, temperature):
    """Gradient of the scores from that of the weights; hard routing has none."""
    if temperature is None:
        return torch.zeros_like(alpha)
    inner = (d_alpha * alpha).sum(-1, keepdim=True)
    return alpha * (d_alpha - inner) / temperature.to(alpha.dtype)


def time_product(a, b):
    """Σ over time and batch of aᵀ b, for ``(T, B, M)`` and ``(T, B, N)``: ``(M, N)``."""
    return torch.mm(a.reshape(-1, a.size(-1)).t(), b.reshape(-1, b.size(-1)))


def weight_grads(cell, d_gates, inner, x, h_prev):
    """Gradients of weight_ih and weight_hh from those of the pre-activations, one product each."""
    split = (cell.hh_blocks - cell.inner_blocks) * h_prev.size(-1)
    d_u = time_product(d_gates[:, :, :split], h_prev)
    if inner is not None:
        d_u = torch.cat([d_u, time_product(inner, h_prev)])
    return time_product(d_gates, x), d_u

"""The decoder loop of :mod:`.decoder_loop` in PyTorch operations, for any device and dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .decoder_loop import Buffers, Grads, Loops
from .eager import add_recurrent_
from .mixture import mix, unmix
from .reference import at_step


def forward(b: Buffers, keep: bool) -> None:
    """The forward loop in PyTorch operations."""
    weights_t = [
        (w.t().contiguous(), u.t().contiguous())
        for w, u in zip(b.weight_ih, b.weight_hh, strict=True)
    ]
    weight_out_t = b.weight_out.t().contiguous()
    for t in range(b.alphas.size(0)):
        for k, cell in enumerate(b.cells):
            x, (w_t, u_t) = b.x(k)[t], weights_t[k]
            gates, candidate = b.gates[k][t], at_step(b.candidates[k], t)
            if k == 0:
                gates.addmm_(x, w_t)
            else:
                torch.addmm(b.bias[k], x, w_t, out=gates)
            add_recurrent_(cell, gates, candidate, b.hs[k, t], u_t)
            mixes, attention = b.mixes[k], b.attention[k]
            if mixes is not None and attention is not None:
                scores = F.linear(x, attention)
                mixes[t] = mix(scores + mixes[t] if k == 0 else scores, b.temperature)
            c_prev, c = b.states(k, t)
            h = b.hs[k, t + 1]
            cell.forward_(gates, b.hs[k, t], c_prev, h, c, **b.reads(k, t))
            if b.ups is not None and b.drop_layers is not None and k + 1 < len(b.cells):
                torch.mul(h, b.drop_layers[k, t], out=b.ups[k, t])
        attention_step(b, t, weight_out_t)


def attention_step(b: Buffers, t: int, weight_out_t: Tensor) -> None:
    """Attention for the top layer's state at step t; its output is fed to the bottom layer next."""
    top = b.hs[-1, t + 1]
    scores = torch.bmm(b.keys, top.unsqueeze(-1)).squeeze(-1)
    if b.mask is not None:
        scores.masked_fill_(b.mask, float("-inf"))
    torch.softmax(scores, -1, out=b.alphas[t])
    out = torch.mm(top, weight_out_t, out=b.outs[t])
    out.unsqueeze(1).baddbmm_(b.alphas[t].unsqueeze(1), b.values)
    out.tanh_()
    if b.drop_out is not None:
        torch.mul(out, b.drop_out[t], out=b.feeds[t + 1])


def backward(b: Buffers, g: Grads) -> None:
    """The backward loop in PyTorch operations."""
    depth = len(b.cells)
    dh = list(g.dh)
    dc: list[Tensor | None] = [None] * depth if g.dc is None else list(g.dc)
    d_feed = torch.zeros_like(b.feeds[0])
    for t in reversed(range(b.alphas.size(0))):
        attention_step_backward(b, g, t, d_feed, dh[-1])
        for k in reversed(range(depth)):
            dx = layer_step_backward(b, g, t, k, dh, dc)
            if k == 0:
                d_feed = dx
            elif b.drop_layers is None:
                dh[k - 1].add_(dx)
            else:
                dh[k - 1].addcmul_(dx, b.drop_layers[k - 1, t])
    g.dh = torch.stack(dh)
    g.dc = None if b.cs is None else torch.stack([d for d in dc if d is not None])
    for k, cell in enumerate(b.cells):
        lower = b.cs[k - 1, 1:] if b.cs is not None and cell.lower_cell else None
        cs = None if b.cs is None else b.cs[k]
        cell.param_grads(b.gates[k], cs, lower_c=lower, d_params=g.params[k])
        g.bias[k] = None if k == 0 else b.gates[k].sum((0, 1))


def attention_step_backward(b: Buffers, g: Grads, t: int, d_feed: Tensor, dh: Tensor) -> None:
    """Backward of :func:`attention_step`; adds to ``dh``, the gradient of the top layer's state."""
    if g.out is not None:
        d_feed.add_(g.out[t])
    if b.drop_out is not None:
        d_feed.mul_(b.drop_out[t])
    torch.ops.aten.tanh_backward.grad_input(d_feed, b.outs[t], grad_input=g.d_pre[t])
    d_alpha = torch.bmm(b.values, g.d_pre[t].unsqueeze(-1)).squeeze(-1)
    if g.alpha is not None:
        d_alpha.add_(g.alpha[t])
    torch.ops.aten._softmax_backward_data.out(
        d_alpha, b.alphas[t], -1, b.alphas.dtype, grad_input=g.d_scores[t]
    )
    dh.addmm_(g.d_pre[t], b.weight_out)
    dh.unsqueeze(1).baddbmm_(g.d_scores[t].unsqueeze(1), b.keys)


def layer_step_backward(
    b: Buffers, g: Grads, t: int, k: int, dh: list[Tensor], dc: list[Tensor | None]
) -> Tensor:
    """Backward of layer k at step t: updates ``dh`` and ``dc``, returns the gradient of its x."""
    cell, w_hh = b.cells[k], b.weight_hh[k]
    gates, candidate = b.gates[k][t], at_step(b.candidates[k], t)
    c_prev, c = b.states(k, t)
    h_prev, reads = b.hs[k, t], b.reads(k, t)
    direct, dc[k], d_lower_c, d_mixture = cell.backward_(
        dh[k], dc[k], gates, h_prev, c_prev, c, d_params=g.params[k], **reads
    )
    split = (cell.hh_blocks - cell.num_separate_gates) * h_prev.size(-1)
    dh[k] = torch.mm(gates[:, :split], w_hh[:split])
    if candidate is not None:
        dh[k].addmm_(candidate, w_hh[split:])
    if direct is not None:
        dh[k].add_(direct)
    dx = torch.mm(gates, b.weight_ih[k])
    mixes, d_mixes, attention = b.mixes[k], g.mixes[k], b.attention[k]
    if mixes is not None and d_mixes is not None and attention is not None:
        assert d_mixture is not None  # of a mixture
        d_mixes[t] = unmix(d_mixture, mixes[t], b.temperature)
        dx.addmm_(d_mixes[t], attention)
    d_below = dc[k - 1]
    if d_lower_c is not None and d_below is not None:
        d_below.add_(d_lower_c)
    return dx


EAGER = Loops(forward, backward, "eager")

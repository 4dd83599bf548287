"""Merge the parameters of a sentence-state LSTM for the products of :mod:`.sentence_state`.

Shapes and names as in :class:`fairseq_casrnn.layers.SentenceStateLSTM`; order of blocks as in
:mod:`.kernels.sentence_state`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..cpp import dense
from ..sentence_state import SLSTMOptions, SLSTMParameters


def merge_weights(
    options: SLSTMOptions, p: SLSTMParameters
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The weights of the two products of a step, and the bias of the second.

    Returns:
        The weights ``((G+K)*H, (2w+1)*H)`` for ξ and ``(M*H, (K+1)*H)`` for [g, h̄], the latter
        None without nodes; and the bias ``(M*H,)``.
    """
    size, nodes, gates = options.size, options.nodes, options.gates
    weight = p.weight_hh.new_zeros((gates + nodes) * size, options.width)[:, : options.columns]
    weight[: gates * size] = p.weight_hh
    if nodes == 0:
        return weight, None, dense(p.bias)
    weight_gh, weight_sg, weight_sh, bias_s = (t for t in p[4:] if t is not None)
    on_g, on_h = (w.view(nodes, 3, size, size) for w in (weight_sg, weight_sh))  # g f o
    center = weight[gates * size :, options.window * size : (options.window + 1) * size]
    center.unflatten(0, (nodes, size)).copy_(on_h[:, 1])

    node_weight = weight.new_zeros(options.node_blocks, size, nodes + 1, size)
    node_weight[:gates, :, :nodes] = weight_gh.view(gates, size, nodes, size)
    own, each = _node_blocks(options, node_weight)
    own.diagonal(dim1=1, dim2=3).copy_(on_g[:, 1:].permute(1, 2, 3, 0))
    own[1, :, :, nodes] = on_h[:, 2]
    each.diagonal(dim1=1, dim2=3).copy_(on_g[:, 0].unsqueeze(-1).expand(-1, -1, -1, nodes))
    each[:, :, :, nodes] = on_h[:, 0].unsqueeze(1)

    b_g, b_f, b_o = bias_s.view(nodes, 3, size).unbind(1)
    b_g = b_g.unsqueeze(1).expand(-1, nodes, -1).flatten(0, 1)
    bias = torch.cat([p.bias.view(gates, size), b_f, b_o, b_g])
    return weight, node_weight.view(-1, (nodes + 1) * size), bias.flatten()


def split_grads(
    options: SLSTMOptions, d_words: Tensor, d_nodes: Tensor | None, d_bias: Tensor
) -> tuple[Tensor | None, ...]:
    """The inverse of :func:`merge_weights`, for gradients.

    Returns:
        The gradients of weight_hh, bias, weight_gh, weight_sg, weight_sh and bias_s.
    """
    size, nodes, gates = options.size, options.nodes, options.gates
    if d_nodes is None:
        return d_words, d_bias, None, None, None, None
    d_hh, d_f = d_words.split([gates * size, nodes * size])
    d_f = d_f[:, options.window * size : (options.window + 1) * size]
    d_nodes = d_nodes.view(options.node_blocks, size, nodes + 1, size)
    own, each = _node_blocks(options, d_nodes)
    d_sg, d_sh = (d_words.new_empty(nodes, 3, size, size) for _ in range(2))
    torch.sum(each.diagonal(dim1=1, dim2=3), -1, out=d_sg[:, 0])
    d_sg[:, 1:] = own.diagonal(dim1=1, dim2=3).permute(3, 0, 1, 2)
    torch.sum(each[:, :, :, nodes], 1, out=d_sh[:, 0])
    d_sh[:, 1] = d_f.unflatten(0, (nodes, size))
    d_sh[:, 2] = own[1, :, :, nodes]
    d_gh = d_nodes[:gates, :, :nodes].reshape(gates * size, nodes * size)
    d_b, d_b_f, d_b_o, d_b_g = d_bias.view(-1, size).split([gates, nodes, nodes, nodes**2])
    d_bias_s = torch.stack([d_b_g.view(nodes, nodes, size).sum(1), d_b_f, d_b_o], 1)
    d_sg, d_sh = d_sg.view(-1, size), d_sh.view(-1, size)
    return d_hh, d_b.flatten(), d_gh, d_sg, d_sh, d_bias_s.flatten()


def _node_blocks(options: SLSTMOptions, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Views of ``(M, H, K+1, H)``: f and o ``(2, K, H, K+1, H)``, and g ``(K, K, H, K+1, H)``."""
    nodes = options.nodes
    own, each = weight[options.gates :].split([2 * nodes, nodes**2])
    return own.unflatten(0, (2, nodes)), each.unflatten(0, (nodes, nodes))

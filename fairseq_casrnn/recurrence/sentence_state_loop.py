"""All steps of a sentence-state LSTM on the engine ``triton``, in one ``autograd.Function``.

A step is two matrix products and one kernel (:mod:`.triton_sentence_state`) in either direction:
one product for all words (W_hh ξ and U_f h) and one for all nodes (the weights on g and h̄). The
weights' gradients are one product each after the loop. For that, weights with a common input are
merged, with zeros where a gate does not read a part of it: with one node these are 2 of 24 blocks
of the words' product, which a GPU multiplies in less time than a further launch takes.

Shapes and names as in :class:`fairseq_casrnn.layers.SentenceStateLSTM`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import engine_name, triton_loop
from .cpp import dense
from .eager import check_backward, keeps_graph, without_autocast
from .inputs import kept, wants_gradient
from .memory import readable
from .ragged import padding_mask
from .triton_steps import kernels, on_its_device, product

TILE = 8, 32
"""Words and hidden units that a program computes at once, at most."""


class Parameters(NamedTuple):
    """Those of the layer; the last four are None without sentence nodes."""

    weight_ih: Tensor
    bias: Tensor
    weight_hh: Tensor
    h0: Tensor
    weight_gh: Tensor | None
    weight_sg: Tensor | None
    weight_sh: Tensor | None
    bias_s: Tensor | None


@dataclass(frozen=True)
class Options:
    """Sizes and settings of a layer.

    Attributes:
        size, window, nodes, num_steps: H, w, K and the number of steps.
        recompute: keep no gates for the backward.
    """

    size: int
    window: int
    nodes: int
    num_steps: int
    recompute: bool = False

    @property
    def gates(self) -> int:
        """G, of a word."""
        return 2 * self.window + self.nodes + 4

    @property
    def node_blocks(self) -> int:
        """M: blocks that are computed once a sentence."""
        return self.gates + 2 * self.nodes + self.nodes**2


def can_run(engine: str | None, x: Tensor, lengths: Tensor | None, params) -> bool:
    """Whether ``engine`` (None: the default) is ``triton`` and has kernels for these tensors."""
    if engine_name(engine, x.device.type) != "triton" or x.size(1) == 0:
        return False
    if not readable(x, lengths, *params):
        return False
    # Under autocast x and parameters are cast alike.
    inputs = params if torch.is_autocast_enabled(x.device.type) else (x, *params)
    reason = triton_loop.why_not_on(inputs)
    if reason is not None:
        triton_loop.say("eager", reason)
    return reason is None


def run(options: Options, x: Tensor, lengths: Tensor | None, params: Parameters):
    """All steps over a padded batch.

    Args:
        options: of the layer.
        x: ``(T, B, I)``; what it holds at padding is not read.
        lengths: ``(B,)``, int64, or None where nothing is padding.
        params: the layer's.

    Returns:
        The words' states ``(T, B, H)``, zero at padding, and the nodes' ``(B, K*H)``.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, *params = (None if t is None else t.to(dtype) for t in (x, *params))
        params = Parameters(*params)
        with torch.autocast(device, enabled=False):
            return run(options, x, lengths, params)
    if wants_gradient(x, *params):
        return _Loop.apply(options, lengths, x, *params)
    return forward(options, x, lengths, params, keep=False)[:2]


def merge_weights(options: Options, p: Parameters) -> tuple[Tensor, Tensor | None, Tensor]:
    """The weights of a step's two products and the bias of the second.

    Returns:
        ``((G+K)*H, (2w+1)*H)`` on ξ; ``(M*H, (K+1)*H)`` on [g, h̄] or None without nodes; and
        ``(M*H,)``. Blocks are in the order of :mod:`.triton_sentence_state`.
    """
    size, nodes, gates = options.size, options.nodes, options.gates
    if nodes == 0:
        return p.weight_hh, None, dense(p.bias)
    on_g, on_h = (w.view(nodes, 3, size, size) for w in (p.weight_sg, p.weight_sh))  # g f o
    around = options.window * size
    u_f = F.pad(on_h[:, 1].reshape(nodes * size, size), (around, around))
    weight = p.weight_ih.new_zeros(options.node_blocks, size, nodes + 1, size)
    weight[:gates, :, :nodes] = p.weight_gh.view(gates, size, nodes, size)
    own, each = _node_blocks(options, weight)
    own.diagonal(dim1=1, dim2=3).copy_(on_g[:, 1:].permute(1, 2, 3, 0))
    own[1, :, :, nodes] = on_h[:, 2]
    each.diagonal(dim1=1, dim2=3).copy_(on_g[:, 0].unsqueeze(-1).expand(-1, -1, -1, nodes))
    each[:, :, :, nodes] = on_h[:, 0].unsqueeze(1)
    b_g, b_f, b_o = p.bias_s.view(nodes, 3, size).unbind(1)
    bias = torch.cat([p.bias.view(gates, size), b_f, b_o, b_g.repeat_interleave(nodes, 0)])
    return torch.cat([p.weight_hh, u_f]), weight.view(-1, (nodes + 1) * size), bias.flatten()


def split_grads(options: Options, d_words: Tensor, d_nodes: Tensor | None, d_bias: Tensor) -> tuple:
    """The inverse of :func:`merge_weights` for gradients.

    Returns:
        those of weight_hh, bias, weight_gh, weight_sg, weight_sh and bias_s.
    """
    size, nodes, gates = options.size, options.nodes, options.gates
    if nodes == 0:
        return d_words, d_bias, None, None, None, None
    d_hh, d_f = d_words.split([gates * size, nodes * size])
    d_f = d_f[:, options.window * size : (options.window + 1) * size]
    d_nodes = d_nodes.view(options.node_blocks, size, nodes + 1, size)
    own, each = _node_blocks(options, d_nodes)
    d_sg, d_sh = (d_words.new_empty(nodes, 3, size, size) for _ in range(2))
    d_sg[:, 0] = each.diagonal(dim1=1, dim2=3).sum(-1)
    d_sg[:, 1:] = own.diagonal(dim1=1, dim2=3).permute(3, 0, 1, 2)
    d_sh[:, 0] = each[:, :, :, nodes].sum(1)
    d_sh[:, 1] = d_f.reshape(nodes, size, size)
    d_sh[:, 2] = own[1, :, :, nodes]
    d_b, d_b_f, d_b_o, d_b_g = d_bias.view(-1, size).split([gates, nodes, nodes, nodes**2])
    d_bias_s = torch.stack([d_b_g.view(nodes, nodes, size).sum(1), d_b_f, d_b_o], 1)
    d_gh = d_nodes[:gates, :, :nodes].reshape(gates * size, nodes * size)
    return (
        d_hh,
        d_b.flatten(),
        d_gh,
        *(d.view(-1, size) for d in (d_sg, d_sh)),
        d_bias_s.flatten(),
    )


def _node_blocks(options: Options, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Views of the nodes' rows: ``(f o, K, H, K+1, H)`` and ``(K, for each node, H, K+1, H)``."""
    shape = options.nodes, *weight.shape[1:]
    own, each = weight[options.gates :].split([2 * options.nodes, options.nodes**2])
    return own.view(2, *shape), each.view(options.nodes, *shape)


class Saved(NamedTuple):
    """What the forward fills for the backward; see :mod:`.triton_sentence_state`.

    ``node_gates`` and ``node_inputs`` are None without nodes; ``gates`` has one slot when they are
    computed again. ``x`` is zero at padding.
    """

    gates: Tensor
    gx: Tensor
    node_gates: Tensor | None
    bias: Tensor
    windows: Tensor
    node_inputs: Tensor | None
    cells: Tensor
    node_cells: Tensor
    node_totals: Tensor
    lengths: Tensor
    x: Tensor
    weight: Tensor
    node_weight: Tensor | None


def launcher(options: Options, words: int, batch: int):
    """Grid of programs, and the arguments that all kernels have."""
    units = min(TILE[1], 1 << (options.size - 1).bit_length())
    shared = {"words": words, "batch": batch, "size": options.size, "WINDOW": options.window}
    shared |= {"NODES": options.nodes, "ROWS": TILE[0], "UNITS": units}
    return (batch, -(-options.size // units)), shared


def allocate(options: Options, x: Tensor, lengths: Tensor, p: Parameters, keep: bool) -> Saved:
    """Buffers for all steps, or for two in turn unless ``keep``; gx is computed."""
    words, batch, _ = x.shape
    size, nodes, wide = options.size, options.nodes, kept(x.dtype)
    slots = options.num_steps if keep else 2

    def empty(*shape, dtype=wide):
        return x.new_empty(shape, dtype=dtype)

    weight, node_weight, bias = merge_weights(options, p)
    gx = empty(words, batch, options.gates * size)
    product(x.flatten(0, 1), p.weight_ih.t(), gx.flatten(0, 1))
    gate_slots = slots if keep and not options.recompute else 1
    gates = empty(gate_slots, words, batch, (options.gates + nodes) * size)
    node_gates = node_inputs = None
    if nodes:
        node_gates = empty(slots, batch, options.node_blocks * size)
        node_inputs = empty(slots, batch, (nodes + 1) * size, dtype=x.dtype)
    windows = empty(slots, words, batch, (2 * options.window + 1) * size, dtype=x.dtype)
    cells = empty(slots, words, batch, size)
    node_cells, node_totals = (empty(slots, batch, nodes, size) for _ in range(2))
    states = (windows, node_inputs, cells, node_cells, node_totals)
    return Saved(gates, gx, node_gates, bias, *states, lengths, x, weight, node_weight)


def word_product(saved: Saved, step: int) -> None:
    """W_hh ξ and U_f h of a step, into its slot of ``gates``."""
    windows, gates = (buffer[step % len(buffer)] for buffer in (saved.windows, saved.gates))
    product(windows.flatten(0, 1), saved.weight.t(), gates.flatten(0, 1))


def forward(options: Options, x: Tensor, lengths: Tensor | None, p: Parameters, keep: bool):
    """The results of :func:`run` and, where ``keep``, :class:`Saved` for all steps."""
    words, batch, _ = x.shape
    if lengths is None:
        lengths = torch.full((batch,), words, device=x.device)
    else:  # not even NaN at padding may reach a weight's gradient
        lengths = lengths.contiguous()
        x = x.masked_fill(padding_mask(lengths, words).unsqueeze(-1), 0.0)
    return _forward(options, x.contiguous(), lengths, p, keep)


@on_its_device
def _forward(options, x, lengths, p, keep):
    words, batch, _ = x.shape
    saved = allocate(options, x, lengths, p, keep)
    output = x.new_empty(words, batch, options.size)
    node_output = x.new_empty(batch, options.nodes * options.size)
    grid, shared = launcher(options, words, batch)
    module = kernels("sentence_state")
    # Kernels get a pointer also for what they do not read.
    node_inputs = saved.windows if saved.node_inputs is None else saved.node_inputs
    node_gates = saved.gates if saved.node_gates is None else saved.node_gates
    module.first_states[grid](dense(p.h0), saved.windows, node_inputs, lengths, **shared)
    tensors = saved._replace(node_inputs=node_inputs, node_gates=node_gates)[:10]
    slots = {"slots": len(saved.windows), "gate_slots": len(saved.gates)}
    kernel, shared = module.forward_step[grid], shared | slots | {"num_steps": options.num_steps}
    for step in range(options.num_steps):
        word_product(saved, step)
        if options.nodes:
            slot = step % len(node_gates)
            product(node_inputs[slot], saved.node_weight.t(), node_gates[slot])
        kernel(*tensors, output, node_output, step=step, **shared)
    return output, node_output, saved


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, lengths, x, *params):
        output, node_output, saved = forward(options, x, lengths, Parameters(*params), keep=True)
        ctx.options = options
        ctx.save_for_backward(*saved, params[0])
        return output, node_output

    @staticmethod
    @without_autocast
    def backward(ctx, grad_h, grad_g):
        check_backward("triton", grad_h, grad_g)
        *saved, weight_ih = ctx.saved_tensors
        saved = Saved(*saved)
        grads = backward(ctx.options, saved, dense(grad_h), dense(grad_g))
        d_gx = grads.gx.to(saved.x.dtype).flatten(0, 1)
        d_x = torch.mm(d_gx, weight_ih).view_as(saved.x) if ctx.needs_input_grad[2] else None
        d_ih = torch.mm(d_gx.t(), saved.x.flatten(0, 1))
        split = split_grads(ctx.options, grads.weight, grads.node_weight, grads.bias)
        d_hh, d_bias, d_gh, d_sg, d_sh, d_bias_s = (
            None if d is None else d.to(weight_ih.dtype) for d in split
        )
        d_h0 = grads.h0.sum(0).to(weight_ih.dtype)
        return None, None, d_x, d_ih, d_bias, d_hh, d_h0, d_gh, d_sg, d_sh, d_bias_s


class Grads(NamedTuple):
    """What the backward loop returns: gradients of gx, merged weights, bias and h0 ``(B, H)``."""

    gx: Tensor
    weight: Tensor
    node_weight: Tensor | None
    bias: Tensor
    h0: Tensor


@on_its_device
def backward(options: Options, saved: Saved, grad_h: Tensor, grad_g: Tensor) -> Grads:
    """The backward loop."""
    words, batch, _ = saved.x.shape
    size, nodes, wide, dtype = options.size, options.nodes, saved.gx.dtype, saved.x.dtype
    windows = saved.windows.flatten(1, 2)
    overwrite = dtype == wide and (options.recompute or not keeps_graph())
    gates = saved.gates
    d_gates = gates if overwrite else torch.empty_like(gates, dtype=dtype)
    d_node_gates = saved.x.new_empty(options.num_steps, batch, options.node_blocks * size)
    d_windows = gates.new_empty(words * batch, windows.size(-1))
    d_node_inputs = gates.new_empty(batch, (nodes + 1) * size)
    d_reads = gates.new_empty(2, *d_windows.shape)
    d_node_cells = gates.new_empty(batch, nodes, size)
    grid, shared = launcher(options, words, batch)
    module = kernels("sentence_state")
    kernel, slots = module.backward_step[grid], {"gate_slots": len(gates)}
    node_gates = gates if saved.node_gates is None else saved.node_gates
    tensors = (gates, d_gates, saved.gx, node_gates, d_node_gates, saved.bias, saved.cells)
    tensors += (saved.node_cells, saved.node_totals, saved.lengths, grad_h, grad_g)
    tensors += (d_windows, d_node_inputs, d_reads, d_node_cells)
    if options.recompute:
        d_gx = torch.zeros_like(saved.gx).flatten(0, 1)
        d_weight = torch.zeros_like(saved.weight, dtype=wide)
        term = torch.empty_like(d_weight)
    for step in reversed(range(options.num_steps)):
        if options.recompute:
            word_product(saved, step)
        kernel(*tensors, step=step, num_steps=options.num_steps, **shared, **slots)
        here = d_gates[step % len(d_gates)].flatten(0, 1)
        product(here, saved.weight, d_windows)
        if nodes:
            product(d_node_gates[step], saved.node_weight, d_node_inputs)
        if options.recompute:
            d_weight += product(here.t(), windows[step], term)
            d_gx += here[:, : options.gates * size]
    d_h0 = gates.new_empty(batch, size)
    module.first_states_backward[grid](d_windows, d_node_inputs, saved.lengths, d_h0, **shared)
    if not options.recompute:
        d_weight = torch.mm(d_gates.flatten(0, 2).t(), windows.flatten(0, 1))
        d_gx = d_gates[..., : options.gates * size].sum(0, dtype=wide)
    d_node_weight = None
    if nodes:
        d_node_weight = torch.mm(d_node_gates.flatten(0, 1).t(), saved.node_inputs.flatten(0, 1))
    d_bias = d_node_gates.sum((0, 1), dtype=wide)
    return Grads(d_gx.view(words, batch, -1), d_weight, d_node_weight, d_bias, d_h0)

"""All steps of a sentence-state LSTM on engine ``triton``, in one ``autograd.Function``.

A step is two matrix products and one kernel (:mod:`.kernels.sentence_state`), forward and backward:
one product for all words, W_hh ξ and U_f h, and one for all nodes. The weights' gradients are one
product each, after the loop. Weights that multiply the same input are merged into one matrix, with
zeros where a gate reads only a part of the input. With one node, this adds 2 blocks to 22 but saves
a launch per step, since launches dominate the time with small batches.

Shapes and names as in :class:`fairseq_casrnn.layers.SentenceStateLSTM` and in the kernels' module.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..cpp import dense
from ..eager import check_backward, retain_graph_requested, without_autocast
from ..inputs import accumulation_dtype, autocast, cast, wants_gradient
from ..ragged import padding_mask
from ..sentence_state import SLSTMOptions, SLSTMParameters
from . import launching
from .host import kernels, on_its_device, product
from .sentence_state_weights import merge_weights, split_grads

TILE = 8, 32
"""Maximum words and hidden units of a program's tile."""
MANY = 13
"""With more gates than this, a tile has half as many words, to fit in registers."""


def run(
    options: SLSTMOptions, x: Tensor, lengths: Tensor | None, params: SLSTMParameters
) -> tuple[Tensor, Tensor]:
    """Run all steps over a padded batch.

    Args:
        options: the layer's sizes and settings.
        x: ``(T, B, I)``; values at padding are ignored.
        lengths: ``(B,)``, int64, or None if there is no padding.
        params: the layer's parameters.

    Returns:
        The words' states ``(T, B, H)``, zero at padding, and the nodes' ``(B, K*H)``.
    """
    device = x.device.type
    if autocast(device):
        dtype = torch.get_autocast_dtype(device)
        params = SLSTMParameters._make(cast(p, dtype) for p in params)
        with torch.autocast(device, enabled=False):
            return run(options, x.to(dtype), lengths, params)
    if wants_gradient(x, *params):
        words, nodes = _Loop.apply(options, lengths, x, *params)
        return words, nodes
    return forward(options, x, lengths, params, keep=False)[:2]


class Saved(NamedTuple):
    """What the forward computes for the backward; shapes as in :mod:`.kernels.sentence_state`.

    T and B are merged into one dimension. ``node_gates``, ``node_inputs`` and ``node_weight`` are
    None without nodes. If gates are recomputed, ``gates`` has a single slot. x is zero at padding.
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


def of_steps(buffer: Tensor, num_steps: int) -> list[Tensor]:
    """Each step's slot of a buffer ``(slots, …)``, whose slots are used in turn."""
    slots = buffer.unbind(0)
    return [slots[step % len(slots)] for step in range(num_steps)]


def allocate(
    options: SLSTMOptions, x: Tensor, lengths: Tensor, p: SLSTMParameters, keep: bool
) -> Saved:
    """Buffers with a slot per step if ``keep``, else two that are used in turn; computes gx."""
    (words, batch, _), size, nodes = x.shape, options.size, options.nodes
    slots, rows, wide = options.num_steps if keep else 2, words * batch, accumulation_dtype(x.dtype)

    def empty(*shape: int, dtype: torch.dtype = wide) -> Tensor:
        return x.new_empty(shape, dtype=dtype)

    weight, node_weight, bias = merge_weights(options, p)
    gx = empty(rows, options.gates * size)
    product(x.flatten(0, 1), p.weight_ih.t(), gx)
    gate_slots = options.num_steps if keep and not options.recompute else 1
    gates = empty(gate_slots, rows, (options.gates + nodes) * size)
    node_gates = node_inputs = None
    if nodes:
        node_gates = empty(slots, batch, options.node_blocks * size)
        node_inputs = empty(slots, batch, (nodes + 1) * size, dtype=x.dtype)
    windows = empty(slots, rows, options.width, dtype=x.dtype)
    cells = empty(slots, rows, size)
    node_cells, node_totals = (empty(slots, batch, nodes, size) for _ in range(2))
    states = windows, node_inputs, cells, node_cells, node_totals
    return Saved(gates, gx, node_gates, bias, *states, lengths, x, weight, node_weight)


def launcher(options: SLSTMOptions, x: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid, and the arguments that all kernels have in common."""
    words, batch, _ = x.shape
    rows = TILE[0] if options.gates <= MANY else TILE[0] // 2
    units = min(TILE[1], 1 << (options.size - 1).bit_length())
    sizes = {"words": words, "batch": batch, "size": options.size, "WINDOW": options.window}
    sizes |= {"WIDTH": options.width, "NODES": options.nodes, "ROWS": rows, "UNITS": units}
    return (batch, -(-options.size // units)), sizes


@on_its_device
def forward(
    options: SLSTMOptions, x: Tensor, lengths: Tensor | None, p: SLSTMParameters, keep: bool
) -> tuple[Tensor, Tensor, Saved]:
    """The results of :func:`run` and :class:`Saved`, which covers all steps only if ``keep``."""
    words, batch, _ = x.shape
    if lengths is None:
        lengths = torch.full((batch,), words, device=x.device)
    else:  # NaN at padding must not reach the gradient of weight_ih
        x = x.masked_fill(padding_mask(lengths, words).unsqueeze(-1), 0.0)
    saved = allocate(options, x.contiguous(), lengths.contiguous(), p, keep)
    output = x.new_empty(words, batch, options.size)
    node_output = x.new_empty(batch, options.nodes * options.size)
    buffers = saved
    if not options.nodes:  # placeholders that the kernels do not read
        buffers = saved._replace(node_gates=saved.gates, node_inputs=saved.windows)
    grid, sizes = launcher(options, x)
    module = kernels("sentence_state")
    reads = {name: getattr(buffers, name) for name in ("windows", "node_inputs", "lengths")}
    launching.run(module.first_states, grid, h0=dense(p.h0), **reads, **sizes)
    arguments = {name: getattr(buffers, name) for name in Saved._fields[:10]} | sizes
    arguments |= {"output": output, "node_output": node_output}
    arguments |= {"slots": len(saved.windows), "gate_slots": len(saved.gates)}
    num_steps, weight_t = options.num_steps, saved.weight.t()
    windows = of_steps(saved.windows[..., : options.columns], num_steps)
    gates = of_steps(saved.gates, num_steps)
    inputs, sums = (
        [] if t is None else of_steps(t, num_steps) for t in (saved.node_inputs, saved.node_gates)
    )
    node_weight_t = None if saved.node_weight is None else saved.node_weight.t()
    for step in range(num_steps):
        product(windows[step], weight_t, gates[step])
        if node_weight_t is not None:
            product(inputs[step], node_weight_t, sums[step])
        launching.run(module.forward_step, grid, **arguments, step=step, num_steps=num_steps)
    return output, node_output, saved


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, options: SLSTMOptions, lengths: Tensor | None, x: Tensor, *params: Any
    ) -> tuple[Tensor, Tensor]:
        output, node_output, saved = forward(
            options, x, lengths, SLSTMParameters(*params), keep=True
        )
        ctx.options = options
        ctx.save_for_backward(*saved, params[0])
        return output, node_output

    @staticmethod
    @without_autocast
    def backward(ctx: Any, grad_h: Tensor, grad_g: Tensor) -> tuple[Tensor | None, ...]:
        check_backward("triton", grad_h, grad_g)
        *tensors, weight_ih = ctx.saved_tensors
        saved, dtype = Saved(*tensors), weight_ih.dtype
        grads = backward(ctx.options, saved, dense(grad_h), dense(grad_g))
        d_gx = grads.gx.to(dtype)
        d_x = torch.mm(d_gx, weight_ih).view_as(saved.x) if ctx.needs_input_grad[2] else None
        d_ih = torch.mm(d_gx.t(), saved.x.flatten(0, 1))
        d_hh, d_bias, *of_nodes = (
            None if d is None else d.to(dtype)
            for d in split_grads(ctx.options, grads.weight, grads.node_weight, grads.bias)
        )
        return None, None, d_x, d_ih, d_bias, d_hh, grads.h0.sum(0).to(dtype), *of_nodes


class Grads(NamedTuple):
    """Gradients of gx, of the merged weights and bias, and of h0, ``(B, H)`` per sentence."""

    gx: Tensor
    weight: Tensor
    node_weight: Tensor | None
    bias: Tensor
    h0: Tensor


class _Sums:
    """Gradients of gx and of the words' weight, which are sums over all steps."""

    def __init__(self, options: SLSTMOptions, saved: Saved, d_gates: Tensor):
        self.d_gates, self.columns = d_gates, options.gates * options.size
        self.windows = saved.windows[..., : options.columns]
        self.at_once = len(d_gates) == options.num_steps
        if not self.at_once:
            self.gx = torch.zeros_like(saved.gx)
            self.weight = torch.zeros_like(saved.weight, dtype=saved.gx.dtype)
            self.term = torch.empty_like(self.weight)

    def add(self, step: int) -> None:
        """Add the gradients of a step, unless d_gates of all steps are kept until the end."""
        if not self.at_once:
            self.weight += product(self.d_gates[0].t(), self.windows[step], self.term)
            self.gx += self.d_gates[0, :, : self.columns]

    def totals(self) -> tuple[Tensor, Tensor]:
        """The sums over all steps."""
        if not self.at_once:
            return self.gx, self.weight
        gx = self.d_gates[..., : self.columns].sum(0, dtype=accumulation_dtype(self.d_gates.dtype))
        return gx, torch.mm(self.d_gates.flatten(0, 1).t(), self.windows.flatten(0, 1))


@on_its_device
def backward(options: SLSTMOptions, saved: Saved, grad_h: Tensor, grad_g: Tensor) -> Grads:
    """The backward loop."""
    if options.recompute:  # into a new buffer, so that a second backward works
        saved = saved._replace(gates=torch.empty_like(saved.gates))
    gates, x, batch = saved.gates, saved.x, saved.x.size(1)
    overwrite = options.recompute or not retain_graph_requested()
    d_gates = (
        gates if overwrite and gates.dtype == x.dtype else torch.empty_like(gates, dtype=x.dtype)
    )
    d_node_gates = x.new_empty(options.num_steps, batch, options.node_blocks * options.size)
    d_windows = gates.new_empty(saved.windows.shape[1:])
    d_node_inputs = gates.new_empty(batch, (options.nodes + 1) * options.size)
    # Without nodes, gates are a placeholder that is not read.
    node_gates = gates if saved.node_gates is None else saved.node_gates
    grid, sizes = launcher(options, x)
    tensors = {
        "gates": gates,
        "d_gates": d_gates,
        "gx": saved.gx,
        "node_gates": node_gates,
        "d_node_gates": d_node_gates,
        "bias": saved.bias,
        "cells": saved.cells,
        "node_cells": saved.node_cells,
        "node_totals": saved.node_totals,
        "lengths": saved.lengths,
        "grad_h": grad_h,
        "grad_g": grad_g,
        "d_windows": d_windows,
        "d_node_inputs": d_node_inputs,
        "d_reads": gates.new_empty(2, *d_windows.shape),
        "d_node_cells": gates.new_empty(batch, options.nodes, options.size),
    }
    arguments = tensors | sizes | {"num_steps": options.num_steps, "gate_slots": len(gates)}
    module, num_steps = kernels("sentence_state_backward"), options.num_steps
    sums, d_factors = _Sums(options, saved, d_gates), d_windows[:, : options.columns]
    d_of_steps = of_steps(d_gates, num_steps)
    for step in reversed(range(num_steps)):
        if options.recompute:
            product(sums.windows[step], saved.weight.t(), gates[0])
        launching.run(module.backward_step, grid, **arguments, step=step)
        sums.add(step)
        product(d_of_steps[step], saved.weight, d_factors)
        if saved.node_weight is not None:
            product(d_node_gates[step], saved.node_weight, d_node_inputs)
    d_h0 = gates.new_empty(batch, options.size)
    names = "d_windows", "d_node_inputs", "lengths"
    reads = {name: tensors[name] for name in names}
    launching.run(module.first_states_backward, grid, **reads, d_h0=d_h0, **sizes)
    d_node_weight = None
    if saved.node_inputs is not None:
        inputs = saved.node_inputs.flatten(0, 1)
        d_node_weight = torch.mm(d_node_gates.flatten(0, 1).t(), inputs)
    d_bias = d_node_gates.sum((0, 1), dtype=gates.dtype)
    d_gx, d_weight = sums.totals()
    return Grads(d_gx, d_weight, d_node_weight, d_bias, d_h0)

"""Engine ``reference``: the cell's own step under autograd, for any dtype.

The tests compare all other engines with it. Under ``torch.export`` the steps are one ``scan``
instead of a Python loop, so that the program accepts sequences of any length and contains only
torch's operators.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops.scan import scan

from .inputs import LayerInputs, LayerOutputs, MaybeTensor, take_step


def run(inputs: LayerInputs) -> LayerOutputs:
    """Run a layer over time; see :func:`fairseq_casrnn.recurrence.run`."""
    inputs = in_one_dtype(inputs)
    if torch.compiler.is_exporting():
        hs, cs = scanned(inputs)
        return hs, cs, gather_last(hs, inputs.last), gather_last(cs, inputs.last)
    cell, h, c, gx = inputs.cell, inputs.h0, inputs.c0, inputs.gates_input()
    params = tuple(inputs.params)
    steps_h, steps_c = [], []
    for t in range(gx.size(0)):
        h, c = take_step(
            cell,
            gx[t],
            F.linear(h, inputs.weight_hh),
            h,
            c,
            lower_c=at_step(inputs.lower_c, t),
            mixture=at_step(inputs.mixture, t),
            params=params,
        )
        steps_h.append(h)
        if c is not None:
            steps_c.append(c)
    hs = torch.stack(steps_h)  # (T, B, H)
    cs = torch.stack(steps_c) if cell.has_cell else None
    return hs, cs, gather_last(hs, inputs.last), gather_last(cs, inputs.last)


def in_one_dtype(inputs: LayerInputs) -> LayerInputs:
    """The inputs with c in the weights' dtype, since other engines return c in a wider one."""
    dtype = inputs.weight_hh.dtype
    c0, lower_c = (c if c is None else c.to(dtype) for c in (inputs.c0, inputs.lower_c))
    return inputs._replace(c0=c0, lower_c=lower_c)


def scanned(inputs: LayerInputs) -> tuple[Tensor, Tensor | None]:
    """The states ``(T, B, H)`` of all steps, computed by one ``scan`` operator."""
    cell, h0, c0, params = inputs.cell, inputs.h0, inputs.c0, tuple(inputs.params)
    sequences = {
        "gx": inputs.gates_input(),
        "lower_c": inputs.lower_c,
        "mixture": inputs.mixture,
    }
    present = {name: tensor for name, tensor in sequences.items() if tensor is not None}
    names = list(present)

    def step(
        state: tuple[Tensor, ...], parts: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        reads = dict(zip(names, parts, strict=True))
        h, new_c = take_step(
            cell,
            reads["gx"],
            F.linear(state[0], inputs.weight_hh),
            state[0],
            state[1] if cell.has_cell else None,
            lower_c=reads.get("lower_c"),
            mixture=reads.get("mixture"),
            params=params,
        )
        # scan allows no aliases, but a cell without an output gate may return h as c.
        new_states = (h,) if new_c is None else (h, new_c.clone() if new_c is h else new_c)
        return new_states, tuple(part.clone() for part in new_states)

    initial = (h0.clone(),) if c0 is None else (h0.clone(), c0.clone())
    _, states = scan(step, initial, tuple(present.values()))
    return states[0], states[1] if cell.has_cell else None


def at_step(tensor: MaybeTensor, t: int) -> MaybeTensor:
    """Step t of a sequence ``(T, …)``, or None if that is None."""
    return None if tensor is None else tensor[t]


def gather_last(states: MaybeTensor, last: Tensor | None) -> MaybeTensor:
    """States ``(T, B, H)`` at each sequence's own last step, ``(B, H)``.

    ``last`` is ``(B,)``, or None for T-1.
    """
    if states is None:
        return None
    if last is None:
        return states[-1]
    return states[last, torch.arange(last.numel(), device=last.device)]

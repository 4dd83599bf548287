"""Engine ``reference``: the cell's own step under autograd, any dtype.

All other engines are compared with it. Under ``torch.export`` the steps are one ``scan`` instead of
a Python loop, so that the program takes sequences of any length and needs torch's operators alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan

from ..cells.base import Cell


def run(cell: Cell, gx, weight_hh, h0, c0, lower_c=None, mixture=None, last=None, params=()):
    """Run ``cell`` over time; see :func:`fairseq_casrnn.recurrence.run` for the arguments."""
    if torch.compiler.is_exporting():
        hs, cs = scanned(cell, gx, weight_hh, h0, c0, lower_c, mixture, params)
        return hs, cs, gather_last(hs, last), gather_last(cs, last)
    h, c = h0, c0
    hs, cs = [], []
    for t in range(gx.size(0)):
        gh = torch.nn.functional.linear(h, weight_hh)
        reads = {"lower_c": at_step(lower_c, t), "mixture": at_step(mixture, t), "params": params}
        h, c = cell.step(gx[t], gh, h, c, **reads)
        hs.append(h)
        cs.append(c)
    hs = torch.stack(hs)  # (T, B, H)
    cs = torch.stack(cs) if cell.has_cell else None
    return hs, cs, gather_last(hs, last), gather_last(cs, last)


def scanned(cell: Cell, gx, weight_hh, h0, c0, lower_c, mixture, params):
    """The states ``(T, B, H)`` of all steps, as one operator."""
    sequences = {"gx": gx, "lower_c": lower_c, "mixture": mixture}
    names = [name for name, tensor in sequences.items() if tensor is not None]

    def step(state, parts):
        reads = {"lower_c": None, "mixture": None} | dict(zip(names, parts, strict=True))
        h, c = state if cell.has_cell else (state[0], None)
        gh = torch.nn.functional.linear(h, weight_hh)
        h, c = cell.step(reads.pop("gx"), gh, h, c, **reads, params=params)
        new = (h, c) if cell.has_cell else (h,)
        return new, tuple(part.clone() for part in new)  # scan allows no aliases

    first = (h0.clone(), c0.clone()) if cell.has_cell else (h0.clone(),)
    _, states = scan(step, first, tuple(sequences[name] for name in names))
    return states if cell.has_cell else (states[0], None)


def at_step(tensor: Tensor | None, t: int) -> Tensor | None:
    """Step t of a sequence ``(T, …)``; None where there is none."""
    return None if tensor is None else tensor[t]


def gather_last(states, last):
    """States ``(T, B, H)`` at each sequence's own last step, ``(B, H)``.

    ``last`` is ``(B,)``, or None for T-1.
    """
    if states is None or last is None:
        return None if states is None else states[-1]
    return states[last, torch.arange(last.numel(), device=last.device)]

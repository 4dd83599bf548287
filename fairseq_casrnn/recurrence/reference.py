"""Engine ``reference``: the cell's own step under autograd, any dtype.

All other engines are compared with it.
"""

from __future__ import annotations

import torch

from ..cells.base import Cell


def run(cell: Cell, gx, weight_hh, h0, c0, extra=None, last=None, params=()):
    """Run ``cell`` over time; see :func:`fairseq_casrnn.recurrence.run` for the arguments."""
    h, c = h0, c0
    hs, cs = [], []
    for t in range(gx.size(0)):
        gh = torch.nn.functional.linear(h, weight_hh)
        h, c = cell.step(gx[t], gh, h, c, None if extra is None else extra[t], params)
        hs.append(h)
        cs.append(c)
    hs = torch.stack(hs)  # (T, B, H)
    cs = torch.stack(cs) if cell.has_cell else None
    return hs, cs, at_last(hs, last), at_last(cs, last)


def at_last(states, last):
    """States ``(T, B, H)`` at each sequence's own last step, ``(B, H)``.

    ``last`` is ``(B,)``, or None for T-1.
    """
    if states is None or last is None:
        return None if states is None else states[-1]
    return states[last, torch.arange(last.numel(), device=last.device)]

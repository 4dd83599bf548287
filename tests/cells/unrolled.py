"""Stacks of the cells in :mod:`.specification`, computed one sequence and one step at a time."""

from __future__ import annotations

import torch

from .specification import EQUATIONS, Layer


def run_layer(step, p, xs, h, c, belows, options):
    """Run one layer over one sequence, left to right; return the lists of h and c."""
    hs, cs = [], []
    for t, x in enumerate(xs):
        h, c = step(p, x, h, c, None if belows is None else belows[t], options)
        hs.append(h)
        cs.append(c)
    return hs, cs


def run_sequence(name, P, xs, state, depth, size, bidirectional=False, options=None):
    """Run a stack over one sequence without padding.

    ``xs`` is a list of n vectors; ``state`` is ``(h_0, c_0)``, each (L*D, H), where c_0 is None for
    cells without a cell state. Returns a list of n outputs and, per layer and direction, the final
    (h, c).
    """
    step, options = EQUATIONS[name], options or {}
    h_0, c_0 = state
    suffixes = ("", "_reverse") if bidirectional else ("",)
    finals = {}
    tops = [list(xs)] * len(suffixes)
    belows = [None] * len(suffixes)
    for k in range(depth):
        for d, suffix in enumerate(suffixes):
            slot = k * len(suffixes) + d
            turn = -1 if d else 1
            hs, cs = run_layer(
                step,
                Layer(P, k, suffix, size),
                tops[d][::turn],
                h_0[slot],
                None if c_0 is None else c_0[slot],
                None if belows[d] is None else belows[d][::turn],
                options,
            )
            finals[slot] = (hs[-1], cs[-1])
            tops[d], belows[d] = hs[::turn], cs[::turn]
        if bidirectional == "interleaved":
            tops = [[torch.cat(pair) for pair in zip(*tops, strict=True)]] * 2
    if bidirectional is True:
        tops = [[torch.cat(pair) for pair in zip(*tops, strict=True)]]
    return tops[0], [finals[slot] for slot in sorted(finals)]


def run_batch(name, P, x, state, lengths, depth, size, bidirectional=False, options=None):
    """Run the stack over a padded batch; return output, h_n, and c_n or None."""
    h_0, c_0 = state
    steps, batch, _ = x.shape
    directions = 2 if bidirectional else 1
    outputs, finals = [], []
    for b in range(batch):
        n = int(lengths[b])
        top, final = run_sequence(
            name,
            P,
            [x[t, b] for t in range(n)],
            (h_0[:, b], None if c_0 is None else c_0[:, b]),
            depth,
            size,
            bidirectional,
            options,
        )
        padding = [x.new_zeros(directions * size)] * (steps - n)
        outputs.append(torch.stack(top + padding))
        finals.append(final)
    h_n = torch.stack([torch.stack([h for h, _ in final]) for final in finals], dim=1)
    c_n = None
    if c_0 is not None:
        c_n = torch.stack([torch.stack([c for _, c in final]) for final in finals], dim=1)
    return torch.stack(outputs, dim=1), h_n, c_n

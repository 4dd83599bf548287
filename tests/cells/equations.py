"""The equations of every cell, written for a reader: one sequence, one step, one gate at a time.

Nothing here comes from the package. ``P`` holds a layer's parameters by their public names; x is
(I,), h and c are (H,); ``below`` is the cell state of the layer below at the same time.
"""

from __future__ import annotations

import torch
from torch import sigmoid, tanh


class Layer:
    """Layer ``k`` of one direction: parameters by name, gate blocks by number."""

    def __init__(self, P, k, suffix, size):
        self.P, self.tail, self.H, self.k = P, f"_l{k}{suffix}", size, k

    def __getitem__(self, name):
        return self.P[name + self.tail]

    def block(self, name, n):
        return self[name][n * self.H : (n + 1) * self.H]

    def from_x(self, n, x):
        return self.block("weight_ih", n) @ x + self.block("bias", n)

    def gate(self, n, x, h):
        return self.from_x(n, x) + self.block("weight_hh", n) @ h


def lstm(p, x, h, c, below, o):
    i, f, g, out = (p.gate(n, x, h) for n in range(4))
    c = sigmoid(i) * tanh(g) + sigmoid(f) * c
    return sigmoid(out) * tanh(c), c


def normalized_lstm(p, x, h, c, below, o):
    i, f, g, out = (p.gate(n, x, h) for n in range(4))
    exp_i, exp_f = sigmoid(i).exp(), sigmoid(f).exp()
    c = (exp_i * tanh(g) + exp_f * c) / (exp_i + exp_f)
    return sigmoid(out) * tanh(c), c


def gru(p, x, h, c, below, o):
    r, z = sigmoid(p.gate(0, x, h)), sigmoid(p.gate(1, x, h))
    n = tanh(p.from_x(2, x) + r * (p.block("weight_hh", 2) @ h + p["bias_n"]))
    return (1 - z) * n + z * h, None


def cas_lstm(p, x, h, c, below, o):
    if p.k == 0:
        return lstm(p, x, h, c, below, o)
    i, f, g, out, v = (p.gate(n, x, h) for n in range(5))
    lam = o.get("lam", 0.5)
    if lam is None:
        past, lower = 1, 1
    else:
        lower = sigmoid(p["lam_logit"]) if lam == "trainable" else lam
        past = 1 - lower
    c = sigmoid(i) * tanh(g) + past * sigmoid(f) * c + lower * sigmoid(v) * below
    return sigmoid(out) * tanh(c), c


def highway_lstm(p, x, h, c, below, o):
    if p.k == 0:
        return lstm(p, x, h, c, below, o)
    i, f, g, out = (p.gate(n, x, h) for n in range(4))
    peep = p["depth_peephole"]
    d = sigmoid(p.from_x(4, x) + peep[0] * c + peep[1] * below)
    c = sigmoid(i) * tanh(g) + sigmoid(f) * c + d * below
    return sigmoid(out) * tanh(c), c


def dg_lstm(p, x, h, c, below, o):
    peep = p["peephole"]
    i = sigmoid(p.gate(0, x, h) + peep[0] * c)
    f = sigmoid(p.gate(1, x, h) + peep[1] * c)
    new = i * tanh(p.gate(2, x, h)) + f * c
    if p.k > 0:
        depth = p["depth_peephole"]
        d = sigmoid(p.from_x(4, x) + depth[0] * c + depth[1] * below)
        new = new + d * below
    out = sigmoid(p.gate(3, x, h) + peep[2] * new)
    return out * tanh(new), new


def second_order_lstm(p, x, h, c, below, o):
    count = o.get("num_cells", 2)
    if "chosen" in o:  # by token
        alpha = [float(s == o["chosen"]) for s in range(count)]
    elif o["training"]:
        score = [(p["attention"][s] @ x / o.get("temperature", 1.0)).exp() for s in range(count)]
        alpha = [a / sum(score) for a in score]
    else:
        score = [p["attention"][s] @ x for s in range(count)]
        alpha = [float(s == max(range(count), key=lambda j: score[j])) for s in range(count)]
    h_new, c_new = 0, 0
    for s in range(count):
        i, f, g, out = (p.gate(4 * s + n, x, h) for n in range(4))
        c_s = sigmoid(i) * tanh(g) + sigmoid(f) * c
        c_new = c_new + alpha[s] * c_s
        h_new = h_new + alpha[s] * sigmoid(out) * tanh(c_s)
    return h_new, c_new


EQUATIONS = {
    "stacked_lstm": lstm,
    "stacked_gru": gru,
    "normalized_lstm": normalized_lstm,
    "cas_lstm": cas_lstm,
    "highway_lstm": highway_lstm,
    "dg_lstm": dg_lstm,
    "second_order_lstm": second_order_lstm,
}


def run_layer(step, p, xs, h, c, belows, options):
    """One layer over one sequence, left to right: lists of h and c."""
    hs, cs = [], []
    for t, x in enumerate(xs):
        h, c = step(p, x, h, c, None if belows is None else belows[t], options)
        hs.append(h)
        cs.append(c)
    return hs, cs


def run_sequence(name, P, xs, state, depth, size, bidirectional=False, options=None):
    """A stack over one sequence without padding.

    ``xs`` is a list of n vectors; ``state`` is ``(h_0, c_0)``, each (L*D, H), c_0 None without
    cells.

    Returns a list of n outputs and, per layer and direction, the final (h, c).
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
    """The stack over a padded batch, one sequence at a time: output, h_n, and c_n or None."""
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

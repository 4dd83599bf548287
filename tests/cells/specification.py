"""The equations, parameters and initial biases of all cells, written independently of the package.

Each function computes one step of one sequence, gate by gate. ``p`` gives a layer's parameters by
their public names; x has shape (I,), h and c have shape (H,), and ``below`` is the cell state of
the layer below at the same step.
"""

from __future__ import annotations

from torch import sigmoid, tanh


class Layer:
    """Gives parameters of layer ``k`` of one direction by name, and gate blocks by number."""

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
    if "chosen" in o:  # routing by token
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

# The settings of options to test; cells without an entry are tested with the defaults.
SETTINGS = {
    "cas_lstm": [{"lam": lam} for lam in (0.5, 0.0, 0.25, 1.0, "trainable", None)],
    "second_order_lstm": [
        {"num_cells": 2},
        {"num_cells": 1},
        {"num_cells": 3, "temperature": 0.75},
    ],
}

# Per cell and setting, for layer 0 and for the layers above: the number of gate blocks in weight_ih
# and in weight_hh, and the shapes of further parameters. "H" is the hidden size, "I" that of the
# layer's input.
PEEPHOLES, DEPTH = {"peephole": (3, "H")}, {"depth_peephole": (2, "H")}
PARAMETERS = [
    ("stacked_lstm", {}, (4, 4, {}), (4, 4, {})),
    ("normalized_lstm", {}, (4, 4, {}), (4, 4, {})),
    ("stacked_gru", {}, *[(3, 3, {"bias_n": ("H",)})] * 2),
    ("cas_lstm", {}, (4, 4, {}), (5, 5, {})),
    ("cas_lstm", {"lam": None}, (4, 4, {}), (5, 5, {})),
    ("cas_lstm", {"lam": "trainable"}, (4, 4, {}), (5, 5, {"lam_logit": ("H",)})),
    ("highway_lstm", {}, (4, 4, {}), (5, 4, DEPTH)),
    ("dg_lstm", {}, (4, 4, PEEPHOLES), (5, 4, {**PEEPHOLES, **DEPTH})),
    ("second_order_lstm", {"num_cells": 1}, *[(4, 4, {"attention": (1, "I")})] * 2),
    ("second_order_lstm", {"num_cells": 2}, *[(8, 8, {"attention": (2, "I")})] * 2),
    ("second_order_lstm", {"num_cells": 3}, *[(12, 12, {"attention": (3, "I")})] * 2),
]

# The gate blocks whose bias starts at 1, in layer 0 and above: forget gates and vertical gates.
# If they depend on the options, this is a function of the options.
FORGET = ([1], [1])
OPEN_GATES = {
    "stacked_lstm": FORGET,
    "stacked_gru": ([], []),
    "normalized_lstm": FORGET,
    "cas_lstm": ([1], [1, 4]),
    "highway_lstm": FORGET,
    "dg_lstm": FORGET,
    "second_order_lstm": lambda options: (list(range(1, 4 * options.num_cells, 4)),) * 2,
}

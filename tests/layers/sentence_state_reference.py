"""A slow and short sentence-state LSTM, written after equations 2 and 3 of the paper.

It takes one sentence without padding and loops over words and nodes. The parameters are those of
the layer; ``gate(name)`` gives a gate's rows of a weight.
"""

import torch

sigmoid, tanh = torch.sigmoid, torch.tanh


def softmax(gates):
    """Softmax over a list of vectors, separately for each element."""
    return list(torch.softmax(torch.stack(gates), dim=0))


def sentence_state_lstm(p, x, num_steps, window=1, nodes=1):
    """Return the states (T, H) of the words and [g, …] of the nodes for one sentence x (T, I)."""
    size = p["h0"].numel()
    left = [f"l{k}" for k in range(window, 0, -1)]
    right = [f"r{k}" for k in range(1, window + 1)]
    names = ["i", *left, "f", *right, *(f"s{j}" for j in range(nodes)), "o", "u"]

    def rows(weight, gate):
        return weight[names.index(gate) * size :][:size]

    words = range(len(x))
    zero = torch.zeros_like(p["h0"])
    h, c = dict.fromkeys(words, p["h0"]), dict.fromkeys(words, zero)
    g, c_g = [p["h0"]] * nodes, [zero] * nodes
    for _ in range(num_steps):
        new_h, new_c = {}, {}
        for i in words:
            xi = torch.cat([h.get(i + k, zero) for k in range(-window, window + 1)])
            gate = {
                name: rows(p["weight_hh"], name) @ xi
                + rows(p["weight_ih"], name) @ x[i]
                + (rows(p["weight_gh"], name) @ torch.cat(g) if nodes else 0)
                + rows(p["bias"], name)
                for name in names
            }
            mixing = names[:-2]
            share = dict(
                zip(mixing, softmax([sigmoid(gate[name]) for name in mixing]), strict=True)
            )
            cell = share["i"] * tanh(gate["u"]) + share["f"] * c[i]
            for k in range(1, window + 1):
                cell = cell + share[f"l{k}"] * c.get(i - k, zero)
                cell = cell + share[f"r{k}"] * c.get(i + k, zero)
            for j in range(nodes):
                cell = cell + share[f"s{j}"] * c_g[j]
            new_c[i], new_h[i] = cell, sigmoid(gate["o"]) * tanh(cell)
        mean = sum(h.values()) / len(x)
        new_g, new_c_g = [], []
        for k in range(nodes):
            w_g, w_f, w_o = p["weight_sg"][3 * k * size :][: 3 * size].split(size)
            u_g, u_f, u_o = p["weight_sh"][3 * k * size :][: 3 * size].split(size)
            b_g, b_f, b_o = p["bias_s"][3 * k * size :][: 3 * size].split(size)
            f_words = [sigmoid(w_f @ g[k] + u_f @ h[i] + b_f) for i in words]
            f_nodes = [sigmoid(w_g @ g[j] + u_g @ mean + b_g) for j in range(nodes)]
            share = softmax(f_words + f_nodes)
            cells = [*(c[i] for i in words), *c_g]
            cell = sum(a * b for a, b in zip(share, cells, strict=True))
            new_c_g.append(cell)
            new_g.append(sigmoid(w_o @ g[k] + u_o @ mean + b_o) * tanh(cell))
        h, c, g, c_g = new_h, new_c, new_g, new_c_g
    return torch.stack([h[i] for i in words]), torch.cat([zero[:0], *g])

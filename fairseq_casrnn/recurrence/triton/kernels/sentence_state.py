"""Kernels of the sentence-state LSTM: all elementwise work of a step in one launch.

A program computes UNITS hidden units of one sentence. It loops over the words, ROWS at a time, so
that sums over words stay in registers. Padding is neither read nor counted.

Shapes, with T words, B sentences, K sentence nodes, windows of W = 2w+1 words, and G = W + K + 3
gates **i l f r s o u** of a word (l, r and s stand for w, w and K gates):

================  =======================  ========================================================
``gates``         ``(slots, T, B, G+K)``   W_hh ξ, then U_f h for each node
``gx``            ``(T, B, G)``            W_ih x
``node_gates``    ``(S, B, M)``            for the words W_gh g; for each node W_f g; for each node
                                           W_o g + U_o h̄; for each node, and each node that it
                                           reads, W_g g + U_g h̄. So M = G + 2K + K²
``bias``          ``(M)``                  of ``node_gates``
``windows``       ``(S, T, B, W)``         ξ before each step, in the inputs' dtype; rows are WIDTH
                                           values apart, and those beyond W*H are not used
``node_inputs``   ``(S, B, K+1)``          g of each node, then h̄, before each step; likewise
``cells``         ``(S, T, B, 1)``         c after each step
``node_cells``    ``(S, B, K)``            c_g after each step
``node_totals``   ``(S, B, K)``            the denominator of each node's softmax
``lengths``       ``(B,)``                 number of words of each sentence
================  =======================  ========================================================

The last dimension counts blocks of H values. S is the number of steps; without a backward there are
only two slots, used in turn, and one of ``gates``. Gates are kept as pre-activations, which the
backward activates again, since storing activated gates would cost as much memory traffic.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....cells.triton_base import sigmoid, tanh
from .tiles import load


@triton.jit
def share(gate):
    """exp(s - 1), the softmax term of a gate s in (0, 1); the factor 1/e cancels out."""
    return tl.exp(gate - 1.0)


@triton.jit
def zeros(like, ROWS: tl.constexpr, UNITS: tl.constexpr, COUNT: tl.constexpr):
    """A tuple of COUNT tiles of 0."""
    tiles = ()
    for _ in tl.static_range(COUNT):
        tiles = tiles + (tl.zeros((ROWS, UNITS), like.dtype.element_ty),)
    return tiles


@triton.jit
def add(totals, terms, COUNT: tl.constexpr):
    """The sums of two tuples' tiles."""
    sums = ()
    for k in tl.static_range(COUNT):
        sums = sums + (totals[k] + terms[k],)
    return sums


@triton.jit
def load_node_gates(
    node_gates, bias, like, inside, size: tl.constexpr, FIRST: tl.constexpr, COUNT: tl.constexpr,
    NODES: tl.constexpr,
):  # fmt: skip
    """COUNT blocks of ``node_gates`` from FIRST on, plus bias, as tiles ``(1, UNITS)``."""
    tiles = ()
    for k in tl.static_range(FIRST, FIRST + COUNT):
        a = load(bias + k * size, inside, like)
        if NODES > 0:
            a += load(node_gates + k * size, inside, like)
        tiles = tiles + (a,)
    return tiles


@triton.jit
def activate(gates, gx, shared, mask, size: tl.constexpr, GATES: tl.constexpr):
    """The activated gates of words: tanh for the last one, u, and σ for all others."""
    tiles = ()
    for k in tl.static_range(GATES):
        a = load(gates + k * size, mask, gates) + load(gx + k * size, mask, gates) + shared[k]
        tiles = tiles + (sigmoid(a) if k < GATES - 1 else tanh(a),)
    return tiles


@triton.jit
def load_neighbour(
    cells, row, word, length, batch, mask, offset: tl.constexpr, size: tl.constexpr
):  # fmt: skip
    """The cells of the words at distance ``offset``, 0 beyond the sentence."""
    neighbour = word + offset
    mask = mask & (neighbour >= 0) & (neighbour < length)
    return load(cells + (row + offset * batch) * size, mask, cells)


@triton.jit
def store_windows(
    windows, h, row, word, words, batch, mask, size: tl.constexpr, WINDOW: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Writes h of each word to the windows of all words that contain it."""
    for k in tl.static_range(2 * WINDOW + 1):
        reader = word + (WINDOW - k)
        at = windows + (row + (WINDOW - k) * batch) * WIDTH + k * size
        mask_k = mask & (reader >= 0) & (reader < words)
        tl.store(at, h.to(windows.dtype.element_ty), mask=mask_k)


@triton.jit(do_not_specialize=["words", "batch"])
def first_states(
    h0,  # (H,)
    windows,  # (S, T, B, WIDTH)
    node_inputs,  # (S, B, (K+1)*H)
    lengths,  # (B,), int64
    words, batch,
    size: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, NODES: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Writes ``windows`` and ``node_inputs`` before the first step, where all states are h0."""
    b = tl.program_id(0)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]
    length = tl.load(lengths + b)
    state = load(h0 + unit, unit < size, h0)
    for start in range(-WINDOW, words + WINDOW, ROWS):
        word = start + tl.arange(0, ROWS)[:, None]
        row = word.to(tl.int64) * batch + b
        h = tl.where((word >= 0) & (word < length), state, 0.0)
        store_windows(windows + unit, h, row, word, words, batch, unit < size, size, WINDOW, WIDTH)
    if NODES > 0:
        node_inputs += b * ((NODES + 1) * size) + unit
        for k in tl.static_range(NODES + 1):
            tl.store(node_inputs + k * size, state, mask=unit < size)


@triton.jit(do_not_specialize=["step", "num_steps", "slots", "gate_slots", "words", "batch"])
def forward_step(
    gates,  # (slots, T, B, (G+K)*H)
    gx,  # (T, B, G*H)
    node_gates,  # (S, B, M*H)
    bias,  # (M*H,)
    windows,  # (S, T, B, WIDTH)
    node_inputs,  # (S, B, (K+1)*H)
    cells,  # (S, T, B, H)
    node_cells,  # (S, B, K*H)
    node_totals,  # (S, B, K*H)
    lengths,  # (B,), int64
    output,  # (T, B, H)
    node_output,  # (B, K*H)
    step, num_steps, slots, gate_slots, words, batch,
    size: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, NODES: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Compute a step of all words and sentence nodes.

    Writes h to the windows of the next step, and g and h̄ to its ``node_inputs``; in the last step
    to ``output``, zero at padding, and ``node_output``.
    """
    span: tl.constexpr = 2 * WINDOW + 1
    shares: tl.constexpr = span + 1 + NODES
    num_gates: tl.constexpr = shares + 2
    blocks: tl.constexpr = num_gates + NODES
    node_blocks: tl.constexpr = num_gates + 2 * NODES + NODES * NODES
    b = tl.program_id(0)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]
    inside = unit < size
    length = tl.load(lengths + b)
    slot, next_slot = (step % slots).to(tl.int64), ((step + 1) % slots).to(tl.int64)
    prev_slot = ((step + slots - 1) % slots).to(tl.int64)
    known, last = inside & (step > 0), step == num_steps - 1  # the first step has no previous cells
    all_words = words.to(tl.int64) * batch

    gates += (step % gate_slots) * all_words * (blocks * size) + unit
    windows += next_slot * all_words * WIDTH + unit
    prev = cells + prev_slot * all_words * size + unit
    cells += slot * all_words * size + unit
    gx += unit
    output += unit
    bias += unit
    node_gates += (slot * batch + b) * (node_blocks * size) + unit
    shared = load_node_gates(node_gates, bias, cells, inside, size, 0, num_gates, NODES)
    of_nodes = load_node_gates(
        node_gates, bias, cells, inside, size, num_gates, 2 * NODES + NODES * NODES, NODES
    )
    prev_nodes = ()
    for j in tl.static_range(NODES):
        at = node_cells + ((prev_slot * batch + b) * NODES + j) * size + unit
        prev_nodes = prev_nodes + (load(at, known, cells),)

    sum_h = tl.zeros((ROWS, UNITS), cells.dtype.element_ty)
    gathered, totals = zeros(cells, ROWS, UNITS, NODES), zeros(cells, ROWS, UNITS, NODES)
    for start in range(-WINDOW, words + WINDOW, ROWS):
        word = start + tl.arange(0, ROWS)[:, None]
        row = word.to(tl.int64) * batch + b
        real = (word >= 0) & (word < length)
        mask = real & inside
        word_gates = gates + row * (blocks * size)
        a = activate(word_gates, gx + row * (num_gates * size), shared, mask, size, num_gates)
        own = load(prev + row * size, mask & known, cells)
        total = share(a[0])
        c = total * a[shares + 1]
        for k in tl.static_range(span):
            e = share(a[1 + k])
            total += e
            if k == WINDOW:
                c += e * own
            else:
                c += e * load_neighbour(
                    prev, row, word, length, batch, mask & known, k - WINDOW, size
                )
        for j in tl.static_range(NODES):
            e = share(a[1 + span + j])
            total += e
            c += e * prev_nodes[j]
        c /= total
        h = tl.where(mask, a[shares] * tanh(c), 0.0)
        sum_h += h
        tl.store(cells + row * size, c, mask=mask)
        continues = inside & (last == 0)
        store_windows(windows, h, row, word, words, batch, continues, size, WINDOW, WIDTH)
        writes_output = inside & (word >= 0) & (word < words) & last
        tl.store(output + row * size, h.to(output.dtype.element_ty), mask=writes_output)
        terms, parts = (), ()
        for j in tl.static_range(NODES):
            f = load(word_gates + (num_gates + j) * size, mask, cells) + of_nodes[j]
            e = tl.where(mask, share(sigmoid(f)), 0.0)
            terms, parts = terms + (e * own,), parts + (e,)
        gathered, totals = add(gathered, terms, NODES), add(totals, parts, NODES)

    if NODES > 0:
        node_inputs += (next_slot * batch + b) * ((NODES + 1) * size) + unit
        mean = tl.sum(sum_h, axis=0)[None, :] / length.to(cells.dtype.element_ty)
        mean = mean.to(node_inputs.dtype.element_ty)
        tl.store(node_inputs + NODES * size, mean, mask=inside & (last == 0))
    for k in tl.static_range(NODES):
        c_g = tl.sum(gathered[k], axis=0)[None, :]
        total = tl.sum(totals[k], axis=0)[None, :]
        for j in tl.static_range(NODES):
            e = share(sigmoid(of_nodes[2 * NODES + k * NODES + j]))
            c_g += e * prev_nodes[j]
            total += e
        c_g /= total
        # Before any store of c_g: Triton 3.6 fails on a use that follows one.
        g = sigmoid(of_nodes[NODES + k]) * tanh(c_g)
        g_in, g_out = node_inputs + k * size, node_output + (b * NODES + k) * size + unit
        tl.store(g_in, g.to(node_inputs.dtype.element_ty), mask=inside & (last == 0))
        tl.store(g_out, g.to(node_output.dtype.element_ty), mask=inside & last)
        at = ((slot * batch + b) * NODES + k) * size + unit
        tl.store(node_cells + at, c_g, mask=inside)
        tl.store(node_totals + at, total, mask=inside)

"""The backward kernels of :mod:`.sentence_state`, which documents names and shapes."""

from __future__ import annotations

import triton
import triton.language as tl

from ....cells.triton_base import dsigmoid, dtanh, sigmoid, tanh
from .sentence_state import activate, add, load_neighbour, load_node_gates, share, zeros
from .tiles import load


@triton.jit
def sum_windows(
    windows, row, word, length, batch, mask, size: tl.constexpr, WINDOW: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """The backward of ``store_windows``: sums of gradients over the windows with each word."""
    total = 0.0
    for k in tl.static_range(2 * WINDOW + 1):
        reader = word + (WINDOW - k)
        at = windows + (row + (WINDOW - k) * batch) * WIDTH + k * size
        total += load(at, mask & (reader >= 0) & (reader < length), windows)
    return total


@triton.jit
def backward_nodes(
    d_gates, gates, prev, cells, totals, grad_g, d_g_later, d_cells, at, at_sentence, inside, last,
    later, size: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    """The backward of the nodes' cells, their gates o, and their gates f on nodes.

    Returns:
        Three tuples with an element per node: the cells; their gradients divided by the softmax's
        denominator; and the gradients of the previous cells, without those from words.
    """
    new_cells, scaled_all, d_prev = (), (), zeros(cells, 1, inside.shape[1], NODES)
    for k in tl.static_range(NODES):
        c, total = (
            load(cells + at + k * size, inside, cells),
            load(totals + at + k * size, inside, cells),
        )
        d_g = load(grad_g + at_sentence + k * size, last, cells)
        d_g += load(d_g_later + k * size, later, cells)
        d_c = load(d_cells + at_sentence + k * size, later, cells)
        o, squashed = sigmoid(gates[NODES + k]), tanh(c)
        d_o = dsigmoid(d_g * squashed, o).to(d_gates.dtype.element_ty)
        tl.store(d_gates + (NODES + k) * size, d_o, mask=inside)
        scaled = tl.where(inside, (d_c + dtanh(d_g * o, squashed)) / total, 0.0)
        d_values = ()
        for j in tl.static_range(NODES):
            f = sigmoid(gates[2 * NODES + k * NODES + j])
            d_value = scaled * share(f)
            d_values = d_values + (d_value,)
            d_f = dsigmoid(d_value * (prev[j] - c), f).to(d_gates.dtype.element_ty)
            tl.store(d_gates + (2 * NODES + k * NODES + j) * size, d_f, mask=inside)
        d_prev = add(d_prev, d_values, NODES)
        new_cells, scaled_all = new_cells + (c,), scaled_all + (scaled,)
    return new_cells, scaled_all, d_prev


@triton.jit(do_not_specialize=["step", "num_steps", "gate_slots", "words", "batch"])
def backward_step(
    gates,  # (slots, T, B, (G+K)*H)
    d_gates,  # (slots, T, B, (G+K)*H), may be gates
    gx,  # (T, B, G*H)
    node_gates,  # (S, B, M*H)
    d_node_gates,  # (S, B, M*H)
    bias,  # (M*H,)
    cells,  # (S, T, B, H)
    node_cells,  # (S, B, K*H)
    node_totals,  # (S, B, K*H)
    lengths,  # (B,), int64
    grad_h,  # (T, B, H)
    grad_g,  # (B, K*H)
    d_windows,  # (T, B, WIDTH)
    d_node_inputs,  # (B, (K+1)*H)
    d_reads,  # (2, T, B, WIDTH)
    d_node_cells,  # (B, K*H)
    step, num_steps, gate_slots, words, batch,
    size: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, NODES: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """The backward of ``forward_step``.

    The last step reads grad_h and grad_g, the gradients of the results. The other steps read what
    the next step has written: d_windows, d_node_inputs, d_reads and d_node_cells. d_reads has, for
    each word, the gradients of the cells in its window; its two slots are used in turn. d_gates is
    zero at padding.
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
    known, last = inside & (step > 0), step == num_steps - 1
    later = inside & (last == 0)  # where a next step has written gradients
    all_words = words.to(tl.int64) * batch

    slot = (step % gate_slots) * all_words * (blocks * size) + unit
    gates += slot
    d_gates += slot
    cells += step * all_words * size + unit
    prev = cells - all_words * size
    reads = d_reads + (step % 2) * all_words * WIDTH + unit
    d_reads += ((step + 1) % 2) * all_words * WIDTH + unit
    d_windows += unit
    gx += unit
    grad_h += unit
    bias += unit
    node_row = step.to(tl.int64) * batch + b
    node_gates += node_row * (node_blocks * size) + unit
    d_node_gates += node_row * (node_blocks * size) + unit
    shared = load_node_gates(node_gates, bias, cells, inside, size, 0, num_gates, NODES)
    of_nodes = load_node_gates(
        node_gates, bias, cells, inside, size, num_gates, 2 * NODES + NODES * NODES, NODES
    )
    prev_nodes = ()
    for j in tl.static_range(NODES):
        at = node_cells + ((node_row - batch) * NODES + j) * size + unit
        prev_nodes = prev_nodes + (load(at, known, cells),)
    new_nodes, scaled_nodes, d_prev_nodes = backward_nodes(
        d_node_gates + num_gates * size, of_nodes, prev_nodes, node_cells, node_totals, grad_g,
        d_node_inputs + b * ((NODES + 1) * size) + unit, d_node_cells,
        node_row * (NODES * size) + unit, b * (NODES * size) + unit, inside, inside & last, later,
        size, NODES,
    )  # fmt: skip
    d_mean = 0.0
    if NODES > 0:
        d_mean = load(d_node_inputs + (b * (NODES + 1) + NODES) * size + unit, later, cells)
        d_mean /= length.to(cells.dtype.element_ty)

    # Loop over words. These are sums over words: gradients of the gates and of the nodes' cells.
    d_shared = zeros(cells, ROWS, UNITS, num_gates)
    d_read_nodes, d_of_nodes = zeros(cells, ROWS, UNITS, NODES), zeros(cells, ROWS, UNITS, NODES)
    for start in range(0, words, ROWS):
        word = start + tl.arange(0, ROWS)[:, None]
        row = word.to(tl.int64) * batch + b
        mask = (word < length) & inside
        in_batch = (word < words) & inside
        word_gates, d_word_gates = gates + row * (blocks * size), d_gates + row * (blocks * size)
        a = activate(word_gates, gx + row * (num_gates * size), shared, mask, size, num_gates)
        own = load(prev + row * size, mask & known, cells)
        c = load(cells + row * size, mask, cells)
        d_h = load(grad_h + row * size, mask & last, cells)
        d_h += sum_windows(d_windows, row, word, length, batch, mask & later, size, WINDOW, WIDTH)
        d_h = tl.where(mask, d_h + d_mean, 0.0)
        d_c = sum_windows(reads, row, word, length, batch, mask & later, size, WINDOW, WIDTH)
        o, u, squashed = a[shares], a[shares + 1], tanh(c)
        total = share(a[0])
        for k in tl.static_range(1, shares):
            total += share(a[k])
        scaled = (d_c + dtanh(d_h * o, squashed)) / total

        d_values = scaled * share(a[0])
        d_u = dtanh(d_values, u)
        d_a = (dsigmoid(d_values * (u - c), a[0]),)
        d_own = tl.zeros_like(c)
        d_of = ()
        for k in tl.static_range(NODES):
            f = sigmoid(load(word_gates + (num_gates + k) * size, mask, cells) + of_nodes[k])
            d_value = tl.where(mask, scaled_nodes[k] * share(f), 0.0)
            d_own += d_value
            d_of = d_of + (dsigmoid(d_value * (own - new_nodes[k]), f),)
        for k in tl.static_range(span):
            value = own
            if k != WINDOW:
                value = load_neighbour(
                    prev, row, word, length, batch, mask & known, k - WINDOW, size
                )
            d_value = scaled * share(a[1 + k])
            d_a = d_a + (dsigmoid(d_value * (value - c), a[1 + k]),)
            if k == WINDOW:
                d_value += d_own
            tl.store(d_reads + row * WIDTH + k * size, d_value, mask=mask)
        d_nodes = ()
        for j in tl.static_range(NODES):
            d_value = scaled * share(a[1 + span + j])
            d_nodes = d_nodes + (d_value,)
            d_a = d_a + (dsigmoid(d_value * (prev_nodes[j] - c), a[1 + span + j]),)
        d_a = d_a + (dsigmoid(d_h * squashed, o), d_u)
        for k in tl.static_range(num_gates):
            tl.store(d_word_gates + k * size, d_a[k].to(d_gates.dtype.element_ty), mask=in_batch)
        for k in tl.static_range(NODES):
            at_f = d_word_gates + (num_gates + k) * size
            tl.store(at_f, d_of[k].to(d_gates.dtype.element_ty), mask=in_batch)
        d_shared = add(d_shared, d_a, num_gates)
        d_read_nodes, d_of_nodes = add(d_read_nodes, d_nodes, NODES), add(d_of_nodes, d_of, NODES)

    for k in tl.static_range(num_gates):
        d_sum = tl.sum(d_shared[k], axis=0)[None, :]
        tl.store(d_node_gates + k * size, d_sum.to(d_node_gates.dtype.element_ty), mask=inside)
    for k in tl.static_range(NODES):
        d_sum = tl.sum(d_of_nodes[k], axis=0)[None, :]
        at_f = d_node_gates + (num_gates + k) * size
        tl.store(at_f, d_sum.to(d_node_gates.dtype.element_ty), mask=inside)
        d_c_g = d_prev_nodes[k] + tl.sum(d_read_nodes[k], axis=0)[None, :]
        tl.store(d_node_cells + (b * NODES + k) * size + unit, d_c_g, mask=inside)


@triton.jit(do_not_specialize=["words", "batch"])
def first_states_backward(
    d_windows,  # (T, B, WIDTH)
    d_node_inputs,  # (B, (K+1)*H)
    lengths,  # (B,), int64
    d_h0,  # (B, H)
    words, batch,
    size: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, NODES: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """The backward of ``first_states``: writes the gradient of h0 per sentence."""
    b = tl.program_id(0)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]
    inside = unit < size
    length = tl.load(lengths + b)
    d_windows += unit
    total = tl.zeros((ROWS, UNITS), d_h0.dtype.element_ty)
    for start in range(0, words, ROWS):
        word = start + tl.arange(0, ROWS)[:, None]
        row = word.to(tl.int64) * batch + b
        mask = (word < length) & inside
        total += sum_windows(d_windows, row, word, length, batch, mask, size, WINDOW, WIDTH)
    total = tl.sum(total, axis=0)[None, :]
    if NODES > 0:
        for k in tl.static_range(NODES + 1):
            total += load(d_node_inputs + (b * (NODES + 1) + k) * size + unit, inside, d_h0)
    tl.store(d_h0 + b * size + unit, total, mask=inside)

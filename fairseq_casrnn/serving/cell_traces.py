"""A sentence encoder's gates on the cell below, and its routing, at each word."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairseq_casrnn.inference.tracing import (
    LOWER_CELL_GATE,
    LayerTrace,
    group_by_sentence,
    record_gates,
    recurrent_stacks,
)

DIGITS = 4


def trace_cells(model, run: Callable[[], object], sentences: Sequence[Sequence[str]]) -> list[dict]:
    """Run ``model`` on sentences and describe gates and routing of its cells.

    Args:
        model: a model with recurrent stacks.
        run: runs the model on the sentences, one by one.
        sentences: the words of each sentence.

    Returns:
        For each sentence ``words``, ``gates`` and ``routing``, see docs/serving.md. An empty list
        for a model whose cells have neither, or cannot be traced.
    """
    stacks = recurrent_stacks(model)
    cells = [cell for stack in stacks for cell in stack.cells]
    has_gates_or_routing = any(cell.lower_cell or cell.num_cells for cell in cells)
    if not has_gates_or_routing or not all(cell.is_fused() for cell in cells):
        return []
    with record_gates(stacks) as traces:
        run()
    return [
        _describe(words, group, stacks[0].cells)
        for words, group in zip(sentences, group_by_sentence(traces), strict=True)
    ]


def _describe(words: Sequence[str], traces: Sequence[LayerTrace], cells) -> dict:
    """The traces of one sentence, as in docs/serving.md."""
    gates, routing, steps = [], [], 0
    for trace in traces:
        cell, steps = cells[trace.layer], len(trace.gates)
        direction = "backward" if trace.direction else "forward"
        position = {"layer": trace.layer + 1, "direction": direction}
        if cell.lower_cell:
            mean = trace.gates[:, LOWER_CELL_GATE].mean(-1)
            gates.append({**position, "mean": _by_word(trace, mean)})
        if cell.num_cells:
            weights = [1.0] * steps
            if trace.weights is not None:
                of_chosen = trace.weights.gather(1, trace.cells.unsqueeze(1)).squeeze(1)
                weights = _by_word(trace, of_chosen)
            chosen = _by_word(trace, trace.cells)
            routing.append({**position, "cells": chosen, "weights": weights, "of": cell.num_cells})
    return {"words": [*words, "</s>"][:steps], "gates": gates, "routing": routing}


def _by_word(trace: LayerTrace, values) -> list:
    """Values by time step as a list by word; the backward direction starts at the last word."""
    values = values.flip(0) if trace.direction else values
    return rounded(values.tolist())


def rounded(values: Sequence) -> list:
    """Numbers rounded for a response."""
    return [round(value, DIGITS) for value in values]

"""What the cells of a sentence encoder did at each word: gates on the cell below, routing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairseq_casrnn.analysis.gates import BELOW
from fairseq_casrnn.analysis.tracing import grouped, stacks, watched

DIGITS = 4


def trace(model, read: Callable[[], object], sentences: Sequence[Sequence[str]]) -> list[dict]:
    """Let ``model`` read sentences and note gates and routing.

    Args:
        model: with recurrent stacks.
        read: has the model read the sentences, one after the other and each by itself.
        sentences: their words, for the answer.

    Returns:
        For each sentence ``words``, ``gates`` and ``routing``, see docs/serving.md; nothing for a
        model without cells of this kind.
    """
    found = stacks(model)
    cells = [cell for stack in found for cell in stack.cells]
    tells = any(cell.lower_cell or cell.num_cells for cell in cells)
    if not tells or not all(cell.is_fused() for cell in cells):
        return []
    with watched(found) as passes:
        read()
    cells = found[0].cells
    return [
        _sentence(words, group, cells)
        for words, group in zip(sentences, grouped(passes), strict=True)
    ]


def _sentence(words: Sequence[str], passes, cells) -> dict:
    gates, routing, steps = [], [], 0
    for one in passes:
        cell, steps = cells[one.layer], len(one.gates)
        where = {"layer": one.layer + 1, "direction": "backward" if one.direction else "forward"}
        if cell.lower_cell:
            gates.append({**where, "mean": _by_word(one, one.gates[:, BELOW].mean(-1))})
        if cell.num_cells:
            weights = [1.0] * steps
            if one.weights is not None:
                chosen = one.weights.gather(1, one.cells.unsqueeze(1)).squeeze(1)
                weights = _by_word(one, chosen)
            chosen = _by_word(one, one.cells)
            routing.append({**where, "cells": chosen, "weights": weights, "of": cell.num_cells})
    return {"words": [*words, "</s>"][:steps], "gates": gates, "routing": routing}


def _by_word(one, values) -> list:
    """Values by step as a list by word: a backward pass began with the last one."""
    values = values.flip(0) if one.direction else values
    return rounded(values.tolist())


def rounded(values: Sequence) -> list:
    """Numbers as an answer has them."""
    return [round(value, DIGITS) for value in values]

"""Attention, as part of a larger kernel.

Each program computes the scores, the softmax and the weighted sum of its own rows, independently of
other programs. ``tiles`` is :class:`..decoder_plan.AttentionTiles`: ROWS rows of the batch are
computed at a time, and the source is read in tiles of SPAN positions by CHUNK features. All
arithmetic is in the precision of ``alphas``.

Shapes: keys and values ``(R, span, size)``; ``source`` ``(B,)``, the sentence, from 0 to R-1, that
each row reads, or None if row i reads sentence i; padding ``(R, span)`` bool or None; alphas
``(B, span)``.
"""

from __future__ import annotations

import triton
import triton.language as tl

STAGES = tl.constexpr(2)


@triton.jit
def row_scores(
    query, memory, row, ok, sentence, position, span, like, size: tl.constexpr,
    tiles: tl.constexpr,
):  # fmt: skip
    """Dot products ``(ROWS, SPAN)`` of each row's query with its memory at ``position``."""
    wide = like.dtype.element_ty
    total = tl.zeros((tiles.ROWS, tiles.SPAN), wide)
    memory_row = (sentence[:, None] * span + position[None, :]) * size
    known = ok[:, None] & (position < span)[None, :]
    for d in tl.range(0, size, tiles.CHUNK, num_stages=STAGES):
        depth = d + tl.arange(0, tiles.CHUNK)
        mask = ok[:, None] & (depth < size)[None, :]
        at = row[:, None] * size + depth[None, :]
        q = tl.load(query + at, mask=mask, other=0.0, cache_modifier=".cg").to(wide)
        mask = known[:, :, None] & (depth < size)[None, None, :]
        m = tl.load(memory + memory_row[:, :, None] + depth[None, None, :], mask=mask, other=0.0)
        total += tl.sum(m.to(wide) * q[:, None, :], axis=2)
    return total


@triton.jit
def weighted_sum(
    weights, memory, out, row, ok, sentence, span, size: tl.constexpr,
    tiles: tl.constexpr,
):  # fmt: skip
    """Writes each row's sum of memory, weighted by ``weights`` (B, span), to ``out`` (B, size)."""
    for d in tl.range(0, size, tiles.CHUNK, num_stages=STAGES):
        depth = d + tl.arange(0, tiles.CHUNK)
        total = tl.zeros((tiles.ROWS, tiles.CHUNK), weights.dtype.element_ty)
        for s in range(0, span, tiles.SPAN):
            position = s + tl.arange(0, tiles.SPAN)
            known = ok[:, None] & (position < span)[None, :]
            w = tl.load(weights + row[:, None] * span + position[None, :], mask=known, other=0.0)
            at = (sentence[:, None] * span + position[None, :]) * size
            mask = known[:, :, None] & (depth < size)[None, None, :]
            m = tl.load(memory + at[:, :, None] + depth[None, None, :], mask=mask, other=0.0)
            total += tl.sum(m.to(total.dtype) * w[:, :, None], axis=1)
        at = row[:, None] * size + depth[None, :]
        tl.store(out + at, total, mask=ok[:, None] & (depth < size)[None, :])


@triton.jit
def rows_of(source, first, batch, HEIGHT: tl.constexpr, begin, COUNT: tl.constexpr):
    """COUNT rows from ``begin`` on of a tile of HEIGHT rows; whether each exists; its sentence."""
    index = begin + tl.arange(0, COUNT)
    row = first + index
    ok = (index < HEIGHT) & (row < batch)
    sentence = row
    if source is not None:
        sentence = tl.load(source + row, mask=ok, other=0).to(tl.int32)
    return row, ok, sentence


@triton.jit
def attend(
    query, keys, values, padding, source, alphas, context, first, batch, span,
    size: tl.constexpr, HEIGHT: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """Writes the attention weights and the context ``(B, size)`` of this program's rows.

    query is ``(B, size)``; ``first`` is the first of the HEIGHT rows that the programs divide.
    """
    for begin in range(tl.program_id(1) * tiles.ROWS, HEIGHT, tl.num_programs(1) * tiles.ROWS):
        row, ok, sentence = rows_of(source, first, batch, HEIGHT, begin, tiles.ROWS)
        best = tl.full((tiles.ROWS,), float("-inf"), alphas.dtype.element_ty)
        total = tl.zeros((tiles.ROWS,), alphas.dtype.element_ty)
        for s in range(0, span, tiles.SPAN):
            position = s + tl.arange(0, tiles.SPAN)
            scores = row_scores(query, keys, row, ok, sentence, position, span, alphas, size, tiles)
            in_span = ok[:, None] & (position < span)[None, :]
            known = in_span
            if padding is not None:
                at = sentence[:, None] * span + position[None, :]
                known = in_span & (tl.load(padding + at, mask=in_span, other=1) == 0)
            scores = tl.where(known, scores, float("-inf"))
            tl.store(alphas + row[:, None] * span + position[None, :], scores, mask=in_span)
            new_best = tl.maximum(best, tl.max(scores, axis=1))
            base = tl.where(new_best == float("-inf"), 0.0, new_best)  # -inf: only padding so far
            total = total * tl.exp(best - base) + tl.sum(tl.exp(scores - base[:, None]), axis=1)
            best = new_best
        tl.debug_barrier()
        for s in range(0, span, tiles.SPAN):
            position = s + tl.arange(0, tiles.SPAN)
            at = row[:, None] * span + position[None, :]
            mask = ok[:, None] & (position < span)[None, :]
            scores = tl.load(alphas + at, mask=mask, other=0.0)
            tl.store(alphas + at, tl.exp(scores - best[:, None]) / total[:, None], mask=mask)
        tl.debug_barrier()
        weighted_sum(alphas, values, context, row, ok, sentence, span, size, tiles)


@triton.jit
def attend_backward(
    d_context, keys, values, alphas, grad_alphas, d_scores, step, d_query, first, batch, span,
    size: tl.constexpr, HEIGHT: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of the scores ``(B, span)`` and of the query, for this program's rows.

    d_context is ``(B, size)``; grad_alphas, the incoming gradient, may be None. The step begins at
    element ``step`` of alphas, grad_alphas and d_scores. At padding, alphas and d_scores are 0.
    """
    alphas += step
    d_scores += step
    if grad_alphas is not None:
        grad_alphas += step
    for begin in range(tl.program_id(1) * tiles.ROWS, HEIGHT, tl.num_programs(1) * tiles.ROWS):
        row, ok, sentence = rows_of(None, first, batch, HEIGHT, begin, tiles.ROWS)
        total = tl.zeros((tiles.ROWS,), alphas.dtype.element_ty)
        for s in range(0, span, tiles.SPAN):
            position = s + tl.arange(0, tiles.SPAN)
            at = row[:, None] * span + position[None, :]
            mask = ok[:, None] & (position < span)[None, :]
            d_alpha = row_scores(
                d_context, values, row, ok, sentence, position, span, alphas, size, tiles
            )
            if grad_alphas is not None:
                d_alpha += tl.load(grad_alphas + at, mask=mask, other=0.0)
            tl.store(d_scores + at, d_alpha, mask=mask)
            total += tl.sum(tl.load(alphas + at, mask=mask, other=0.0) * d_alpha, axis=1)
        tl.debug_barrier()
        for s in range(0, span, tiles.SPAN):
            position = s + tl.arange(0, tiles.SPAN)
            at = row[:, None] * span + position[None, :]
            mask = ok[:, None] & (position < span)[None, :]
            d_alpha = tl.load(d_scores + at, mask=mask, other=0.0)
            alpha = tl.load(alphas + at, mask=mask, other=0.0)
            tl.store(d_scores + at, alpha * (d_alpha - total[:, None]), mask=mask)
        tl.debug_barrier()
        weighted_sum(d_scores, keys, d_query, row, ok, sentence, span, size, tiles)

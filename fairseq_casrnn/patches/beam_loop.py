"""fairseq's beam search with few operations a step and one look at what has been found.

``SequenceGenerator._generate`` copies all hypotheses, their scores and their attention at every
step, waits for the GPU three times a step and takes the finished hypotheses apart one by one. For
a small model on a GPU this is most of the time. Here each step only notes which hypothesis every
row continues, with which token; the hypotheses are put together at the end, all at once. What is
chosen, and its scores, are the same.

B sentences, K hypotheses of each (the beam), V words. The rows of a step are B·K hypotheses; after
sentences are finished there are fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairseq_casrnn.recurrence import choose as choose_engine

from .candidates import finder


def generate(original, self, sample, prefix_tokens=None, constraints=None, bos_token=None):
    """``SequenceGenerator._generate``, for plain beam search with models of this package."""
    if prefix_tokens is None and constraints is None and is_plain(self, sample):
        longest = longest_output(self, sample)
        if longest >= self.min_len:
            steps = list(search(self, sample["net_input"], longest, bos_token))
            found = collect(self, steps, len(sample["net_input"]["src_tokens"]))
            if found is not None:
                return found
    # In the last two cases fairseq says what is wrong.
    return original(
        self, sample, prefix_tokens=prefix_tokens, constraints=constraints, bos_token=bos_token
    )


def is_plain(generator, sample) -> bool:
    """Whether the search is nothing but beam search, and all models are this package's."""
    from fairseq.search import BeamSearch

    from fairseq_casrnn.models.fast_path import has_stock_forward

    ensemble = generator.model
    return (
        type(generator.search) is BeamSearch
        and generator.lm_model is None
        and generator.repeat_ngram_blocker is None
        and generator.token_indices_to_suppress is None
        and not generator.match_source_len
        and "src_tokens" in sample["net_input"]
        and ensemble.has_encoder()
        and ensemble.has_incremental_states()
        and all(has_stock_forward(model) for model in ensemble.models)
    )


def longest_output(generator, sample) -> int:
    """How many tokens a hypothesis may have before its </s>."""
    wanted = generator.max_len_a * sample["net_input"]["src_tokens"].size(1) + generator.max_len_b
    return min(int(wanted), generator.max_len - 1)


@dataclass
class Step:
    """What a step of the search has found.

    Attributes:
        sentences: ``(B,)``, the numbers of the sentences that the step's rows are of.
        attention: ``(B*K, S)`` of each row, or None.
        ended, ended_rows, ended_scores: ``(B, K)``, of the best candidates which end here, the
            rows that they continue, and their sums of log-probabilities.
        parents, tokens, scores: ``(B'*K,)`` for each row of the next step, the row of this one that
            it continues, its new token and its sum of log-probabilities; None in the last step.
    """

    sentences: Tensor
    attention: Tensor | None
    ended: Tensor
    ended_rows: Tensor
    ended_scores: Tensor
    parents: Tensor | None = None
    tokens: Tensor | None = None
    scores: Tensor | None = None


def search(generator, net_input, longest: int, bos_token: int | None):
    """Yield a :class:`Step` for every token, until all sentences are finished."""
    model, beam, eos = generator.model, generator.beam_size, generator.eos
    source = net_input["src_tokens"]
    batch, device = len(source), source.device
    states: list[dict] = [{} for _ in range(model.models_size)]
    order = torch.arange(batch * beam, device=device).div(beam, rounding_mode="floor")
    encoded = model.reorder_encoder_out(model.forward_encoder(net_input), order)
    sentences = torch.arange(batch)
    tokens = source.new_full((batch * beam, 1), eos if bos_token is None else bos_token)
    ignored = torch.zeros(batch, beam, dtype=torch.bool, device=device)
    collected = torch.zeros(batch, dtype=torch.long, device=device)
    scores = None
    way, choice = finder(generator, batch * beam, longest, device), chooser(device)
    for t in range(longest + 1):
        found, words, beams, attention = way.find(t, batch, tokens, encoded, states, scores)
        ended, ended_rows, *made = choice(found, words, beams, ignored, collected, eos)
        step = Step(sentences, attention, ended, ended_rows, found[:, :beam])
        unfinished = made[-1].lt(beam)
        left = 0 if t == longest else int(unfinished.sum())
        if left == 0:
            yield step
            return
        if left < batch - slack(batch, device):
            keep = unfinished.nonzero().squeeze(1)
            made = [x.index_select(0, keep) for x in made]
            sentences, batch = sentences.index_select(0, keep.cpu()), left
        *made, ignored, collected = made
        step.parents, step.tokens, step.scores = (x.view(-1) for x in made)
        tokens, scores = step.tokens.unsqueeze(1), step.scores
        yield step
        model.reorder_incremental_state(states, step.parents)
        encoded = model.reorder_encoder_out(encoded, step.parents)


def chooser(device: torch.device):
    """:func:`choose`; on a GPU, where ``triton`` is the default engine, in one launch."""
    if device.type == "cuda" and choose_engine(None, "cuda").name == "triton":
        from fairseq_casrnn.recurrence import triton_beam

        return triton_beam.choose
    return choose


def choose(found, words, beams, ignored, collected, eos: int) -> tuple[Tensor, ...]:
    """Which candidates end, and which go on.

    Args:
        found, words, beams: ``(B, N)``, of the candidates, the best first: their sums of
            log-probabilities, last tokens and the hypotheses of their sentence that they continue.
        ignored: ``(B, K)``, places of hypotheses that have ended before.
        collected: ``(B,)``, how many have ended of each sentence.
        eos: the token with which a hypothesis ends.

    Returns:
        Of the first K candidates ``(B, K)`` whether they end, and the rows that they continue; of
        the next step's hypotheses ``(B, K)`` the rows that they continue, their last tokens and
        their sums; and what ``ignored`` and ``collected`` are then.
    """
    batch, beam = ignored.shape
    rows = beams + torch.arange(0, batch * beam, beam, device=beams.device).unsqueeze(1)
    ends = words.eq(eos) & found.ne(-math.inf)
    ended = ends[:, :beam] & ~ignored
    # The best candidates that do not end, in their order, then those that do.
    ends[:, :beam] = ended | ignored
    order = torch.arange(found.size(1), device=found.device) + found.size(1) * ends
    keys, chosen = order.topk(beam, 1, largest=False)
    made = (x.gather(1, chosen) for x in (rows, words, found))
    return ended, rows[:, :beam], *made, keys.ge(found.size(1)), collected + ended.sum(1)


def slack(batch: int, device: torch.device) -> int:
    """How many finished sentences may stay: on a GPU taking out a few costs more than they do."""
    return batch // 8 if device.type == "cuda" else 0


def collect(generator, steps: list[Step], batch: int) -> list[list[dict[str, Tensor]]] | None:
    """The hypotheses of each sentence as fairseq gives them, the best first.

    None where a sentence has none, since nothing has a finite probability.
    """
    device = steps[0].ended.device
    sentence, length, row, total = finished(steps, generator.beam_size, batch)
    if len(np.unique(sentence)) < batch:
        return None
    words, sums, rows = trace_back(steps, length, row, total, generator.eos)
    scores = total
    if generator.normalize_scores:
        norms = [n**generator.len_penalty for n in range(1, len(steps) + 1)]
        scores = total / np.array(norms, dtype=total.dtype)[length - 1]
    sums[:, 1:] -= sums[:, :-1].copy()
    there = np.arange(len(steps)) < length[:, None]

    def split(values: np.ndarray) -> tuple[Tensor, ...]:
        return torch.from_numpy(values[there]).to(device).split(length.tolist())

    parts: dict[str, Sequence[Tensor]]
    parts = {"tokens": split(words), "positional_scores": split(sums)}
    parts["score"] = torch.from_numpy(scores).to(device).unbind()
    nothing = torch.empty(0)
    parts["attention"] = [nothing] * len(row)
    tables = [step.attention for step in steps if step.attention is not None]
    if tables:
        counts = [len(table) for table in tables]
        rows += np.cumsum([0, *counts[:-1]])  # in the table of all steps
        table = torch.cat(tables)
        picked = table.index_select(0, torch.from_numpy(rows[there]).to(device))
        parts["attention"] = [part.t() for part in picked.split(length.tolist())]
    found: list[list[dict[str, Tensor]]] = [[] for _ in range(batch)]
    for i in np.lexsort((-scores, sentence)).tolist():  # as stable as fairseq's sort
        hypothesis = {name: values[i] for name, values in parts.items()}
        found[sentence[i]].append(hypothesis | {"alignment": nothing})
    return found


def finished(steps: list[Step], beam: int, batch: int) -> tuple[np.ndarray, ...]:
    """The first ``beam`` hypotheses of each sentence that end, in the order of the search.

    Returns:
        Of each its sentence, its length with </s>, the row that it continues in its last step, and
        its sum of log-probabilities.
    """
    ended, rows, scores = (
        torch.cat([getattr(step, name).flatten() for step in steps]).cpu().numpy()
        for name in ("ended", "ended_rows", "ended_scores")
    )
    sentence = torch.cat([step.sentences.repeat_interleave(beam) for step in steps]).numpy()
    length = np.repeat(np.arange(1, len(steps) + 1), [step.ended.numel() for step in steps])
    at = np.flatnonzero(ended)
    grouped = at[np.argsort(sentence[at], kind="stable")]  # by sentence, then as they came
    first = np.searchsorted(sentence[grouped], np.arange(batch))
    kept = np.sort(grouped[np.arange(len(grouped)) - first[sentence[grouped]] < beam])
    return sentence[kept], length[kept], rows[kept], scores[kept]


def trace_back(steps: list[Step], length, row, total, eos: int) -> tuple[np.ndarray, ...]:
    """What hypotheses of these lengths, continuing these rows in their last steps, consist of.

    Returns:
        ``(N, T)`` each: tokens, sums of log-probabilities, rows; what is beyond a hypothesis' end
        means nothing.
    """
    shape = len(row), len(steps)
    words, rows = np.full(shape, eos), np.zeros(shape, dtype=np.int64)
    sums = np.zeros(shape, dtype=total.dtype)
    everyone = np.arange(len(row))
    rows[everyone, length - 1], sums[everyone, length - 1] = row, total
    made = [step for step in steps if step.parents is not None]
    sizes = np.cumsum([len(step.parents) for step in made if step.parents is not None])[:-1]
    parents, tokens, scores = (
        np.split(torch.cat([getattr(step, name) for step in made]).cpu().numpy(), sizes)
        if made
        else []
        for name in ("parents", "tokens", "scores")
    )
    for t in reversed(range(len(made))):
        longer = np.flatnonzero(length > t + 1)
        later = rows[longer, t + 1]
        words[longer, t], sums[longer, t] = tokens[t][later], scores[t][later]
        rows[longer, t] = parents[t][later]
    return words, sums, rows

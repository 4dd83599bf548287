"""fairseq's beam search with few operations per step and back-pointers.

``SequenceGenerator._generate`` copies all hypotheses, scores and attention weights in every step,
synchronises with the GPU three times per step and handles finished hypotheses one by one. For a
small model on a GPU this takes most of the time. Here a step only stores each hypothesis' parent
and new token; the hypotheses are built together at the end. Hypotheses and scores are the same.

Shapes: B sentences, K hypotheses per sentence (the beam size), N candidates per sentence, V words,
S source positions, T steps. A step has B·K rows, one per hypothesis; B shrinks as sentences finish.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairseq_casrnn.patches.candidates import candidate_finder
from fairseq_casrnn.recurrence import choose as choose_engine


def generate(original, self, sample, prefix_tokens=None, constraints=None, bos_token=None):
    """``SequenceGenerator._generate``, for plain beam search with models of this package."""
    if prefix_tokens is None and constraints is None and is_plain_beam_search(self, sample):
        longest = max_output_length(self, sample)
        if longest >= self.min_len:
            steps = list(search(self, sample["net_input"], longest, bos_token))
            found = build_hypotheses(self, steps, len(sample["net_input"]["src_tokens"]))
            if found is not None:
                return found
    # fairseq reports a --min-len that is too large, and sentences without hypotheses.
    return original(
        self, sample, prefix_tokens=prefix_tokens, constraints=constraints, bos_token=bos_token
    )


def is_plain_beam_search(generator, sample) -> bool:
    """Whether this is beam search without further options, with models of this package only."""
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


def max_output_length(generator, sample) -> int:
    """The maximum number of tokens in a hypothesis, without </s>."""
    wanted = generator.max_len_a * sample["net_input"]["src_tokens"].size(1) + generator.max_len_b
    return min(int(wanted), generator.max_len - 1)


@dataclass
class Step:
    """The result of one step of the search.

    Attributes:
        sentences: ``(B,)``, indices in the batch of the sentences that are not finished.
        attention: ``(B*K, S)``, or None.
        ended, ended_rows, ended_scores: ``(B, K)``, of the K best candidates: whether they end in
            this step, the rows that they continue, and their sums of log-probabilities.
        parents, tokens, scores: ``(B'*K,)``, for each row of the next step: the row of this step
            that it continues, its new token and its sum of log-probabilities. None in the last
            step.
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
    """Yield a :class:`Step` for each output position until all sentences are finished."""
    model, beam, eos = generator.model, generator.beam_size, generator.eos
    size = generator.vocab_size
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
    count_left = LateCount(batch) if device.type == "cuda" else count
    finder = candidate_finder(generator, batch * beam, longest, device)
    select = candidate_selector(device)
    for t in range(longest + 1):
        found, indices, attention = finder.find(t, batch, tokens, encoded, states, scores)
        ended, ended_rows, *made = select(found, indices, ignored, collected, eos, size)
        step = Step(sentences, attention, ended, ended_rows, found[:, :beam])
        unfinished = made[-1].lt(beam)
        left = 0 if t == longest else count_left(unfinished)
        if 0 < left < batch - max_finished_kept(batch, device):
            keep = unfinished.nonzero().squeeze(1)
            made = [x.index_select(0, keep) for x in made]
            left = batch = len(keep)
            sentences = sentences.index_select(0, keep.cpu())
        if left == 0:
            yield step
            return
        *made, ignored, collected = made
        step.parents, step.tokens, step.scores = (x.view(-1) for x in made)
        tokens, scores = step.tokens.unsqueeze(1), step.scores
        yield step
        model.reorder_incremental_state(states, step.parents)
        encoded = model.reorder_encoder_out(encoded, step.parents)


def count(unfinished: Tensor) -> int:
    """The number of unfinished sentences."""
    return int(unfinished.sum())


class LateCount:
    """:func:`count` on a GPU, one step late: to wait for this step's would leave the GPU idle.

    A search then makes one step more than needed, whose candidates are not used.
    """

    def __init__(self, batch: int):
        self.copy, self.made = torch.tensor(batch).pin_memory(), torch.cuda.Event()

    def __call__(self, unfinished: Tensor) -> int:
        """The number at the call before, at first that of all sentences."""
        self.made.synchronize()
        left = int(self.copy)
        self.copy.copy_(unfinished.sum(), non_blocking=True)
        self.made.record()
        return left


def candidate_selector(device: torch.device):
    """:func:`select_candidates`, or one Triton kernel if ``triton`` is the GPU's default engine."""
    if device.type == "cuda" and choose_engine(None, "cuda").name == "triton":
        from fairseq_casrnn.recurrence.triton import beam as triton_beam

        return triton_beam.choose
    return select_candidates


def select_candidates(
    found, indices, ignored, collected, eos: int, size: int
) -> tuple[Tensor, ...]:
    """Separate the candidates that end from those that the next step continues.

    Args:
        found, indices: ``(B, N)``, see :data:`.candidates.Candidates`.
        ignored: ``(B, K)``, True where a hypothesis ended earlier.
        collected: ``(B,)``, the number of ended hypotheses of each sentence.
        eos: index of </s>.
        size: V.

    Returns:
        ``(B, K)`` each: whether the first K candidates end, and the rows that they continue; then
        the next step's hypotheses: the rows that they continue, their last tokens and their sums;
        and the updated ``ignored`` ``(B, K)`` and ``collected`` ``(B,)``.
    """
    batch, beam = ignored.shape
    words, hypotheses = indices.fmod(size), indices.div(size, rounding_mode="trunc")
    rows = hypotheses + torch.arange(0, batch * beam, beam, device=found.device).unsqueeze(1)
    ends = words.eq(eos) & found.ne(-math.inf)
    ended = ends[:, :beam] & ~ignored
    # Candidates that do not end come first, in their order.
    ends[:, :beam] = ended | ignored
    order = torch.arange(found.size(1), device=found.device) + found.size(1) * ends
    keys, chosen = order.topk(beam, 1, largest=False)
    made = (x.gather(1, chosen) for x in (rows, words, found))
    return ended, rows[:, :beam], *made, keys.ge(found.size(1)), collected + ended.sum(1)


def max_finished_kept(batch: int, device: torch.device) -> int:
    """How many finished sentences may stay in the batch.

    On a GPU, removing a few sentences costs more than computing them.
    """
    return batch // 8 if device.type == "cuda" else 0


def build_hypotheses(
    generator, steps: list[Step], batch: int
) -> list[list[dict[str, Tensor]]] | None:
    """The hypotheses of each sentence in fairseq's format, the best first.

    None if a sentence has no hypothesis with a finite score.
    """
    device = steps[0].ended.device
    sentence, length, row, total = finished_hypotheses(steps, generator.beam_size, batch)
    if len(np.unique(sentence)) < batch:
        return None
    words, sums, rows = backtrace(steps, length, row, total, generator.eos)
    scores = total
    if generator.normalize_scores:
        norms = [n**generator.len_penalty for n in range(1, len(steps) + 1)]
        scores = total / np.array(norms, dtype=total.dtype)[length - 1]
    sums[:, 1:] -= sums[:, :-1].copy()
    valid = np.arange(len(steps)) < length[:, None]

    def split(values: np.ndarray) -> tuple[Tensor, ...]:
        return torch.from_numpy(values[valid]).to(device).split(length.tolist())

    parts: dict[str, Sequence[Tensor]]
    parts = {"tokens": split(words), "positional_scores": split(sums)}
    parts["score"] = torch.from_numpy(scores).to(device).unbind()
    nothing = torch.empty(0)
    parts["attention"] = [nothing] * len(row)
    tables = [step.attention for step in steps if step.attention is not None]
    if tables:
        counts = [len(table) for table in tables]
        rows += np.cumsum([0, *counts[:-1]])  # row numbers in the table of all steps
        table = torch.cat(tables)
        picked = table.index_select(0, torch.from_numpy(rows[valid]).to(device))
        parts["attention"] = picked.t().split(length.tolist(), 1)
    found: list[list[dict[str, Tensor]]] = [[] for _ in range(batch)]
    for i in np.lexsort((-scores, sentence)).tolist():  # stable, as fairseq's sort
        hypothesis = {name: values[i] for name, values in parts.items()}
        found[sentence[i]].append(hypothesis | {"alignment": nothing})
    return found


def finished_hypotheses(steps: list[Step], beam: int, batch: int) -> tuple[np.ndarray, ...]:
    """The first ``beam`` finished hypotheses of each sentence, in the order of the search.

    Returns:
        ``(N,)`` each: sentence, length including </s>, the row continued in the last step, and the
        sum of log-probabilities.
    """
    ended, rows, scores = (
        torch.cat([getattr(step, name).flatten() for step in steps]).cpu().numpy()
        for name in ("ended", "ended_rows", "ended_scores")
    )
    sentence = torch.cat([step.sentences.repeat_interleave(beam) for step in steps]).numpy()
    length = np.repeat(np.arange(1, len(steps) + 1), [step.ended.numel() for step in steps])
    at = np.flatnonzero(ended)
    grouped = at[np.argsort(sentence[at], kind="stable")]  # by sentence, then by step
    first = np.searchsorted(sentence[grouped], np.arange(batch))
    kept = np.sort(grouped[np.arange(len(grouped)) - first[sentence[grouped]] < beam])
    return sentence[kept], length[kept], rows[kept], scores[kept]


def backtrace(steps: list[Step], length, row, total, eos: int) -> tuple[np.ndarray, ...]:
    """Follow the back-pointers of N hypotheses from their last step to the first.

    Args:
        steps: the steps of the search.
        length, row, total: ``(N,)``, as :func:`finished_hypotheses` returns them.
        eos: index of </s>.

    Returns:
        ``(N, T)`` each: tokens, sums of log-probabilities and rows. Values beyond a hypothesis'
        length are undefined.
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

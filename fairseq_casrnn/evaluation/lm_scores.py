"""A language model's log-probabilities of a continuous text or of single sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairseq_casrnn.console.progress import progress_bar
from fairseq_casrnn.data.batches import split_batches
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.inference.lm_inputs import padded, reads_bos

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = 2048  # maximum of a batch; its probabilities take BATCH_TOKENS * V * 4 bytes


@dataclass
class Scores:
    """Log-probabilities of a text.

    Args:
        log_probs: ``(N,)`` natural logarithms for each token; NaN if it is not predicted.
        lengths: number of tokens of each sentence, including the line end; their sum is N.
    """

    log_probs: np.ndarray
    lengths: np.ndarray

    @property
    def tokens(self) -> int:
        """The number of predicted tokens."""
        return int(np.count_nonzero(~np.isnan(self.log_probs)))

    @property
    def loss(self) -> float:
        """The mean negative log-likelihood per token, in nats."""
        return -float(np.nansum(self.log_probs)) / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(loss), or infinity if that overflows."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    def sentences(self) -> np.ndarray:
        """The log-probability of each sentence; tokens that are not predicted do not count."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.add.reduceat(np.nan_to_num(self.log_probs), starts)

    def predicted(self) -> np.ndarray:
        """The number of predicted tokens of each sentence."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.add.reduceat(~np.isnan(self.log_probs), starts, dtype=np.int64)

    def __str__(self):
        return (
            f"tokens {self.tokens}, loss {self.loss:.4f} nats ({self.loss / math.log(2):.4f} bits),"
            f" perplexity {self.perplexity:.2f}"
        )


@dataclass
class Text:
    """A continuous text, scored by a language model.

    Args:
        scores: scores of its N words.
        words: tensor ``(N,)``.
        bounds: ``(S + 1,)``, the starts of its S streams, and the end; the first word of each
            stream is not predicted.
        features: tensor ``(N, E)``, from which the decoder predicts each word; zero for the first
            word of each stream. None if they were not kept.
    """

    scores: Scores
    words: torch.Tensor
    bounds: np.ndarray
    features: torch.Tensor | None


def target_log_probs(model, output, target):
    """Log-probabilities ``(B, T)`` of ``target`` in a model's ``output``.

    Raises:
        UserError: one of them is NaN.
    """
    table = model.get_normalized_probs(output, log_probs=True, sample={"target": target})
    found = table.gather(-1, target.unsqueeze(-1)).squeeze(-1).double().cpu()
    if found.isnan().any():
        raise UserError("the model's probabilities are not numbers (NaN); use another model")
    return found


def read_streams(
    model, dictionary, sentences: Sequence, streams: int = 1, keep: bool = True
) -> Text:
    """Score a continuous text.

    Args:
        model: a language model in ``eval()``.
        dictionary: its dictionary.
        sentences: the text, tensors that end with ``</s>``.
        streams: into how many streams it is divided; the first token of each is not predicted.
        keep: whether to keep all features (4·N·E bytes).

    Raises:
        UserError: a stream has fewer than two tokens, or the model carries no state.
    """
    import torch

    from fairseq_casrnn.data.streams import StreamDataset, piece_lengths
    from fairseq_casrnn.models.language_decoder import CarriedState, check_carries

    check_carries(model)
    text = StreamDataset(torch.cat(list(sentences)), dictionary.pad())
    text = text.cut(streams, option="--streams")
    scores = np.full(len(text.tokens), np.nan)
    kept: torch.Tensor | None = None
    steps = piece_lengths(int(text.sizes.max()), max(1, BATCH_TOKENS // streams), 0.0, (0, 0))
    carried, decoder, device = CarriedState(), model.decoder, next(model.parameters()).device
    if reads_bos(model):
        with torch.no_grad():
            first = torch.full((streams, 1), dictionary.bos(), device=device)
            decoder.extract_features(first, carried=carried)
    for pieces in progress_bar(text.batches(1, steps), len(steps), "steps"):
        batch = text.collater([text[piece] for piece in pieces])
        target = batch["target"].to(device)
        with torch.no_grad():
            source = batch["net_input"]["src_tokens"].to(device)
            features, extra = decoder.extract_features(source, carried=carried)
            found = target_log_probs(model, (decoder.output_layer(features), extra), target)
        if keep and kept is None:
            kept = features.new_zeros(len(text.tokens), features.size(-1))
        for row, (stream, start, _) in enumerate(pieces):
            length = int(batch["net_input"]["src_lengths"][row])
            first = int(text.bounds[stream]) + start + 1
            scores[first : first + length] = found[row, :length].numpy()
            if kept is not None:
                kept[first : first + length] = features[row, :length]
    lengths = np.array([len(sentence) for sentence in sentences])
    return Text(Scores(scores, lengths), text.tokens.long(), text.bounds, kept)


def score_sentences(model, dictionary, sentences: Sequence) -> Scores:
    """Scores of single sentences, each after ``</s>``; every token is predicted."""
    import torch

    lengths = np.array([len(sentence) for sentence in sentences])
    starts = np.cumsum(lengths) - lengths
    scores = np.full(int(lengths.sum()), np.nan)
    order, bos = np.argsort(lengths, kind="stable"), reads_bos(model)
    device = next(model.parameters()).device
    batches = list(split_batches(order, lengths[order], BATCH_TOKENS))
    for batch in progress_bar(batches, len(batches), "batches"):
        pair = padded([sentences[i] for i in batch], dictionary, bos)
        source, target = (part.to(device) for part in pair)
        with torch.no_grad():
            found = target_log_probs(model, model(source), target)[:, int(bos) :]
        for i, row in zip(batch, found, strict=True):
            scores[starts[i] : starts[i] + lengths[i]] = row[: lengths[i]].numpy()
    return Scores(scores, lengths)

"""The parts of a sentence classifier around its body: encoder, features φ, classifier."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..layers import Pooling
from ..recurrence.memory import on_host
from .dropout import Dropout

FEATURES = {"single": 1, "nli": 4, "paraphrase": 2}  # sentence vectors' worth
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}


class SentenceEncoder(nn.Module):
    """One vector for each sentence.

    Args:
        embed_tokens: ``nn.Embedding`` with a padding index.
        body: see :mod:`.sentence_bodies`.
        pooling: kind of :class:`.Pooling`.
        dropout: on the embeddings.
        begin: index of <s>, put before each sentence; None for no <s>.
        end: index of </s> if it is to be taken away from sentences that have words, else None.
    """

    def __init__(self, embed_tokens, body, pooling, dropout=0.0, begin=None, end=None):
        super().__init__()
        self.embed_tokens, self.body = embed_tokens, body
        self.pool = Pooling(pooling, body.output_size, body.directions, body.node_size)
        self.dropout = Dropout(dropout, module_name="SentenceEncoder")
        self.begin, self.end = begin, end
        self.output_size = self.pool.output_size

    def forward(self, tokens: Tensor) -> Tensor:
        """Sentence vectors ``(B, output_size)`` of ``tokens`` (B, T), padded at the end."""
        pad = self.embed_tokens.padding_idx
        if self.begin is not None:
            tokens = torch.cat([tokens.new_full((tokens.size(0), 1), self.begin), tokens], dim=1)
        # Up to the last word: the text itself may hold the padding symbol.
        place = torch.arange(1, tokens.size(1) + 1, device=tokens.device)
        lengths = (tokens.ne(pad) * place).amax(1).clamp(min=1)
        if self.end is not None:
            last = tokens.gather(1, lengths.unsqueeze(1) - 1).squeeze(1)
            lengths = lengths - (last.eq(self.end) & lengths.gt(1)).long()
        if on_host(lengths):  # steps of padding alone do no harm, and looking at a GPU's would wait
            tokens = tokens[:, : int(lengths.max())]
        tokens = tokens.t()  # (T, B)
        x = self.dropout(self.embed_tokens(tokens))
        states, node = self.body(x, lengths, tokens)
        return self.pool(states, lengths, node)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that takes a single sentence with the running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x`` (B, C)."""
        if self.training and len(x) == 1:
            self.eval()
            try:
                return super().forward(x)
            finally:
                self.train()
        return super().forward(x)


class Classifier(nn.Sequential):
    """Multi-layer perceptron: dropout, then (linear, batch norm, activation, dropout)*, linear.

    The first dropout has a probability of its own, ``dropout_in``, unless that is None.
    """

    def __init__(
        self,
        input_size: int,
        size: int,
        depth: int,
        classes: int,
        *,
        activation: str,
        batch_norm: bool,
        dropout: float,
        dropout_in: float | None = None,
    ):
        if activation not in ACTIVATIONS:
            raise UserError(f"--mlp-activation is '{activation}'; use relu or tanh")
        parts: list[nn.Module] = [Dropout(dropout if dropout_in is None else dropout_in)]
        for _ in range(depth):
            parts.append(nn.Linear(input_size, size))
            parts += [BatchNorm(size)] if batch_norm else []
            parts += [ACTIVATIONS[activation](), Dropout(dropout)]
            input_size = size
        super().__init__(*parts, nn.Linear(input_size, classes))


def features(kind: str, first: Tensor, second: Tensor | None = None) -> Tensor:
    """φ of one or two sentence vectors ``(B, C)``: ``(B, FEATURES[kind] * C)``."""
    if kind == "single":
        return first
    assert second is not None
    contrast = [(first - second).abs(), first * second]
    return torch.cat(contrast if kind == "paraphrase" else [first, second, *contrast], dim=-1)

"""The parts of a sentence classifier: encoder, features φ, classifier."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..layers import Pooling
from ..recurrence.memory import on_host
from .config import dropout_option
from .dropout import Dropout
from .sentence_backbones import Backbone, count_tokens
from .sentence_config import SentenceConfig

FEATURES = {"single": 1, "nli": 4, "paraphrase": 2}  # size of φ, in sentence vectors
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}


class SentenceEncoder(nn.Module):
    """One vector for each sentence.

    Args:
        embed_tokens: ``nn.Embedding`` with a padding index.
        backbone: see :mod:`.sentence_backbones`.
        pooling: kind of :class:`.Pooling`.
        dropout: on the embeddings.
        begin: index of <s>, which is put before each sentence; None for no <s>.
        end: index of </s>, which is removed from sentences that have words; None to keep it.
    """

    def __init__(
        self,
        embed_tokens: nn.Embedding,
        backbone: Backbone,
        pooling: str,
        dropout: float = 0.0,
        begin: int | None = None,
        end: int | None = None,
    ):
        super().__init__()
        self.embed_tokens, self.body = embed_tokens, backbone  # checkpoints call it "body"
        self.pool = Pooling(pooling, backbone.output_size, backbone.directions, backbone.node_size)
        self.dropout = Dropout(dropout, module_name="SentenceEncoder")
        self.begin, self.end = begin, end
        self.output_size = self.pool.output_size

    def forward(self, tokens: Tensor) -> Tensor:
        """Sentence vectors ``(B, output_size)`` of ``tokens`` (B, T), padded at the end."""
        pad: Any = self.embed_tokens.padding_idx
        if self.begin is not None:
            tokens = torch.cat([tokens.new_full((tokens.size(0), 1), self.begin), tokens], dim=1)
        lengths = count_tokens(tokens, pad).clamp(min=1)
        if self.end is not None:
            last = tokens.gather(1, lengths.unsqueeze(1) - 1).squeeze(1)
            lengths = lengths - (last.eq(self.end) & lengths.gt(1)).long()
        if on_host(lengths):  # on a GPU, extra padding costs less than reading the lengths
            tokens = tokens[:, : int(lengths.max())]
        tokens = tokens.t()  # (T, B)
        x = self.dropout(self.embed_tokens(tokens))
        states, node = self.body(x, lengths, tokens)
        return self.pool(states, lengths, node)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that uses the running statistics for a batch of one sentence."""

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

    Its options are those of ``cfg`` that start with ``mlp``.

    Raises:
        UserError: an unknown activation.
    """

    def __init__(self, input_size: int, classes: int, cfg: SentenceConfig):
        if cfg.mlp_activation not in ACTIVATIONS:
            raise UserError(f"--mlp-activation is '{cfg.mlp_activation}'; use relu or tanh")
        dropout, size = dropout_option(cfg, "mlp_dropout"), cfg.mlp_size
        first = dropout if cfg.mlp_dropout_in is None else cfg.mlp_dropout_in
        layers: list[nn.Module] = [Dropout(first)]
        for _ in range(cfg.mlp_layers):
            layers.append(nn.Linear(input_size, size))
            layers += [BatchNorm(size)] if cfg.mlp_batch_norm else []
            layers += [ACTIVATIONS[cfg.mlp_activation](), Dropout(dropout)]
            input_size = size
        super().__init__(*layers, nn.Linear(input_size, classes))


def features(kind: str, first: Tensor, second: Tensor | None = None) -> Tensor:
    """φ of one or two sentence vectors ``(B, C)``: ``(B, FEATURES[kind] * C)``."""
    if kind == "single":
        return first
    assert second is not None
    contrast = [(first - second).abs(), first * second]
    return torch.cat(contrast if kind == "paraphrase" else [first, second, *contrast], dim=-1)

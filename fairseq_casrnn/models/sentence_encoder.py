"""Sentence classifiers: embedding → backbone → pooling → features φ → MLP → classes.

One fairseq model for each backbone: ``<cell>_sentence_encoder`` for every cell,
``sentence_state_lstm_…``, ``shortcut_lstm_…``, ``cnn_…``, ``transformer_sentence_encoder``.
"""

from __future__ import annotations

import functools
from typing import Any

from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from ..errors import UserError, check_at_least
from .config import config_for, dropout_option, named_as_options
from .sentence_backbones import (
    Backbone,
    ConvolutionBackbone,
    RecurrentBackbone,
    SentenceStateBackbone,
    ShortcutBackbone,
    TransformerBackbone,
)
from .sentence_config import (
    ConvolutionConfig,
    RecurrentSentenceConfig,
    SentenceConfig,
    SentenceStateConfig,
    ShortcutConfig,
    TransformerConfig,
)
from .sentence_hub import SentenceHub
from .sentence_model import SentenceModel, register
from .sentence_parts import FEATURES, Classifier, SentenceEncoder, features


class SentenceClassifier(SentenceModel):
    """A sentence encoder and a classifier; both sentences of a pair share the encoder."""

    suffix, hub = "sentence_encoder", SentenceHub
    sizes = ("num_filters", "mlp_size", "encoder_attention_heads", "encoder_ffn_embed_dim")
    dropouts = ("mlp_dropout", "mlp_dropout_in")

    def __init__(
        self,
        cfg: SentenceConfig,
        task: FairseqTask,
        embed: nn.Embedding,
        backbone: Backbone,
        char_cnn: None = None,
    ):
        super().__init__()
        self.features = choose_features(cfg.features, task.pairs)
        with named_as_options(["pooling"]):
            self.encoder = SentenceEncoder(
                embed,
                backbone,
                cfg.pooling,
                dropout_option(cfg, "encoder_dropout_in"),
                **boundaries(cfg, task.source_dictionary),
            )
        size = FEATURES[self.features] * self.encoder.output_size
        self.classifier = Classifier(size, len(task.classes), cfg)

    @classmethod
    def check_options(cls, cfg: SentenceConfig, task: FairseqTask) -> None:
        """Raise UserError for options that contradict each other or lie out of range."""
        check_at_least(0, mlp_layers=cfg.mlp_layers)
        if cfg.mlp_batch_norm and not cfg.mlp_layers:
            raise UserError(
                "--mlp-batch-norm normalises hidden layers, but --mlp-layers is 0; drop one of them"
            )
        if not hasattr(task, "pairs"):
            raise UserError("sentence encoders need --task sentence_classification")
        choose_features(cfg.features, task.pairs)

    def forward(
        self, src_tokens: Tensor, pair_tokens: Tensor | None = None, **unused: Any
    ) -> Tensor:
        """Logits ``(B, classes)`` of sentences (B, T), or of pairs with ``pair_tokens`` (B, T')."""
        first = self.encoder(src_tokens)
        second = None if pair_tokens is None else self.encoder(pair_tokens)
        return self.classifier(features(self.features, first, second))


def choose_features(kind: str | None, pairs: bool) -> str:
    """``--features``, or its default. Raises UserError when it does not fit the data."""
    kind = kind or ("nli" if pairs else "single")
    if kind not in FEATURES:
        raise UserError(f"--features is '{kind}'; use {', '.join(FEATURES)}")
    if pairs != (kind != "single"):
        raise UserError(
            f"--features {kind} takes {'one sentence' if kind == 'single' else 'two sentences'}, "
            f"but the data has {'two' if pairs else 'one'}; drop the option"
        )
    return kind


def boundaries(cfg: SentenceConfig, words: Dictionary) -> dict[str, int]:
    """``begin`` and ``end`` of the encoder; fairseq's data ends each sentence with </s>.

    The sentence-state LSTM reads both <s> and </s>, or neither with --no-boundaries.
    """
    if not hasattr(cfg, "no_boundaries"):
        return {}
    return {"end": words.eos()} if cfg.no_boundaries else {"begin": words.bos()}


def register_cell(cell: str) -> None:
    """Register ``<cell>_sentence_encoder`` for a cell of FAMILIES."""
    config = config_for(cell, RecurrentSentenceConfig)
    register(SentenceClassifier, cell, functools.partial(RecurrentBackbone, cell), config)


for _name, _build, _config in (
    ("sentence_state_lstm", SentenceStateBackbone, SentenceStateConfig),
    ("shortcut_lstm", ShortcutBackbone, ShortcutConfig),
    ("cnn", ConvolutionBackbone, ConvolutionConfig),
    ("transformer", TransformerBackbone, TransformerConfig),
):
    register(SentenceClassifier, _name, _build, _config)

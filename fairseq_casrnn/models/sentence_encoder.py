"""Sentence encoders and classifiers: embedding → body → pooling → features φ → MLP → classes.

One fairseq model for each kind of body: ``<cell>_sentence_encoder`` for every cell,
``sentence_state_lstm_…``, ``shortcut_lstm_…``, ``cnn_…``, ``transformer_sentence_encoder``.
"""

from __future__ import annotations

import dataclasses

from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from torch import Tensor

from .. import layers
from ..cells import FAMILIES
from ..errors import UserError
from ..layers import SentenceStateLSTM, ShortcutStackedLSTM
from .annealing import follow_epochs
from .config import (
    check_probabilities,
    check_sizes,
    config_for,
    reads_lower_cell,
    spelled_as_options,
    warn_of_single_layers,
)
from .embedding import build_embedding
from .sentence_bodies import (
    ConvolutionBody,
    RecurrentBody,
    SentenceStateBody,
    ShortcutBody,
    TransformerBody,
)
from .sentence_config import (
    ConvolutionConfig,
    RecurrentSentenceConfig,
    SentenceStateConfig,
    ShortcutConfig,
    TransformerConfig,
)
from .sentence_parts import FEATURES, Classifier, SentenceEncoder, features

SIZES = (
    *("encoder_embed_dim", "encoder_hidden_size", "encoder_layers", "num_filters", "mlp_size"),
    *("num_steps", "window", "encoder_attention_heads", "encoder_ffn_embed_dim"),
)
DROPOUTS = (
    *("dropout", "encoder_dropout_in", "encoder_dropout_out"),
    *("mlp_dropout", "mlp_dropout_in"),
)


class SentenceClassifier(BaseFairseqModel):
    """A sentence encoder, shared by both sentences of a pair, and a classifier.

    Subclasses make the body in :meth:`build_body`.
    """

    def __init__(self, encoder: SentenceEncoder, kind: str, classifier: Classifier):
        super().__init__()
        self.encoder, self.features, self.classifier = encoder, kind, classifier

    @classmethod
    def build_body(cls, cfg):
        """The body for ``cfg``."""
        raise NotImplementedError

    @classmethod
    def build_model(cls, cfg, task):
        """A new model for ``cfg`` (the dataclass of the architecture) and the task.

        Raises:
            UserError: option values that contradict each other or lie out of range.
        """
        check_sizes(cfg, [name for name in SIZES if hasattr(cfg, name)])
        check_probabilities(cfg, DROPOUTS)
        if cfg.encoder_embed_range <= 0:
            raise UserError(
                f"--encoder-embed-range is {cfg.encoder_embed_range}; it must be greater than 0"
            )
        if cfg.mlp_layers < 0:
            raise UserError(f"--mlp-layers is {cfg.mlp_layers}; it must be at least 0")
        if not hasattr(task, "classes"):
            raise UserError(
                "sentence encoders need --task sentence_classification, which knows the classes"
            )
        kind = choose_features(cfg.features, task.pairs)
        words = task.source_dictionary
        embed = build_embedding(
            words,
            cfg.encoder_embed_dim,
            cfg.encoder_embed_path,
            cfg.encoder_freeze_embed,
            cfg.encoder_embed_range,
        )
        body = cls.build_body(cfg)
        with spelled_as_options(["pooling"]):
            encoder = SentenceEncoder(
                embed,
                body,
                cfg.pooling,
                dropout(cfg, "encoder_dropout_in"),
                **cls.boundaries(cfg, words),
            )
        classifier = Classifier(
            FEATURES[kind] * encoder.output_size,
            cfg.mlp_size,
            cfg.mlp_layers,
            len(task.classes),
            cfg.mlp_activation,
            cfg.mlp_batch_norm,
            dropout(cfg, "mlp_dropout"),
            cfg.mlp_dropout_in,
        )
        model = cls(encoder, kind, classifier)
        follow_epochs(task, model, cfg)
        return model

    @classmethod
    def boundaries(cls, cfg, words) -> dict:
        """Which of <s>, </s> are added or removed; fairseq's data ends each sentence with </s>."""
        return {}

    def forward(self, src_tokens: Tensor, pair_tokens: Tensor | None = None, **unused) -> Tensor:
        """Logits ``(B, classes)`` of sentences (B, T), or of pairs with ``pair_tokens`` (B, T')."""
        first = self.encoder(src_tokens)
        second = None if pair_tokens is None else self.encoder(pair_tokens)
        return self.classifier(features(self.features, first, second))

    def set_epoch(self, epoch: int) -> None:
        """Anneal the temperature of layers that have one."""
        for module in self.encoder.modules():
            if hasattr(module, "set_epoch"):
                module.set_epoch(epoch)

    def max_positions(self):
        """Any length."""
        return None

    @classmethod
    def from_pretrained(
        cls, model_name_or_path, checkpoint_file=None, data_name_or_path=None, **kwargs
    ):
        """Load a trained classifier to ask it from Python; see :class:`.SentenceHub`.

        Args:
            model_name_or_path: folder of the checkpoint, or the checkpoint itself.
            checkpoint_file: its name there (default: checkpoint_best.pt, else model.pt, else
                checkpoint_last.pt).
            data_name_or_path: folder with ``input0/dict.txt`` and ``label/dict.txt`` (default: the
                model's folder, else the data it was trained on).
            kwargs: options of the task or model to override.

        Raises:
            UserError: no checkpoint there, one of another kind, no dictionaries, or no such option.
        """
        from .sentence_hub import SentenceHub

        return SentenceHub.load(model_name_or_path, checkpoint_file, data_name_or_path, **kwargs)


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


def dropout(cfg, name: str) -> float:
    """The option ``name``, or ``--dropout`` where it is not given."""
    value = getattr(cfg, name)
    return cfg.dropout if value is None else value


def directions(cfg) -> bool | str:
    """``bidirectional`` of the recurrent stack."""
    return "interleaved" if cfg.encoder_interleaved else cfg.encoder_bidirectional


def numbers(text: str, option: str) -> list[int]:
    """A comma-separated list of positive numbers. Raises UserError, naming ``option``."""
    pieces = str(text).strip("[]()").split(",")
    if not all(piece.strip().isdigit() and int(piece) for piece in pieces):
        raise UserError(f"{option} is '{text}'; give positive numbers, separated by commas")
    return [int(piece) for piece in pieces]


class RecurrentSentenceClassifier(SentenceClassifier):
    """With a stack of any cell of :data:`fairseq_casrnn.cells.FAMILIES`."""

    cell_name = "stacked_lstm"

    @classmethod
    def build_body(cls, cfg):
        """The recurrent stack."""
        if cfg.encoder_interleaved and reads_lower_cell(cls.cell_name):
            raise UserError(
                f"{cls.cell_name} reads the cell of the layer below, which --encoder-interleaved "
                "joins with the other direction's; give --encoder-bidirectional instead"
            )
        warn_of_single_layers(cls.cell_name, cfg)
        own = [field.name for field in dataclasses.fields(FAMILIES[cls.cell_name].options)]
        with spelled_as_options(own):
            rnn = layers.build(
                cls.cell_name,
                cfg.encoder_embed_dim,
                cfg.encoder_hidden_size,
                cfg.encoder_layers,
                bidirectional=directions(cfg),
                dropout=dropout(cfg, "encoder_dropout_out"),
                options=cfg,
                engine=cfg.engine,
            )
        return RecurrentBody(rnn)


class SentenceStateClassifier(SentenceClassifier):
    """With the sentence-state LSTM, <s> and </s> around each sentence."""

    @classmethod
    def build_body(cls, cfg):
        """The sentence-state LSTM."""
        with spelled_as_options(["num_sentence_nodes"]):
            layer = SentenceStateLSTM(
                cfg.encoder_embed_dim,
                cfg.encoder_hidden_size,
                cfg.num_steps,
                cfg.window,
                cfg.num_sentence_nodes,
                cfg.recompute,
                getattr(cfg, "engine", None),  # checkpoints of version 0.1.0 may not have it
            )
        return SentenceStateBody(layer)

    @classmethod
    def boundaries(cls, cfg, words):
        """Both, or none."""
        return {"end": words.eos()} if cfg.no_boundaries else {"begin": words.bos()}


class ShortcutClassifier(SentenceClassifier):
    """With the shortcut-stacked LSTM."""

    @classmethod
    def build_body(cls, cfg):
        """The stack."""
        with spelled_as_options(["hidden_sizes", "connection"]):
            return ShortcutBody(
                ShortcutStackedLSTM(
                    cfg.encoder_embed_dim,
                    numbers(cfg.hidden_sizes, "hidden_sizes"),
                    cfg.connection,
                    dropout(cfg, "encoder_dropout_out"),
                    cfg.engine,
                )
            )


class ConvolutionClassifier(SentenceClassifier):
    """With convolutions over words."""

    @classmethod
    def build_body(cls, cfg):
        """The convolutions."""
        return ConvolutionBody(
            cfg.encoder_embed_dim,
            numbers(cfg.filter_widths, "--filter-widths"),
            cfg.num_filters,
            cfg.encoder_layers,
            dropout(cfg, "encoder_dropout_out"),
        )


class TransformerClassifier(SentenceClassifier):
    """With a transformer encoder."""

    @classmethod
    def build_body(cls, cfg):
        """The transformer."""
        return TransformerBody(
            cfg.encoder_embed_dim,
            cfg.encoder_attention_heads,
            cfg.encoder_ffn_embed_dim,
            cfg.encoder_layers,
            dropout(cfg, "encoder_dropout_out"),
        )


def register(name: str, base: type, config: type, **attributes) -> type:
    """Register the model ``<name>_sentence_encoder`` and, for tests, ``…_tiny``."""
    arch = f"{name}_sentence_encoder"
    model = type(
        arch.title().replace("_", ""),
        (base,),
        {"__doc__": f"Sentences with {name}.", "__module__": __name__, **attributes},
    )
    model = register_model(arch, dataclass=config)(model)

    def tiny(args):
        for key, value in TINY.items():
            if key in config.__dataclass_fields__:
                setattr(args, key, getattr(args, key, value))

    register_model_architecture(arch, f"{arch}_tiny")(tiny)
    return model


TINY = {
    "encoder_embed_dim": 8,
    "encoder_hidden_size": 8,
    "encoder_layers": 2,
    "mlp_size": 8,
    "num_steps": 3,
    "hidden_sizes": "4,8",
    "num_filters": 4,
    "encoder_attention_heads": 2,
    "encoder_ffn_embed_dim": 16,
}
MODELS: dict[str, type] = {
    cell: register(
        cell,
        RecurrentSentenceClassifier,
        config_for(cell, RecurrentSentenceConfig),
        cell_name=cell,
    )
    for cell in FAMILIES
}
MODELS |= {
    name: register(name, base, config)
    for name, base, config in (
        ("sentence_state_lstm", SentenceStateClassifier, SentenceStateConfig),
        ("shortcut_lstm", ShortcutClassifier, ShortcutConfig),
        ("cnn", ConvolutionClassifier, ConvolutionConfig),
        ("transformer", TransformerClassifier, TransformerConfig),
    )
}

"""The base class of sentence classifiers and taggers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import nn

from .config import check_probabilities, check_ranges, check_sizes
from .embedding import build_embedding
from .hub import Hub
from .registration import PicklableModel, register_architecture, register_subclass
from .sentence_config import EmbeddingConfig

SIZES = ("encoder_embed_dim", "encoder_hidden_size", "encoder_layers", "num_steps", "window")
DROPOUTS = ("dropout", "encoder_dropout_in", "encoder_dropout_out")
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
"""Sizes of the architectures ``…_tiny``, for tests."""


class SentenceModel(PicklableModel, BaseFairseqModel):
    """A model with an ``encoder`` of sentences.

    Subclasses define:

    - ``hub``: the :class:`.Hub` for use from Python
    - ``check_options(cfg, task)``
    - ``build_backbone(cfg, size)``: the encoder's backbone for inputs of that size
    - ``__init__(cfg, task, embed, backbone, char_cnn)``, which makes the rest

    Attributes:
        suffix: of the models' names.
        sizes, dropouts: further options of the subclass that are sizes or probabilities.
    """

    suffix: str
    hub: type[Hub]
    build_backbone: Callable
    check_options: Callable
    sizes: tuple[str, ...] = ()
    dropouts: tuple[str, ...] = ()

    @classmethod
    def build_model(cls, cfg: EmbeddingConfig, task: FairseqTask) -> Self:
        """A new model for ``cfg`` (the dataclass of the architecture) and the task.

        Raises:
            UserError: option values that contradict each other or lie out of range.
        """
        check_sizes(cfg, [name for name in (*SIZES, *cls.sizes) if hasattr(cfg, name)])
        check_probabilities(cfg, (*DROPOUTS, *cls.dropouts))
        check_ranges(cfg, ["encoder_embed_range"])
        cls.check_options(cfg, task)
        # This order determines the initial weights that a seed gives.
        char_cnn, char_features = cls.build_char_cnn(cfg, task)
        embed = build_embedding(
            task.source_dictionary,
            cfg.encoder_embed_dim,
            cfg.encoder_embed_path,
            cfg.encoder_freeze_embed,
            cfg.encoder_embed_range,
        )
        backbone = cls.build_backbone(cfg, cfg.encoder_embed_dim + char_features)
        return cls(cfg, task, embed, backbone, char_cnn)

    @classmethod
    def build_char_cnn(
        cls, cfg: FairseqDataclass, task: FairseqTask
    ) -> tuple[nn.Module | None, int]:
        """The :class:`.CharCNN` and its number of features; None and 0 without one."""
        return None, 0

    def max_positions(self) -> None:
        """Any length."""
        return None

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str | Path,
        checkpoint_file: str | None = None,
        data_name_or_path: str | None = None,
        **kwargs: Any,
    ) -> Hub:
        """Load a trained model for use from Python, as :class:`.SentenceHub` or ``TaggerHub``.

        Args:
            model_name_or_path: folder of the checkpoint, the checkpoint itself, or a file of
                ``casrnn pack``.
            checkpoint_file: its name in the folder (default: checkpoint_best.pt, else model.pt,
                else checkpoint_last.pt).
            data_name_or_path: folder of the training's dictionaries, ``input0/dict.txt`` and
                ``label/dict.txt`` (default: the model's folder, else the training data).
            kwargs: options of the task or model to override. With ``encoder_embed_path``, words
                that are not in the training data get their vectors from that file.

        Raises:
            UserError: no checkpoint, one of another kind, no dictionaries, or an unknown option.
        """
        return cls.hub.load(model_name_or_path, checkpoint_file, data_name_or_path, **kwargs)


def register(
    base: type[SentenceModel], name: str, build_backbone: Callable, config: type[FairseqDataclass]
) -> None:
    """Register a subclass of ``base`` as a model, and ``…_tiny`` for tests.

    Args:
        base: the classifier or tagger.
        name: the model's name before ``base.suffix``.
        build_backbone: see :class:`SentenceModel`.
        config: the dataclass of the model's options.
    """
    arch, doc = f"{name}_{base.suffix}", f"{base.hub.kind.name.capitalize()} with {name}."
    method = staticmethod(build_backbone)
    register_subclass(base, arch, arch, config, __doc__=doc, build_backbone=method)
    tiny = {name: size for name, size in TINY.items() if name in config.__dataclass_fields__}
    register_architecture(arch, f"{arch}_tiny", tiny)

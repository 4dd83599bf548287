"""Language models: a decoder without attention, one fairseq model ``<cell>_lm`` for each cell."""

# No "from __future__ import annotations": fairseq needs the fields' types as objects. It knows
# Optional[str], but not str | None.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from typing import Optional, Self

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqLanguageModel
from fairseq.tasks import FairseqTask
from omegaconf import II
from torch import Tensor

from ..errors import UserError
from ..kinds import LANGUAGE_MODEL
from ..layers import RecurrentStack
from .config import (
    EngineConfig,
    build_stack,
    check_probabilities,
    check_shared_output,
    check_sizes,
    config_for,
    dropout_option,
    warn_of_single_layers,
)
from .embedding import build_embedding
from .generator_model import GeneratorModel
from .language_decoder import RecurrentLanguageDecoder
from .loading_checkpoint import is_loading_checkpoint
from .registration import register_subclass
from .routing import read_assignment

SIZES = ["decoder_embed_dim", "decoder_hidden_size", "decoder_layers"]
DROPOUTS = [
    "dropout",
    "decoder_dropout_in",
    "decoder_dropout_between",
    "decoder_dropout_out",
    "embed_dropout",
    "weight_dropout",
]


@dataclass
class RecurrentLanguageModelConfig(EngineConfig, FairseqDataclass):
    """Options of the recurrent language models, with the names of fairseq's ``lstm_lm``."""

    dropout: float = field(default=0.1, metadata={"help": "dropout probability"})
    decoder_embed_dim: int = field(default=512, metadata={"help": "embedding dimension"})
    decoder_embed_path: Optional[str] = field(
        default=None, metadata={"help": "file of pretrained embeddings (GloVe or word2vec text)"}
    )
    decoder_freeze_embed: bool = field(
        default=False, metadata={"help": "do not train the embeddings"}
    )
    decoder_hidden_size: int = field(default=512, metadata={"help": "hidden size of every layer"})
    decoder_layers: int = field(default=1, metadata={"help": "number of layers"})
    decoder_out_embed_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": (
                "dimension of the output embedding (default: the hidden size, or the "
                "dimension of shared embeddings)"
            )
        },
    )
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "share the input and output embeddings"}
    )
    adaptive_softmax_cutoff: Optional[str] = field(
        default=None,
        metadata={"help": "comma-separated list of cutoffs; use with --criterion adaptive_loss"},
    )
    decoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": "dropout on the embeddings (default: --dropout)"}
    )
    decoder_dropout_between: Optional[float] = field(
        default=None, metadata={"help": "dropout between layers (default: --dropout)"}
    )
    decoder_dropout_out: Optional[float] = field(
        default=None, metadata={"help": "dropout on the top layer's output (default: --dropout)"}
    )
    locked_dropout: bool = field(
        default=False,
        metadata={"help": "use one dropout mask for all time steps of a sequence"},
    )
    embed_dropout: float = field(
        default=0.0,
        metadata={"help": "probability of dropping a word's embedding throughout a batch"},
    )
    weight_dropout: float = field(
        default=0.0,
        metadata={"help": "dropout on the recurrent weights, one mask per batch"},
    )
    tokens_per_sample: int = II("task.tokens_per_sample")
    max_target_positions: Optional[int] = II("task.max_target_positions")


@dataclass
class SecondOrderLanguageModelConfig(RecurrentLanguageModelConfig):
    """Options of the second-order LSTM alone, besides those of its cells."""

    assignment_path: Optional[str] = field(
        default=None,
        metadata={
            "help": (
                "file with lines 'token cell' that assigns each token to a fixed cell, "
                "without attention"
            )
        },
    )


LANGUAGE_MODEL_CONFIGS = {"second_order_lstm": SecondOrderLanguageModelConfig}


class RecurrentLanguageModel(GeneratorModel, FairseqLanguageModel):
    """Language model over any cell of :data:`fairseq_casrnn.cells.FAMILIES`."""

    cell_name, kind = "stacked_lstm", LANGUAGE_MODEL

    @classmethod
    def build_model(cls, cfg: RecurrentLanguageModelConfig, task: FairseqTask) -> Self:
        """A new model for ``cfg`` (the dataclass of the architecture) and a language model task.

        Raises:
            UserError: option values that contradict each other or lie out of range.
        """
        check_sizes(cfg, SIZES)
        check_probabilities(cfg, DROPOUTS)
        warn_of_single_layers(cls.cell_name, cfg)
        dictionary, out_embed_dim = task.source_dictionary, output_size(cfg)
        if len(task.target_dictionary) != len(dictionary):
            raise UserError(
                "recurrent language models have one dictionary; drop --output-dictionary-size"
            )
        if cfg.share_decoder_input_output_embed:
            check_shared_output(cfg, out_embed_dim)
        embed = build_embedding(
            dictionary, cfg.decoder_embed_dim, cfg.decoder_embed_path, cfg.decoder_freeze_embed
        )
        rnn = cls.build_rnn(cfg, dictionary)
        rnn.locked_dropout, rnn.weight_dropout = cfg.locked_dropout, cfg.weight_dropout
        model = cls(RecurrentLanguageDecoder(dictionary, embed, rnn, out_embed_dim, cfg))
        model.assignment_path = (
            None if is_loading_checkpoint() else getattr(cfg, "assignment_path", None)
        )
        return model

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As in fairseq; also checks ``--assignment-path`` against the checkpoint.

        Raises:
            UserError: the checkpoint has another assignment of tokens to cells.
        """
        super().upgrade_state_dict_named(state_dict, name)
        saved = state_dict.get("decoder.rnn.assignment")
        if self.assignment_path is None or saved is None:
            return
        if not torch.equal(saved.cpu(), self.decoder.rnn.assignment.cpu()):
            raise UserError(
                f"{self.assignment_path} assigns other cells than the file that the checkpoint was "
                "trained with; give that file, or start a new training with another --save-dir"
            )

    @classmethod
    def build_rnn(cls, cfg: RecurrentLanguageModelConfig, dictionary: Dictionary) -> RecurrentStack:
        """The recurrent stack of ``cfg``."""
        sizes = (cfg.decoder_embed_dim, cfg.decoder_hidden_size, cfg.decoder_layers)
        between_layers = dropout_option(cfg, "decoder_dropout_between")
        path = getattr(cfg, "assignment_path", None)
        routing = {}
        if path is not None:
            table = read_assignment(path, dictionary, cfg.num_cells)
            routing = {"routing": "assignment", "assignment": table}
        return build_stack(cls.cell_name, cfg, *sizes, dropout=between_layers, **routing)


def output_size(cfg: RecurrentLanguageModelConfig) -> int:
    """Size of the output embedding: as given, or the size that needs no additional layer."""
    if cfg.decoder_out_embed_dim is not None:
        check_sizes(cfg, ["decoder_out_embed_dim"])
        return cfg.decoder_out_embed_dim
    shared = cfg.share_decoder_input_output_embed
    return cfg.decoder_embed_dim if shared else cfg.decoder_hidden_size


def register_cell(cell: str) -> None:
    """Register the model ``<cell>_lm``."""
    config = config_for(cell, LANGUAGE_MODEL_CONFIGS.get(cell, RecurrentLanguageModelConfig))
    name, doc = f"{cell}_lm", f"Language model with {cell}."
    register_subclass(
        RecurrentLanguageModel, f"{name}_model", name, config, cell_name=cell, __doc__=doc
    )

"""Options of the recurrent language models, with the names of fairseq's ``lstm_lm``."""

# No "from __future__ import annotations": see config.py.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from .config import EngineConfig


@dataclass
class RecurrentLanguageModelConfig(EngineConfig, FairseqDataclass):
    """Options for all cells."""

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

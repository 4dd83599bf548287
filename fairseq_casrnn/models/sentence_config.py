"""Options of the sentence classifiers and the taggers."""

# No "from __future__ import annotations": fairseq needs the fields' types as objects. It knows
# Optional[str], but not str | None.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass

from ..cells.base import FUNCTIONAL
from .config import EngineConfig


@dataclass
class EmbeddingConfig(FairseqDataclass):
    """Options of dropout and embeddings."""

    dropout: float = field(default=0.1, metadata={"help": "dropout probability"})
    encoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": "dropout on the embeddings (default: --dropout)"}
    )
    encoder_dropout_out: Optional[float] = field(
        default=None,
        metadata={"help": "dropout between the encoder's layers (default: --dropout)"},
    )
    encoder_embed_dim: int = field(default=300, metadata={"help": "embedding dimension"})
    encoder_embed_path: Optional[str] = field(
        default=None,
        metadata={"help": "file of pretrained embeddings (GloVe or word2vec text)"},
    )
    encoder_freeze_embed: bool = field(
        default=False, metadata={"help": "do not train the embeddings"}
    )
    encoder_embed_range: float = field(
        default=0.25,
        metadata={
            "help": (
                "embeddings without a pretrained vector are initialised uniformly "
                "within plus or minus this value"
            )
        },
    )


@dataclass
class RecurrentEncoderConfig(EngineConfig):
    """Options of a recurrent stack."""

    encoder_hidden_size: int = field(
        default=300, metadata={"help": "hidden size of the encoder, per direction"}
    )
    encoder_layers: int = field(default=1, metadata={"help": "number of encoder layers"})
    encoder_bidirectional: bool = field(
        default=False, metadata={"help": "use two independent stacks, one per direction"}
    )
    encoder_interleaved: bool = field(
        default=False,
        metadata={
            "help": (
                "use two directions that are concatenated after every layer, as in torch.nn.LSTM"
            )
        },
    )


@dataclass
class SentenceStateEncoderConfig(EngineConfig):
    """Options of the sentence-state LSTM."""

    encoder_hidden_size: int = field(default=300, metadata={"help": "hidden size"})
    num_steps: int = field(default=9, metadata={"help": "number of recurrent steps", **FUNCTIONAL})
    window: int = field(default=1, metadata={"help": "number of neighbours read on each side"})
    num_sentence_nodes: int = field(default=1, metadata={"help": "number of sentence nodes"})
    no_boundaries: bool = field(
        default=False,
        metadata={"help": "do not put <s> and </s> around the sentence", **FUNCTIONAL},
    )
    recompute: bool = field(
        default=False, metadata={"help": "recompute the gates in the backward pass; saves memory"}
    )


@dataclass
class ShortcutEncoderConfig(EngineConfig):
    """Options of the shortcut-stacked LSTM."""

    hidden_sizes: str = field(
        default="512,1024,2048",
        metadata={"help": "comma-separated hidden sizes of the layers, per direction"},
    )
    connection: str = field(
        default="shortcut", metadata={"help": "shortcut, residual, word or none", **FUNCTIONAL}
    )


@dataclass
class SentenceConfig(EmbeddingConfig):
    """Options of all sentence classifiers: embeddings, pooling, features and classifier."""

    mlp_dropout: Optional[float] = field(
        default=None,
        metadata={"help": "dropout on the classifier's hidden layers (default: --dropout)"},
    )
    mlp_dropout_in: Optional[float] = field(
        default=None,
        metadata={"help": "dropout on the classifier's input (default: --mlp-dropout)"},
    )
    pooling: str = field(
        default="max",
        metadata={
            "help": "max, mean, last, attention, or node (sentence_state_lstm)",
            **FUNCTIONAL,
        },
    )
    features: Optional[str] = field(
        default=None,
        metadata={
            "help": (
                "input of the classifier: single [s], nli [s1, s2, |s1-s2|, s1*s2] or "
                "paraphrase [|s1-s2|, s1*s2] (default: single for one sentence, nli for two)"
            )
        },
    )
    mlp_layers: int = field(
        default=1, metadata={"help": "number of hidden layers of the classifier; may be 0"}
    )
    mlp_size: int = field(default=300, metadata={"help": "size of the classifier's hidden layers"})
    mlp_activation: str = field(
        default="relu",
        metadata={"help": "activation of the classifier: relu or tanh", **FUNCTIONAL},
    )
    mlp_batch_norm: bool = field(
        default=False,
        metadata={"help": "use batch normalisation in the classifier's hidden layers"},
    )


@dataclass
class RecurrentSentenceConfig(RecurrentEncoderConfig, SentenceConfig):
    """A sentence classifier with a recurrent stack."""


@dataclass
class SentenceStateConfig(SentenceStateEncoderConfig, SentenceConfig):
    """A sentence classifier with the sentence-state LSTM."""

    pooling: str = field(
        default="node",
        metadata={
            "help": "node (the state of the sentence node), max, mean, attention or last",
            **FUNCTIONAL,
        },
    )
    num_sentence_nodes: int = field(
        default=1, metadata={"help": "number of sentence nodes; with 0, choose another --pooling"}
    )


@dataclass
class ShortcutConfig(ShortcutEncoderConfig, SentenceConfig):
    """A sentence classifier with the shortcut-stacked LSTM."""


@dataclass
class ConvolutionConfig(SentenceConfig):
    """A sentence classifier with convolutions (Kim 2014)."""

    encoder_layers: int = field(default=1, metadata={"help": "number of convolution layers"})
    filter_widths: str = field(
        default="3,4,5", metadata={"help": "comma-separated widths of the filters, in words"}
    )
    num_filters: int = field(default=100, metadata={"help": "number of filters of each width"})


@dataclass
class TransformerConfig(SentenceConfig):
    """A sentence classifier with a transformer encoder."""

    pooling: str = field(
        default="mean", metadata={"help": "mean, max, attention, or last (at </s>)", **FUNCTIONAL}
    )
    encoder_layers: int = field(default=6, metadata={"help": "number of encoder layers"})
    encoder_attention_heads: int = field(
        default=6, metadata={"help": "number of attention heads", **FUNCTIONAL}
    )
    encoder_ffn_embed_dim: int = field(
        default=600, metadata={"help": "size of the feed-forward layers"}
    )


@dataclass
class TaggerConfig(EmbeddingConfig):
    """Options of all taggers: embeddings, characters and output."""

    char_filters: int = field(
        default=0,
        metadata={
            "help": (
                "number of filters of a character CNN; 0 uses only words. The data needs the "
                "folder spelling/, which casrnn prepare and the recipes' prepare.sh write"
            )
        },
    )
    char_embed_dim: int = field(default=30, metadata={"help": "character embedding dimension"})
    tagger_output: str = field(
        default="crf",
        metadata={"help": "crf (linear-chain CRF) or softmax (each word independently)"},
    )
    tagger_dropout: float = field(
        default=0.0, metadata={"help": "dropout on the states before the output layer"}
    )


@dataclass
class RecurrentTaggerConfig(RecurrentEncoderConfig, TaggerConfig):
    """A tagger with a recurrent stack."""


@dataclass
class SentenceStateTaggerConfig(SentenceStateEncoderConfig, TaggerConfig):
    """A tagger with the sentence-state LSTM."""


@dataclass
class ShortcutTaggerConfig(ShortcutEncoderConfig, TaggerConfig):
    """A tagger with the shortcut-stacked LSTM."""

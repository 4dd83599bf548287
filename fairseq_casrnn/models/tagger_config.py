"""Options of the taggers."""

# No "from __future__ import annotations": fairseq needs the fields' types as objects.
from dataclasses import dataclass, field

from .sentence_config import (
    EmbeddingConfig,
    RecurrentEncoderConfig,
    SentenceStateEncoderConfig,
    ShortcutEncoderConfig,
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

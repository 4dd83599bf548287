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
            "help": "features of a word's spelling, from a convolution over its characters; 0 "
            "for words alone. The data needs spelling/, which this package's prepare.sh writes"
        },
    )
    char_embed_dim: int = field(default=30, metadata={"help": "embedding dimension of characters"})
    tagger_output: str = field(
        default="crf",
        metadata={"help": "crf (a linear chain over the tags) or softmax (each word on its own)"},
    )
    tagger_dropout: float = field(
        default=0.0, metadata={"help": "dropout on the states that the tags are read from"}
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

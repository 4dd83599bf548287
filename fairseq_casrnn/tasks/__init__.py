"""Tasks for fairseq; importing this package registers them."""

from . import (  # noqa: F401
    sentence_classification,
    sequence_tagging,
    stateful_language_modeling,
)

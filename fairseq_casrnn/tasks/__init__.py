"""fairseq tasks that fairseq lacks; importing this registers them."""

from . import (  # noqa: F401
    sentence_classification,
    sequence_tagging,
    stateful_language_modeling,
)

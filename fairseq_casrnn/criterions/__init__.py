"""Criterions for fairseq; importing this package registers them."""

from . import (  # noqa: F401
    dyck,
    fused_cross_entropy,
    sentence_classification,
    sequence_tagging,
)

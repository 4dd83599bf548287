"""Criterions that fairseq lacks; importing this registers them."""

from . import (  # noqa: F401
    dyck,
    fused_cross_entropy,
    sentence_classification,
    sequence_tagging,
)

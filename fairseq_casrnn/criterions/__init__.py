"""Criterions that fairseq lacks; importing this registers them."""

from . import dyck, fused_cross_entropy, sentence_classification  # noqa: F401

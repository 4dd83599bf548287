"""Criterions that fairseq lacks; importing this registers them."""

from . import adaptive_loss, dyck, fused_cross_entropy, sentence_classification  # noqa: F401

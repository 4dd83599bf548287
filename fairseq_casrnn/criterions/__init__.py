"""Criterions that fairseq lacks; importing this registers them."""

from . import dyck, sentence_classification  # noqa: F401

"""fairseq tasks that fairseq lacks; importing this registers them."""

from . import sentence_classification, stateful_language_modeling  # noqa: F401

"""fairseq tasks that fairseq lacks; importing this registers them."""

from . import stateful_language_modeling  # noqa: F401

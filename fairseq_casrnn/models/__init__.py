"""fairseq models, one file a role; importing this registers them."""

from . import architectures, language_model, sentence_encoder, translation  # noqa: F401

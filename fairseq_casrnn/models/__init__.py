"""fairseq models, one file a role; importing this registers them."""

from . import architectures, language_model, translation  # noqa: F401

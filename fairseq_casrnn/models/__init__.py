"""fairseq models, one file a role; importing this registers them."""

from . import architectures, translation  # noqa: F401

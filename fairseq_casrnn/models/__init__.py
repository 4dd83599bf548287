"""fairseq models, one file a role; importing this registers them."""

from . import (  # noqa: F401
    annealing,
    architectures,
    language_model,
    sentence_encoder,
    tagger,
    translation,
)

"""fairseq models, one module per role; importing this package registers them."""

from . import (
    annealing,  # noqa: F401
    architectures,
    language_model,
    sentence_encoder,
    tagger,
    translation,
)


def register_cell(cell: str) -> None:
    """Register all models and architectures of a cell that has been added to FAMILIES."""
    for module in (translation, language_model, sentence_encoder, tagger, architectures):
        module.register_cell(cell)

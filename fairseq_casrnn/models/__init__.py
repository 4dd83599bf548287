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
    translation.MODELS[cell] = translation.register(cell)
    language_model.LANGUAGE_MODELS[f"{cell}_lm"] = language_model.register(cell)
    sentence_encoder.MODELS[cell] = sentence_encoder.register_cell(cell)
    tagger.MODELS[cell] = tagger.register_cell(cell)
    architectures.register_cell(cell)

"""fairseq models, one module per kind; importing this package registers them."""

from ..cells import FAMILIES
from . import architectures, language_model, sentence_encoder, tagger, translation


def register_cell(cell: str) -> None:
    """Register all models and architectures of a cell of FAMILIES."""
    for module in (translation, language_model, sentence_encoder, tagger, architectures):
        module.register_cell(cell)


for _cell in FAMILIES:
    register_cell(_cell)

"""Load the model of ``casrnn serve --path``, of any kind."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_casrnn import kinds
from fairseq_casrnn.data.words import words
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.inference import loading
from fairseq_casrnn.runs.layout import find_data
from fairseq_casrnn.serving.predictors import (
    ClassifierPredictor,
    LanguageModelPredictor,
    Predictor,
    TaggerPredictor,
    TranslationPredictor,
)


def load(args: argparse.Namespace) -> Predictor:
    """The model of the command's options.

    Raises:
        UserError: no checkpoint, a model that cannot be served, or data that cannot be found.
    """
    read = loading.read_checkpoint(args.path)
    if read.kind is kinds.CLASSIFIER:
        return ClassifierPredictor(loading.load_hub(read.kind, read, args.data))
    if read.kind is kinds.TAGGER:
        return TaggerPredictor(loading.load_hub(read.kind, read, args.data))
    if read.kind is kinds.TRANSLATION:
        return TranslationPredictor(loading.load_translator(read, args.data), args.beam)
    if read.kind is kinds.LANGUAGE_MODEL:
        data = find_data(read.file.parent, args.data, read.cfg)
        return load_language_model(read, data)
    name, _ = kinds.architecture(read.cfg.model)
    raise UserError(
        f"{read.name} is of {name}, which casrnn serve does not support; give a classifier, a "
        "tagger, a translation model or a language model"
    )


def load_language_model(read: loading.Checkpoint, data: Path) -> LanguageModelPredictor:
    """A language model, with the tokenizer or SentencePiece model of its data."""
    from fairseq_casrnn.data.subwords import apply_pieces, find_units
    from fairseq_casrnn.models.packed import text_options

    model, task = loading.load_language_model(read, data)
    tokenizer_options = {"tokenizer": "whitespace"} | text_options(data)
    units, file = find_units(data)
    pieces = file.read_bytes() if units == "sentencepiece" else None

    def split(text: str) -> list[str]:
        found = words(text, **tokenizer_options)
        return apply_pieces([" ".join(found)], pieces)[0].split() if pieces else found

    return LanguageModelPredictor(model, task, split)

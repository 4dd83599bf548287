"""The model of ``casrnn serve --path``, of whatever kind it is."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_casrnn.data.command import OPTIONS, read_json
from fairseq_casrnn.data.words import words
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import inference_cli, trained_lm
from fairseq_casrnn.serving.answering import (
    Answering,
    Classifying,
    LanguageModelling,
    Tagging,
    Translating,
)


def load(args: argparse.Namespace) -> Answering:
    """The model that the command's options name.

    Raises:
        UserError: there is none, it cannot be served, or its data are not found.
    """
    from fairseq import checkpoint_utils
    from fairseq.models import FairseqEncoderDecoderModel, FairseqLanguageModel

    import fairseq_casrnn
    from fairseq_casrnn.analysis.tracing import architecture
    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.models.hub import find_dictionaries

    fairseq_casrnn.register()
    path = trained_lm.checkpoint_file(args.path)
    with explained():
        cfg = checkpoint_utils.load_checkpoint_to_cpu(str(path))["cfg"]
    task, (name, model) = cfg.task._name, architecture(cfg.model)
    for kind, answering in (("classifier", Classifying), ("tagger", Tagging)):
        if task == {"classifier": "sentence_classification", "tagger": "sequence_tagging"}[kind]:
            return answering(inference_cli.load(kind, args.path, args.data))
    if issubclass(model, FairseqEncoderDecoderModel):
        return load_translator(args)
    if issubclass(model, FairseqLanguageModel):
        data = find_dictionaries(path.parent, args.data, cfg.task.data, (".",))
        return load_language_model(path, Path(data))
    raise UserError(
        f"{path} is of {name}, which casrnn serve cannot ask; give a classifier, a tagger, a "
        "translation model or a language model"
    )


def load_language_model(path: Path, data: Path) -> LanguageModelling:
    """A language model, with the words or pieces of its data."""
    from fairseq_casrnn.data.sentencepiece_units import apply_pieces, find_model

    model, task = trained_lm.load(path, data)
    options = read_json(data / OPTIONS) if (data / OPTIONS).is_file() else {}
    names = ("tokenizer", "lowercase", "language")
    how = {"tokenizer": "whitespace"} | {n: options[n] for n in names if options.get(n)}
    file = find_model(data)
    pieces = None if file is None else file.read_bytes()

    def split(text: str) -> list[str]:
        found = words(text, **how)
        return apply_pieces([" ".join(found)], pieces)[0].split() if pieces else found

    return LanguageModelling(model, task, split)


def load_translator(args: argparse.Namespace) -> Translating:
    """A translation model, with the tokenizer and the subwords of its data."""
    from fairseq_casrnn.evaluation import trained_translation

    if args.beam < 1:
        raise UserError(f"--beam is {args.beam}; it must be at least 1")
    hub = trained_translation.load(args.path, args.data and Path(args.data))

    def encode(text: str) -> str:
        return hub.apply_bpe(hub.tokenize(" ".join(text.split())))

    def decode(line: str) -> str:
        return hub.detokenize(hub.remove_bpe(line))

    return Translating(hub.models[0], hub.task, encode, decode, args.beam)

"""The model of ``casrnn serve --path``, of whatever kind it is."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from fairseq_casrnn.data.command import OPTIONS, read_json
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import inference_cli, trained_lm
from fairseq_casrnn.serving.answering import (
    Answering,
    Classifying,
    LanguageModelling,
    Tagging,
    Translating,
)

TOKENIZERS = ("moses_lowercase", "space")


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

    fairseq_casrnn.register()
    path = trained_lm.checkpoint_file(args.path)
    with explained():
        cfg = checkpoint_utils.load_checkpoint_to_cpu(str(path))["cfg"]
    task, (name, model) = cfg.task._name, architecture(cfg.model)
    for kind, answering in (("classifier", Classifying), ("tagger", Tagging)):
        if task == {"classifier": "sentence_classification", "tagger": "sequence_tagging"}[kind]:
            check_unused(args, kind)
            return answering(inference_cli.load(kind, args.path, args.data))
    if issubclass(model, FairseqEncoderDecoderModel):
        return load_translator(args, path, cfg.task)
    if issubclass(model, FairseqLanguageModel):
        check_unused(args, "language model")
        return load_language_model(path, find_data(args, path, cfg.task.data, "dict.txt", 1))
    raise UserError(
        f"{path} is of {name}, which casrnn serve cannot ask; give a classifier, a tagger, a "
        "translation model or a language model"
    )


def check_unused(args: argparse.Namespace, kind: str) -> None:
    """Raise UserError for options of translation that a model of another kind is given."""
    for option in ("tokenizer", "bpe_codes"):
        if getattr(args, option) is not None:
            name = option.replace("_", "-")
            raise UserError(f"--{name} is for translation models, and this is a {kind}; drop it")


def find_data(
    args: argparse.Namespace, checkpoint: Path, trained_on: str, pattern: str, count: int
) -> Path:
    """The folder with dictionaries: ``--data``, that of the training, or where it moved to.

    Args:
        args: the command's options.
        checkpoint: the model's file.
        trained_on: the training's data, several folders separated by colons.
        pattern: names of dictionaries.
        count: how many of them there must be.

    Raises:
        UserError: they are in none of the places.
    """
    near = checkpoint.resolve().parent / "../../../data-bin"  # of DIR/out/NAME/seedN
    places = [checkpoint.parent, Path(trained_on.split(":")[0]), Path(os.path.normpath(near))]
    places = [Path(args.data)] if args.data else places
    for place in places:
        if len(list(place.glob(pattern))) >= count:
            return place
    found = " nor in ".join(map(str, places))
    raise UserError(
        f"there is no {pattern} in {found}; name the folder of the training data with --data"
    )


def options_of(data: Path) -> dict:
    """What ``casrnn prepare`` noted in a data folder; nothing where it did not make it."""
    path = data / OPTIONS
    return read_json(path) if path.is_file() else {}


def load_language_model(path: Path, data: Path) -> LanguageModelling:
    """A language model, with the words of its data."""
    model, task = trained_lm.load(path, data)
    options = options_of(data)
    names = ("tokenizer", "lowercase", "language")
    split = {"tokenizer": "whitespace"} | {n: options[n] for n in names if options.get(n)}
    return LanguageModelling(model, task, split)


def load_translator(args: argparse.Namespace, path: Path, cfg) -> Translating:
    """A translation model, with the tokenizer and the subwords of its data."""
    from fairseq_casrnn.analysis import tracing

    if args.beam < 1:
        raise UserError(f"--beam is {args.beam}; it must be at least 1")
    data = find_data(args, path, cfg.data, "dict.*.txt", 2)
    model, task = tracing.load(path, data, translation=True)
    own = options_of(data).get("program") == "casrnn prepare translation"
    tokenizer = args.tokenizer or ("moses_lowercase" if own else "space")
    codes = args.bpe_codes or data.parent / "text" / "bpe.codes"
    codes = codes if args.bpe_codes or codes.is_file() else None
    encode, decode = text_functions(tokenizer, codes, task.cfg)
    return Translating(model, task, encode, decode, args.beam)


def text_functions(
    tokenizer: str, codes: Path | None, cfg
) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """From a text to a line of tokens, and back.

    Args:
        tokenizer: of :data:`TOKENIZERS`.
        codes: merges of subword-nmt, or None.
        cfg: the task's options, with its languages.

    Raises:
        UserError: ``codes`` is no such file.
    """
    from fairseq_casrnn.data.bpe import read_merges
    from fairseq_casrnn.data.tokenizers import MosesLowercase

    merges = None if codes is None else read_merges(codes)
    moses = MosesLowercase(cfg) if tokenizer == "moses_lowercase" else None

    def encode(text: str) -> str:
        line = " ".join(text.split())
        line = moses.encode(line) if moses else line
        return merges.process_line(line) if merges else line

    def decode(line: str) -> str:
        line = f"{line} ".replace("@@ ", "").strip() if merges else line
        return moses.decode(line) if moses else line

    return encode, decode

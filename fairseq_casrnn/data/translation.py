"""Parallel corpora for translation, and their binarised folders.

A prepared folder ``OUT`` holds

* ``OUT/text``: ``SPLIT.tok.LANG`` (tokenised), ``SPLIT.bpe.LANG`` (byte-pair encoded) or
  ``SPLIT.spm.LANG`` (SentencePiece units), ``test.raw.LANG`` (raw, for detokenised BLEU),
  ``bpe.codes`` or ``sentencepiece.model``, and ``prepare.json``;
* ``OUT/data-bin``, which ``fairseq-train`` reads.

Both are built in a temporary folder inside ``OUT`` and renamed at the end, ``data-bin`` last. If
``data-bin`` exists, the folder is complete.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from fairseq_casrnn.console.program import Parser, run_main
from fairseq_casrnn.data.dictionaries import has_words
from fairseq_casrnn.data.folder import (
    SPLITS,
    add_output_arguments,
    build,
    run_fairseq_preprocess,
)
from fairseq_casrnn.data.readers import program_of
from fairseq_casrnn.data.subwords import (
    BPE_CODES,
    SENTENCEPIECE,
    apply_bpe,
    apply_pieces,
    learn_joint_bpe,
    learn_pieces,
)
from fairseq_casrnn.data.text import Pair, write_lines
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.files import write_json


@dataclass
class ParallelCorpus:
    """Tokenised splits of a parallel corpus.

    Args:
        source: source language code, also the extension of its files.
        target: target language code.
        splits: the pairs of train, valid and test.
        raw_test: the test set's pairs before tokenisation.
        notes: counts (pairs read, dropped, …), which are printed and written to prepare.json.
    """

    source: str
    target: str
    splits: dict[str, list[Pair]]
    raw_test: list[Pair]
    notes: dict[str, object] = field(default_factory=dict)

    def check(self) -> None:
        """Raise UserError if a side of a split is empty."""
        for name in SPLITS:
            if not all(any(map(str.strip, side)) for side in sides_of(self.splits[name])):
                raise UserError(f"no sentence pair is left for {name}; check the input files")


def sides_of(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """The source and the target sentences of pairs."""
    return [source for source, _ in pairs], [target for _, target in pairs]


def add_arguments(
    parser: argparse.ArgumentParser, bpe_operations: int = 10000
) -> argparse._MutuallyExclusiveGroup:
    """Options shared by all parallel corpora; returns the group for options of subword units."""
    add_output_arguments(parser)
    parser.add_argument("--workers", type=int, default=1, help="number of tokenisation processes")
    units = parser.add_mutually_exclusive_group()
    units.add_argument(
        "--bpe-operations",
        type=int,
        default=bpe_operations,
        help="number of joint BPE merges, or 0 for words (default: %(default)s)",
    )
    return units


def command(
    description: str,
    read: Callable[[argparse.Namespace], ParallelCorpus],
    options: Callable[[argparse.ArgumentParser], None],
    bpe_operations: int = 10000,
) -> Callable[..., int]:
    """The command line of a reader: ``main(argv)``, which returns the exit status.

    Args:
        description: description in --help.
        read: reads and tokenises the corpus.
        options: adds the reader's own options to the parser.
        bpe_operations: default of ``--bpe-operations``.
    """

    def main(argv: list[str] | None = None) -> int:
        parser = Parser(prog=program_of(read), description=description)
        options(parser)
        add_arguments(parser, bpe_operations)
        args = parser.parse_args(argv)
        return run_main(lambda: prepare(functools.partial(read, args), args))

    return main


def prepare(make_corpus: Callable[[], ParallelCorpus], args: argparse.Namespace) -> None:
    """Read the corpus, encode and binarise it, and move it into place under ``args.out``.

    Args:
        make_corpus: reads and tokenises the raw data.
        args: options of :func:`add_arguments`, and perhaps ``min_count``: rarer tokens become
            <unk>.

    Raises:
        UserError: the data is invalid; ``args.out`` is left unchanged.
    """

    def fill(stage: Path) -> None:
        check_at_least(0, bpe_operations=args.bpe_operations)
        names = ("sentencepiece", "workers", "min_count")
        check_at_least(1, **{name: getattr(args, name, None) for name in names})
        corpus = make_corpus()
        corpus.check()
        kind = _write_text(corpus, stage / "text", args)
        binarise(corpus, kind, stage, getattr(args, "min_count", None))
        _report(corpus, stage)

    build(args, fill)


def _write_text(corpus: ParallelCorpus, text: Path, args: argparse.Namespace) -> str:
    """Write the text, tokenised and in subword units; return the kind to binarise."""
    splits = {name: sides_of(corpus.splits[name]) for name in SPLITS}

    def write(name: str, kind: str, sides: Iterable[Iterable[str]]) -> None:
        for lang, lines in zip((corpus.source, corpus.target), sides, strict=True):
            write_lines(text / f"{name}.{kind}.{lang}", lines)

    for name, sides in splits.items():
        write(name, "tok", sides)
    write("test", "raw", sides_of(corpus.raw_test))
    encode: Callable[[list[str]], list[str]]
    if pieces := getattr(args, "sentencepiece", None):
        print(f"learning {pieces} joint pieces of SentencePiece", flush=True)
        model = learn_pieces(chain(*splits["train"]), pieces)
        (text / SENTENCEPIECE).write_bytes(model)
        kind, encode = "spm", functools.partial(apply_pieces, model=model)
    elif args.bpe_operations:
        codes = text / BPE_CODES
        print(f"learning {args.bpe_operations} joint BPE merges", flush=True)
        learn_joint_bpe(splits["train"], args.bpe_operations, codes)
        kind, encode = "bpe", functools.partial(apply_bpe, codes_path=codes)
    else:
        return "tok"
    for name, sides in splits.items():
        write(name, kind, map(encode, sides))
    return kind


def binarise(corpus: ParallelCorpus, kind: str, stage: Path, min_count: int | None) -> None:
    """Run ``fairseq-preprocess`` on ``text/SPLIT.KIND.LANG``, with a dictionary per language."""
    arguments = ["--destdir", str(stage / "data-bin")]
    arguments += ["--source-lang", corpus.source, "--target-lang", corpus.target]
    for name in SPLITS:
        arguments += [f"--{name}pref", str(stage / "text" / f"{name}.{kind}")]
    if min_count is not None:
        arguments += ["--thresholdsrc", str(min_count), "--thresholdtgt", str(min_count)]
    run_fairseq_preprocess(arguments)


def _report(corpus: ParallelCorpus, stage: Path) -> None:
    notes: dict[str, object] = dict(corpus.notes)
    for name in SPLITS:
        notes[f"{name} pairs"] = len(corpus.splits[name])
    for lang in (corpus.source, corpus.target):
        path = stage / "data-bin" / f"dict.{lang}.txt"
        if not has_words(path):
            raise UserError(f"no token of {lang} occurs --min-count times; give a smaller one")
        with open(path, encoding="utf-8") as types:
            # As fairseq counts: with <s>, <pad>, </s>, <unk> and padding to a multiple of 8.
            notes[f"{lang} dictionary"] = sum(1 for _ in types) + 4
    for key, value in notes.items():
        print(f"{key}: {value}")
    write_json(stage / "text" / "prepare.json", notes)

"""Texts for language models: ``python -m fairseq_casrnn.data.monolingual CORPUS --raw DIR``.

A prepared folder ``OUT`` holds ``OUT/text/{train,valid,test}.txt`` and ``OUT/data-bin``, which
``fairseq-train`` reads. Both are built in a temporary folder inside ``OUT`` and renamed at the end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.console.program import Parser, run_main, show
from fairseq_casrnn.data import symbols
from fairseq_casrnn.data.folder import (
    SPLITS,
    add_output_arguments,
    build,
    run_fairseq_preprocess,
)
from fairseq_casrnn.data.text import read_lines, write_lines
from fairseq_casrnn.errors import UserError, quoted


@dataclass(frozen=True)
class PublishedCorpus:
    """A published corpus and its known totals.

    Attributes:
        title: its name in messages.
        files: possible file names of each split.
        lines: number of lines of each split.
        tokens: number of tokens of each split, including line ends.
        types: number of types in the training text, including the line end.
        where: where to get it.
    """

    title: str
    files: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    tokens: tuple[int, ...]
    types: int
    where: str


CORPORA = {
    "ptb": PublishedCorpus(
        "the Penn Treebank",
        tuple((f"ptb.{split}.txt", f"{split}.txt") for split in SPLITS),
        (42068, 3370, 3761),
        (929589, 73760, 82430),
        10000,
        "Mikolov's text is in simple-examples/data of http://www.fit.vutbr.cz/~imikolov/rnnlm/",
    ),
    "wikitext2": PublishedCorpus(
        "WikiText-2",
        tuple((f"wiki.{split}.tokens", f"{split}.txt") for split in SPLITS),
        (36718, 3760, 4358),
        (2088628, 217646, 245569),
        33278,
        "the word-level files are in wikitext-2-v1.zip (Merity et al. 2016)",
    ),
}


def read_corpus(corpus: PublishedCorpus, raw: Path, any_size: bool = False) -> dict[str, list[str]]:
    """The lines of the three splits, checked against the known totals unless ``any_size``.

    Raises:
        UserError: a file is missing, empty or has other totals.
    """
    splits = {}
    for split, names, *totals in zip(
        SPLITS, corpus.files, corpus.lines, corpus.tokens, strict=True
    ):
        path = next((raw / name for name in names if (raw / name).is_file()), None)
        if path is None:
            raise UserError(f"{raw} holds no {' or '.join(names)}; {corpus.where}")
        lines = read_lines(path, may_be_blank=True)
        if not any(line.strip() for line in lines):
            raise UserError(f"{path} is empty; {corpus.where}")
        splits[split] = lines
        counts = [len(lines), sum(len(line.split()) + 1 for line in lines)]
        if not any_size and counts != totals:
            raise UserError(
                f"{path} has {counts[0]:,} lines and {counts[1]:,} tokens with line ends, but "
                f"{split} of {corpus.title} has {totals[0]:,} and {totals[1]:,}; {corpus.where} "
                "(--any-size accepts other texts)"
            )
    types = len({word for line in splits["train"] for word in line.split()}) + 1
    if not any_size and types != corpus.types:
        raise UserError(
            f"the training text has {types:,} types, but that of {corpus.title} has "
            f"{corpus.types:,}; {corpus.where} (--any-size accepts other texts)"
        )
    return splits


def binarise(
    text: Path, dest: Path, files: Sequence[str] = SPLITS, min_count: int | None = None
) -> None:
    """Run ``fairseq-preprocess`` on ``text/NAME.txt``, without padding the dictionary.

    Args:
        text: folder of the text files.
        dest: output folder.
        files: file names for train, valid and test; commas separate several.
        min_count: rarer words become ``<unk>``.
    """
    command = ["--only-source", "--destdir", str(dest), "--padding-factor", "1"]
    command += ["--thresholdsrc", str(min_count)] if min_count else []
    for split, names in zip(SPLITS, files, strict=True):
        paths = ",".join(str(text / f"{name}.txt") for name in names.split(","))
        command += [f"--{split}pref", paths]
    run_fairseq_preprocess(command)


def prepare(
    make_splits: Callable[[Path], dict[str, list[str]]],
    args: argparse.Namespace,
    min_count: int | None = None,
) -> None:
    """Write and binarise the splits.

    Args:
        make_splits: returns the lines of each split, and may write a model of subword units into
            the new folder that it is given.
        args: options of :func:`.folder.add_output_arguments`.
        min_count: rarer words become ``<unk>``.

    Raises:
        UserError: the data is invalid; ``args.out`` is left unchanged.
    """

    def fill(stage: Path) -> None:
        (stage / "text").mkdir()
        splits = make_splits(stage / "text")
        for split, lines in splits.items():
            for key, value in symbols.escaped_note(map(str.split, lines)).items():
                print(f"{split}: {key}: {value}")
            splits[split] = lines = list(map(symbols.escape_line, lines))
            write_lines(stage / "text" / f"{split}.txt", lines)
            tokens = sum(len(line.split()) + 1 for line in lines)
            print(f"{split}: {len(lines)} lines, {tokens} tokens with line ends")
        binarise(stage / "text", stage / "data-bin", min_count=min_count)
        with open(stage / "data-bin" / "dict.txt", encoding="utf-8", newline="\n") as entries:
            known = {entry.split(" ")[0] for entry in entries}
        if not known:
            raise UserError(f"no word occurs --min-count {min_count} times; give a smaller one")
        print(f"dictionary: {len(known) + 4} entries, 4 of them special")
        if unknown := unknown_words(splits, known | {"<unk>"}):
            show(unknown)

    build(args, fill)


def unknown_words(splits: dict[str, list[str]], known: set[str]) -> list[str]:
    """A message for each split with words that are not ``known``."""
    messages = []
    for split, lines in splits.items():
        unknown = [word for line in lines for word in line.split() if word not in known]
        if unknown:
            messages.append(
                f"{split}: {len(unknown)} words are not in the dictionary, such as "
                f"{quoted(unknown[0])}; they become <unk>, also in perplexities"
            )
    return messages


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.data.monolingual",
        description="Check and binarise a text for language models.",
    )
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("--raw", required=True, type=Path, help="folder with the three text files")
    parser.add_argument(
        "--any-size", action="store_true", help="accept texts of other sizes than the corpus"
    )
    add_output_arguments(parser)
    args = parser.parse_args(argv)
    corpus = CORPORA[args.corpus]
    return run_main(lambda: prepare(lambda _: read_corpus(corpus, args.raw, args.any_size), args))


if __name__ == "__main__":
    sys.exit(main())

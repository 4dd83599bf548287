"""Penn Treebank and WikiText-2: ``python -m fairseq_casrnn.data.corpora.monolingual CORPUS``.

Their texts are checked against the published totals.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.console.program import Parser, run_main
from fairseq_casrnn.data.folder import SPLITS, add_output_arguments
from fairseq_casrnn.data.language_model import prepare
from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError


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


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.data.corpora.monolingual",
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

"""Texts for language models, and their binarised folders.

A prepared folder ``OUT`` holds ``OUT/text/{train,valid,test}.txt`` and ``OUT/data-bin``, which
``fairseq-train`` reads. Both are built in a temporary folder inside ``OUT`` and renamed at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_casrnn.console.program import show
from fairseq_casrnn.data import symbols
from fairseq_casrnn.data.folder import SPLITS, build, run_fairseq_preprocess
from fairseq_casrnn.data.text import write_lines
from fairseq_casrnn.errors import UserError, quoted


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

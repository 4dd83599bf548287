"""Checks of the text files and dictionaries of ``fairseq-preprocess``."""

import os
import re
from argparse import Namespace
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from fairseq_casrnn.data.dictionaries import has_words
from fairseq_casrnn.data.symbols import check_symbols
from fairseq_casrnn.data.text import read_lines, text_lines
from fairseq_casrnn.errors import UserError, quoted

INVISIBLE = re.compile("[\u200b\u2060\ufeff]")  # zero-width space, word joiner, byte-order mark


def check_text(args: Namespace) -> None:
    """Check the files that ``fairseq-preprocess`` will read with the options ``args``.

    fairseq does not compare the lengths of the two sides. It reports invalid UTF-8, without its
    position, after writing half of its output.

    Raises:
        UserError: a file is missing, empty, blank or not UTF-8, or two sides differ in length.
    """
    tests = (args.testpref or "").split(",")
    for prefix, group in groupby(_text_files(args), key=lambda item: item[0]):
        files = [(name, *count_lines(name)) for _, name in group]
        for name, lines, blank in files:
            if lines == 0:
                raise UserError(f"{name} is empty; give a file with at least one sentence")
            if lines != files[0][1]:
                raise UserError(
                    f"{files[0][0]} has {files[0][1]} lines but {name} has {lines}; line n of one "
                    "must be the translation of line n of the other"
                )
            # A test set may lack translations.
            if blank and (prefix not in tests or name == files[0][0]):
                raise UserError(f"{name} has only blank lines; give a file with sentences")
            if args.only_source:
                check_classes(name)


def check_classes(name: str) -> None:
    """Raise UserError if a file of classes, single words, has an invisible character.

    For example, concatenating two files can leave a byte-order mark, which makes a new class.
    """
    with open(name, "rb") as file:
        for number, line in enumerate(text_lines(file, name), start=1):
            word = line.strip()
            if " " in word:
                return  # a text, not classes
            if found := INVISIBLE.search(word):
                raise UserError(
                    f"{name}, line {number}: {quoted(word)} has an invisible character, "
                    f"U+{ord(found[0]):04X}; remove it"
                )


def check_dictionaries(args: Namespace) -> None:
    """Check the dictionaries given to ``fairseq-preprocess``.

    Raises:
        UserError: one has no words, so that all text would become ``<unk>``.
    """
    for option in ("srcdict", "tgtdict"):
        name = getattr(args, option)
        if not name or not os.path.isfile(name):
            continue
        if not any(line.strip() for line in read_lines(name, may_be_blank=True)):
            raise UserError(
                f"{name} holds no words; give --{option} a dictionary that fairseq-preprocess wrote"
            )


def check_new_dictionaries(args: Namespace) -> None:
    """Check the dictionaries that ``fairseq-preprocess`` wrote.

    Raises:
        UserError: one has no words, so that all text has become ``<unk>``.
    """
    sides = {"thresholdsrc": args.source_lang, "thresholdtgt": args.target_lang}
    for option, language in sides.items():
        name = f"dict.{language}.txt" if language else "dict.txt"
        path = Path(args.destdir) / name
        if getattr(args, option) > 0 and path.is_file() and not has_words(path):
            raise UserError(
                f"no word occurs --{option} {getattr(args, option)} times; give a smaller one"
            )


def _text_files(args: Namespace) -> Iterator[tuple[str, str]]:
    """(prefix, file) for the text files of each prefix, the source first."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    for prefixes in (args.trainpref, args.validpref, args.testpref):
        for prefix in prefixes.split(",") if prefixes else ():
            for language in languages:
                yield prefix, f"{prefix}.{language}" if language else prefix


def count_lines(name: str) -> tuple[int, bool]:
    """The number of lines of a text file, and whether all are blank.

    Raises:
        UserError: the file is missing, not UTF-8, or has fairseq's symbols as words.
    """
    count, blank = 0, True

    def counted(lines: Iterator[str]) -> Iterator[str]:
        nonlocal count, blank
        for line in lines:
            count, blank = count + 1, blank and not line.strip()
            yield line

    try:
        with open(name, "rb") as file:
            check_symbols(counted(text_lines(file, name)), name)
    except FileNotFoundError:
        raise UserError(f"{name} does not exist; check the path and the languages") from None
    return count, blank

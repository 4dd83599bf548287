"""How fairseq reads text: as this package does, see :mod:`fairseq_casrnn.data.text`.

fairseq ends a line at a carriage return alone, too, takes a byte-order mark for a part of the first
word, and a word such as ``<pad>`` for padding.
"""

import codecs
import io
import itertools
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy

from fairseq_casrnn.data.symbols import check_symbols, escape_line
from fairseq_casrnn.data.text import decode_lines, read_bytes, text_lines
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.wrapping import program, wrap


def install() -> None:
    """Wrap fairseq's readers; again and again does no harm."""
    from fairseq import binarizer, file_chunker_utils, hub_utils
    from fairseq.data import dictionary, indexed_dataset

    wrap(file_chunker_utils.Chunker, "__enter__", _open_chunk)
    for module in (binarizer, dictionary):
        wrap(module, "find_offsets", _find_offsets)
    wrap(dictionary.Dictionary, "add_from_file", _add_from_file)
    wrap(indexed_dataset.IndexedRawTextDataset, "read_data", _read_raw)
    wrap(hub_utils.GeneratorHubInterface, "binarize", _binarize)


def install_for_interactive() -> None:
    """Wrap what ``fairseq-interactive`` reads its input with."""
    interactive = program("interactive")
    wrap(interactive, "buffered_read", _buffered_read)
    wrap(interactive, "make_batches", _make_batches)


def _open_chunk(original, self) -> Iterator[str]:
    """The lines of a part of a file, for ``fairseq-preprocess``."""
    self.fd = open(self.path, "rb")  # noqa: SIM115 - Chunker closes it
    return _chunk(self.fd, self.start_offset, self.end_offset)


def _chunk(file, start: int, end: int) -> Iterator[str]:
    file.seek(start)
    for line in file:
        begin, start = start, start + len(line)
        if 0 < end < start:
            break
        yield (line if begin else line.removeprefix(codecs.BOM_UTF8)).decode("utf-8")


def _find_offsets(original, filename: str, num_chunks: int) -> list[int]:
    """Where the parts of a file begin that several processes read, and its end."""
    with open(filename, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        offsets = [0]
        for number in range(1, num_chunks):
            file.seek(size // num_chunks * number)
            file.readline()
            offsets.append(file.tell())
    return [*offsets, size]


def _add_from_file(original, self, f) -> None:
    if isinstance(f, str) and os.path.isfile(f):
        lines = decode_lines(read_bytes(f), f)
        name, f = f, io.StringIO("".join(f"{line}\n" for line in lines), newline="\n")
        f.name = name  # for errors
    original(self, f)
    if any(abs(count) >= 2**63 for count in self.count):
        raise UserError(
            f"{getattr(f, 'name', f)} has a count beyond 64 bits; use the dictionary that "
            "fairseq-preprocess wrote"
        )


def _read_raw(original, self, path: str, dictionary) -> None:
    """A text as data set, of ``--dataset-impl raw``."""
    self.lines = decode_lines(read_bytes(path), path)
    check_symbols(self.lines, path)
    options = {"append_eos": self.append_eos, "reverse_order": self.reverse_order}
    self.tokens_list = [
        dictionary.encode_line(line, add_if_not_exist=False, **options).long()
        for line in self.lines
    ]
    self.sizes = numpy.array([len(tokens) for tokens in self.tokens_list])


def _binarize(original, self, sentence: str):
    return original(self, escape_line(sentence))


def _buffered_read(original, input: str, buffer_size: int) -> Iterator[list[str]]:
    stream = sys.stdin.buffer if input == "-" else open(input, "rb")  # noqa: SIM115
    with stream:
        lines = text_lines(stream, "the input" if input == "-" else input)
        while buffer := [line.strip() for line in itertools.islice(lines, buffer_size)]:
            yield buffer


def _make_batches(original, lines, cfg, task, max_positions, encode_fn):
    return original(lines, cfg, task, max_positions, lambda line: escape_line(encode_fn(line)))


# --- text for fairseq-preprocess ---------------------------------------------------------------


def check_text(args: Namespace) -> None:
    """Check the files that ``fairseq-preprocess`` with the options ``args`` will read.

    fairseq does not compare the lengths of the two sides, and finds invalid UTF-8 (without saying
    where) when it has written half of its output.

    Raises:
        UserError: a file is missing, empty, blank or no UTF-8, or two sides differ in length.
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
            # A test set may come without translations.
            if blank and (prefix not in tests or name == files[0][0]):
                raise UserError(f"{name} has only blank lines; give a file with sentences")


def check_dictionaries(args: Namespace) -> None:
    """Check the dictionaries that ``fairseq-preprocess`` with the options ``args`` is given.

    Raises:
        UserError: one has no words, so that all text would become ``<unk>``.
    """
    for option in ("srcdict", "tgtdict"):
        name = getattr(args, option)
        if not name or not os.path.isfile(name):
            continue
        if not any(line.strip() for line in decode_lines(read_bytes(name), name)):
            raise UserError(
                f"{name} holds no words; give --{option} a dictionary that fairseq-preprocess wrote"
            )


def check_made(args: Namespace) -> None:
    """Check the dictionaries that ``fairseq-preprocess`` with the options ``args`` wrote.

    Raises:
        UserError: no word was frequent enough for one, so that all text has become ``<unk>``.
    """
    from fairseq_casrnn.data.dictionaries import has_words

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
    """Lines of a text file.

    Returns:
        their number, and whether all are blank.

    Raises:
        UserError: the file is missing, not UTF-8, or has fairseq's own symbols as words.
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

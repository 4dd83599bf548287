"""Make fairseq read text as this package does, see :mod:`fairseq_casrnn.data.text`.

fairseq also ends a line at a lone carriage return, reads a byte-order mark as part of the first
word, and reads a word such as ``<pad>`` as padding.
"""

import codecs
import io
import itertools
import os
import re
import sys
from collections.abc import Iterator

import numpy

from fairseq_casrnn.data.symbols import check_symbols, escape_line
from fairseq_casrnn.data.text import read_lines, text_lines
from fairseq_casrnn.errors import UserError, quoted


def open_chunk(original, self) -> Iterator[str]:
    """The lines of a file's chunk, for a worker of ``fairseq-preprocess``."""
    self.fd = open(self.path, "rb")  # noqa: SIM115 - Chunker closes it
    return _chunk(self.fd, self.start_offset, self.end_offset)


def _chunk(file, start: int, end: int) -> Iterator[str]:
    file.seek(start)
    for line in file:
        begin, start = start, start + len(line)
        if 0 < end < start:
            break
        yield (line if begin else line.removeprefix(codecs.BOM_UTF8)).decode("utf-8")


def find_offsets(original, filename: str, num_chunks: int) -> list[int]:
    """The offsets of ``num_chunks`` chunks of a file, each at the start of a line, and its end."""
    with open(filename, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        offsets = [0]
        for number in range(1, num_chunks):
            file.seek(size // num_chunks * number)
            file.readline()
            offsets.append(file.tell())
    return [*offsets, size]


def add_from_file(original, self, f) -> None:
    """Read a dictionary from a file.

    Raises:
        UserError: the file is not UTF-8, or not in the format of fairseq-preprocess.
    """
    if isinstance(f, str) and os.path.isfile(f):
        lines = read_lines(f, may_be_blank=True)
        name, f = f, io.StringIO("".join(f"{line}\n" for line in lines), newline="\n")
        f.name = name  # for error messages
    try:
        original(self, f)
    except (ValueError, RuntimeError) as error:
        wrong = _wrong_line(str(error))
        if isinstance(error, UserError) or wrong is None:
            raise
        raise UserError(
            f"{getattr(f, 'name', f)} {wrong}; use the dictionary that fairseq-preprocess wrote"
        ) from None
    if any(abs(count) >= 2**63 for count in self.count):
        raise UserError(
            f"{getattr(f, 'name', f)} has a count beyond 64 bits; use the dictionary that "
            "fairseq-preprocess wrote"
        )


def _wrong_line(message: str) -> str | None:
    """What is wrong with a dictionary's line according to fairseq's message, or None."""
    if found := re.search(r"expected '<token> <cnt> \[flags]': \"(.*)\"", message, re.DOTALL):
        return f"has a line without a count, {quoted(found[1].strip())}"
    if found := re.search(r"Duplicate word found when loading Dictionary: '(.*?)'\. ", message):
        return f"lists {quoted(found[1])} twice"
    return None


def read_raw(original, self, path: str, dictionary) -> None:
    """Read the text of a data set with ``--dataset-impl raw``."""
    self.lines = read_lines(path, may_be_blank=True)
    check_symbols(self.lines, path)
    options = {"append_eos": self.append_eos, "reverse_order": self.reverse_order}
    self.tokens_list = [
        dictionary.encode_line(line, add_if_not_exist=False, **options).long()
        for line in self.lines
    ]
    self.sizes = numpy.array([len(tokens) for tokens in self.tokens_list])


def escape_sentence(original, self, sentence: str):
    """Encode a sentence given to a model in Python; words such as ``<pad>`` are escaped."""
    return original(self, escape_line(sentence))


def read_buffers(original, input: str, buffer_size: int) -> Iterator[list[str]]:
    """The lines that ``fairseq-interactive`` reads, in buffers."""
    stream = sys.stdin.buffer if input == "-" else open(input, "rb")  # noqa: SIM115
    with stream:
        lines = text_lines(stream, "the input" if input == "-" else input)
        while buffer := [line.strip() for line in itertools.islice(lines, buffer_size)]:
            yield buffer


def escape_batches(original, lines, cfg, task, max_positions, encode_fn):
    """Around ``make_batches`` of ``fairseq-interactive``: escape words such as ``<pad>``."""
    return original(lines, cfg, task, max_positions, lambda line: escape_line(encode_fn(line)))

"""Checks of binarised data that fairseq performs late or never."""

import os
import struct

import numpy

from fairseq_casrnn.errors import UserError

# fairseq.data.indexed_dataset.MMapIndexedDataset.Index: magic, version, type code, sentences.
INDEX_HEADER = struct.Struct("<9sQBQ")
INDEX_MAGIC = b"MMIDIDX\x00\x00"
# IndexedDataset: magic, version, type code, bytes of a token, sentences, lengths.
OLD_INDEX_HEADER = struct.Struct("<8sQQQQQ")
OLD_INDEX_MAGIC = b"TNTIDX\x00\x00"
PREPARE_AGAIN = "run fairseq-preprocess again, into a new folder"


def check_binarised(path: str, dictionary=None, impl: str = "mmap", first: int = 0) -> None:
    """Check ``path.idx`` and ``path.bin`` if they exist.

    fairseq only notices a truncated file when it reads the missing part, perhaps hours later. For a
    token beyond the embedding table, its error does not name the file.

    Args:
        path: path of the data set without extension.
        dictionary: the ``fairseq.data.Dictionary`` to use, or None.
        impl: fairseq's name of the format: mmap, lazy or cached.
        first: number in the file that stands for token 0.

    Raises:
        UserError: a file is truncated or damaged, the data set is empty, or the dictionary does not
            fit.
    """
    index, data = f"{path}.idx", f"{path}.bin"
    if not (os.path.isfile(index) and os.path.isfile(data)):
        return
    dtype, tokens = _read_index(index) if impl == "mmap" else _read_old_index(index)
    if tokens == 0:
        raise UserError(f"{data} holds no sentence; {PREPARE_AGAIN}, from text that is not empty")
    if os.path.getsize(data) != tokens * dtype.itemsize:
        raise UserError(
            f"{data} is truncated or does not belong to its .idx file: it has "
            f"{os.path.getsize(data)} bytes instead of {tokens * dtype.itemsize}; {PREPARE_AGAIN}"
        )
    if dictionary is None:
        return
    numbers = numpy.memmap(data, dtype, mode="r")
    largest, smallest = int(numbers.max()) - first, int(numbers.min()) - first
    if smallest < 0 or largest >= len(dictionary):
        wrong = smallest if smallest < 0 else largest
        raise UserError(
            f"{data} contains token number {wrong}, but {_dictionary_file(path)} has only "
            f"{len(dictionary)} entries: the data was made with another dictionary; replace it by "
            "that one"
        )
    # A test set may have blank lines in place of unknown translations.
    if largest <= dictionary.eos() and os.path.basename(path).startswith("train"):
        raise UserError(f"{data} only holds blank lines; {PREPARE_AGAIN}, from other text")


def _read_index(index: str) -> tuple[numpy.dtype, int]:
    """The data type and the number of tokens according to an index file."""
    with open(index, "rb") as file:
        magic, version, code, sentences = _unpack(INDEX_HEADER, file)
        dtype = _type_of(code, index, (magic, version) == (INDEX_MAGIC, 1))
        # A length (int32) and a position (int64) for each sentence.
        _check_size(index, INDEX_HEADER.size + 12 * sentences)
        lengths = numpy.fromfile(file, numpy.int32, sentences).astype(numpy.int64)
        positions = numpy.fromfile(file, numpy.int64, sentences)
    _check_positions(index, lengths, positions, dtype.itemsize)
    return dtype, int(lengths.sum())


def _read_old_index(index: str) -> tuple[numpy.dtype, int]:
    """As :func:`_read_index`, for the format that fairseq calls lazy or cached."""
    with open(index, "rb") as file:
        magic, version, code, width, sentences, count = _unpack(OLD_INDEX_HEADER, file)
        dtype = _type_of(code, index, (magic, version) == (OLD_INDEX_MAGIC, 1))
        # Two positions for each sentence and two final positions, then the lengths; all int64.
        ends = sentences + 1
        _check_size(index, OLD_INDEX_HEADER.size + 8 * (2 * ends + count))
        offsets, positions = (numpy.fromfile(file, numpy.int64, ends) for _ in range(2))
        lengths = numpy.fromfile(file, numpy.int64, count)
    if (width, count) != (dtype.itemsize, sentences) or (offsets != numpy.arange(ends)).any():
        raise _damaged(index)
    _check_positions(index, lengths, positions[:-1], 1)
    if positions[-1] != lengths.sum():
        raise _damaged(index)
    return dtype, int(lengths.sum())


def _check_positions(index: str, lengths, positions, width: int) -> None:
    """Raise UserError unless sentences of these lengths at these positions are contiguous."""
    if (lengths < 0).any() or (positions != (lengths.cumsum() - lengths) * width).any():
        raise _damaged(index)


def _damaged(index: str) -> UserError:
    return UserError(
        f"{index} is damaged: lengths and positions of its sentences do not fit; {PREPARE_AGAIN}"
    )


def _unpack(header: struct.Struct, file) -> tuple:
    """The values of the header, with zeros for missing bytes."""
    return header.unpack(file.read(header.size).ljust(header.size, b"\0"))


def _type_of(code: int, index: str, known: bool) -> numpy.dtype:
    from fairseq.data.indexed_dataset import _code_to_dtype

    kind = numpy.dtype(_code_to_dtype.get(code, float))
    if not known or kind.kind not in "iu":
        raise UserError(
            f"{index} is not an index of fairseq-preprocess; {PREPARE_AGAIN}, or check "
            "--dataset-impl"
        )
    return kind


def _check_size(index: str, expected: int) -> None:
    size = os.path.getsize(index)
    if size != expected:
        raise UserError(
            f"{index} is truncated: it has {size} bytes instead of {expected}; {PREPARE_AGAIN}"
        )


def _dictionary_file(path: str) -> str:
    """The dictionary beside the data ``path``, such as train or train.de-en.de, for messages."""
    folder, name = os.path.split(path)
    for file in (f"dict.{name.rpartition('.')[2]}.txt", "dict.txt"):
        if os.path.isfile(os.path.join(folder, file)):
            return os.path.join(folder, file)
    return "its dictionary"

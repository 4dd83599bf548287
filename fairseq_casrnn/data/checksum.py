"""Checksums of data, which identify a prepared folder."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
READ_BY_TRAINING = ("dict*.txt", "train*", "singletons.txt")


def checksum(chunks: Iterable[bytes]) -> str:
    """CRC and length, as POSIX ``cksum`` prints them.

    Unlike zlib's, this CRC processes the most significant bit first and starts from 0.
    """
    crc, length = 0xFFFFFFFF, 0
    for chunk in chunks:
        crc, length = zlib.crc32(chunk.translate(REVERSED_BITS), crc), length + len(chunk)
    size = length.to_bytes((length.bit_length() + 7) // 8, "little")
    crc = zlib.crc32(size.translate(REVERSED_BITS), crc)
    return f"{int(f'{crc:032b}'[::-1], 2)} {length}"


def contents(paths: Iterable[Path]) -> Iterator[bytes]:
    """The contents of files, concatenated, in chunks."""
    for path in paths:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                yield chunk


def training_files(folder: Path) -> list[Path]:
    """The files in ``folder`` that training reads: dictionaries and the training set."""
    found = [
        Path(inner, name)
        for inner, _, names in os.walk(folder, followlinks=True)
        for name in names
        if any(fnmatchcase(name, pattern) for pattern in READ_BY_TRAINING)
    ]
    return sorted(filter(Path.is_file, found), key=os.fsencode)


def checksum_of_training_data(folder: Path) -> str:
    """The checksum of :func:`training_files`."""
    return checksum(contents(training_files(folder)))

"""What makes a training another one than before: its data, and its options but for its length."""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
READ_BY_TRAINING = ("dict*.txt", "train*", "singletons.txt")
# Options that may change while a training goes on, and whether they have a value.
LENGTH = {
    "--max-epoch": True,
    "--max-update": True,
    "--total-num-update": True,
    "--log-interval": True,
    "--tensorboard-logdir": True,
    "--cpu": False,
}


def checksum(chunks: Iterable[bytes]) -> str:
    """CRC and length, as POSIX ``cksum`` prints them.

    Its CRC takes the most significant bit first and starts from 0, unlike zlib's.
    """
    crc, length = 0xFFFFFFFF, 0
    for chunk in chunks:
        crc, length = zlib.crc32(chunk.translate(REVERSED_BITS), crc), length + len(chunk)
    size = length.to_bytes((length.bit_length() + 7) // 8, "little")
    crc = zlib.crc32(size.translate(REVERSED_BITS), crc)
    return f"{int(f'{crc:032b}'[::-1], 2)} {length}"


def contents(paths: Iterable[Path]) -> Iterator[bytes]:
    """The bytes of files, one after the other."""
    for path in paths:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                yield chunk


def checksum_of_training_data(folder: Path) -> str:
    """The checksum of what training reads in ``folder``: dictionaries, the training set."""
    found = [
        Path(inner, name)
        for inner, _, names in os.walk(folder, followlinks=True)
        for name in names
        if any(fnmatchcase(name, pattern) for pattern in READ_BY_TRAINING)
    ]
    return checksum(contents(sorted(filter(Path.is_file, found), key=os.fsencode)))


def identity(data: Path, options: Sequence[str]) -> str:
    """The text that is kept beside a run's checkpoints.

    Args:
        data: folder of the binarised data.
        options: those of ``fairseq-train`` but for seed and folders.
    """
    lines = [checksum_of_training_data(data)]
    words = iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        if name in LENGTH:
            if LENGTH[name] and not equals:
                next(words, None)
        elif name == "--assignment-path":
            path = Path(value if equals else next(words, ""))
            lines += [name, *([checksum(contents([path]))] if path.is_file() else [])]
        elif name == "--mix":
            behind = [value] if equals else list(itertools.islice(words, 1))
            folders = [Path(one.rpartition(":")[0] or one) for one in behind]
            lines += [word, *(checksum_of_training_data(one) for one in folders if one.is_dir())]
            lines += [] if equals else behind
        else:
            lines.append(word)
    return "\n".join(lines).rstrip("\n")

"""Building a prepared data folder, with its dictionaries and binarised data, atomically."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fairseq_casrnn.data.prepared import is_prepared, save_options
from fairseq_casrnn.diagnostics.files import DISK_FULL
from fairseq_casrnn.errors import UserError

SPLITS = ("train", "valid", "test")


@contextlib.contextmanager
def staging(out: Path) -> Iterator[Path]:
    """A temporary folder in ``out``. ``out`` is created, and removed again if it stays empty.

    Raises:
        UserError: the folder cannot be created.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".prepare-", dir=out))
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        why = error.strerror
        raise UserError(f"--out {out} cannot be written ({why}); give another folder") from None
    try:
        yield stage
    except OSError as error:
        if error.errno in DISK_FULL:
            error.filename, error.filename2 = str(out), None  # instead of a temporary name
        raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--out`` and ``--force``, for :func:`build`."""
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="output folder")
    parser.add_argument("--force", action="store_true", help="prepare again and replace the output")


def build(args: argparse.Namespace, fill: Callable[[Path], None]) -> None:
    """Fill a temporary folder and move its ``data-bin`` and ``text`` to ``args.out`` at the end.

    Args:
        args: the command's options, among them those of :func:`add_output_arguments`.
        fill: writes ``data-bin`` and perhaps ``text`` into a new folder. If it fails, ``args.out``
            is left unchanged.

    Raises:
        UserError: the folder was prepared with other options.
    """
    out = args.out
    if is_prepared(args):
        return
    with staging(out) as stage:
        fill(stage)
        save_options(args, stage / "data-bin")
        # data-bin marks a complete folder: the old one is removed first, the new one moved last.
        names = [name for name in ("data-bin", "text") if (stage / name).exists()]
        for name in names:
            if (out / name).exists():
                os.replace(out / name, stage / f"old-{name}")
        for name in reversed(names):
            os.replace(stage / name, out / name)
    print(f"prepared {out / 'data-bin'}")


def make_label_dictionary(labels: Iterable[str]):
    """A ``fairseq.data.Dictionary`` of the classes, in alphabetical order."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for label in sorted(set(labels)):
        dictionary.add_symbol(label)
    return dictionary


def make_dictionary(counts: Counter, min_count: int = 1):
    """A ``fairseq.data.Dictionary`` of words by descending count.

    Raises:
        UserError: no word occurs ``min_count`` times.
    """
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for word in sorted(counts):
        dictionary.add_symbol(word, counts[word])
    dictionary.finalize(threshold=min_count, padding_factor=1)
    if min_count > 1 and len(dictionary) == dictionary.nspecial:
        raise UserError(
            f"--min-count is {min_count}, but no word occurs that often; give a smaller one"
        )
    return dictionary


def binarise(splits: Mapping[str, Sequence[Sequence[str]]], dictionary, folder: Path) -> None:
    """Write ``SPLIT.bin``, ``SPLIT.idx`` and ``dict.txt``; each sentence ends with </s>."""
    import torch
    from fairseq.data import indexed_dataset

    folder.mkdir(parents=True)
    dictionary.save(str(folder / "dict.txt"))
    for name, sentences in splits.items():
        prefix = str(folder / name)
        builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=len(dictionary))
        for sentence in sentences:
            tokens = [dictionary.index(word) for word in sentence]
            builder.add_item(torch.IntTensor([*tokens, dictionary.eos()]))
        builder.finalize(f"{prefix}.idx")


def find_singletons(sentences: Iterable[Sequence[str]]) -> set[str]:
    """The words that occur once, counting equal sentences once."""
    counts = Counter(word for sentence in set(map(tuple, sentences)) for word in sentence)
    return {word for word, count in counts.items() if count == 1}

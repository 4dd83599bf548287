"""A prepared data folder: its dictionaries and binarised parts, built whole or not at all."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fairseq_casrnn.data.command import check_min_count, is_prepared, keep_options, show
from fairseq_casrnn.diagnostics.files import DISK_FULL
from fairseq_casrnn.errors import UserError


@contextlib.contextmanager
def staging(out: Path) -> Iterator[Path]:
    """A temporary folder in ``out``, which is made, and goes again if nothing has come into it.

    Raises:
        UserError: there can be no such folder.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".prepare-", dir=out))
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        why = error.strerror
        raise UserError(f"--out {out} is no folder to fill ({why}); give another") from None
    try:
        yield stage
    except OSError as error:
        if error.errno in DISK_FULL:
            error.filename, error.filename2 = str(out), None  # not a name in the stage
        raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()


@contextlib.contextmanager
def prepared_folder(out: Path) -> Iterator[Path]:
    """A temporary folder to fill with ``text`` and ``data-bin``; they are moved to ``out`` then."""
    with staging(out) as stage:
        yield stage
        # data-bin marks a finished folder: the old one goes first, the new one comes last.
        for name in ("data-bin", "text"):
            if (out / name).exists():
                os.replace(out / name, stage / f"old-{name}")
        for name in ("text", "data-bin"):
            os.replace(stage / name, out / name)


def build(args: argparse.Namespace, fill: Callable[[Path], dict[str, object]]) -> None:
    """Fill a temporary folder and rename it ``args.out/data-bin`` at the end.

    Args:
        args: the command's options; ``out`` is the folder to fill.
        fill: writes the binarised parts into a new folder and returns what is to be printed and
            kept in its ``prepare.json``. If it fails, nothing new is left under ``args.out``.

    Raises:
        UserError: the folder was prepared with other options, or ``--min-count`` is not positive.
    """
    out = args.out
    if is_prepared(args):
        return
    check_min_count(args)
    with staging(out) as stage:
        notes = fill(stage / "data-bin")
        show(f"{key}: {value}" for key, value in notes.items())
        write_json(stage / "data-bin" / "prepare.json", notes)
        keep_options(args, stage / "data-bin")
        if (out / "data-bin").exists():
            os.replace(out / "data-bin", stage / "old")
        os.replace(stage / "data-bin", out / "data-bin")
    print(f"prepared {out / 'data-bin'}")


def make_label_dictionary(labels: Iterable[str]):
    """A ``fairseq.data.Dictionary`` of the classes, by the alphabet, whatever their counts."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for label in sorted(set(labels)):
        dictionary.add_symbol(label)
    return dictionary


def make_dictionary(counts: Counter, min_count: int = 1):
    """A ``fairseq.data.Dictionary``, the most frequent first."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for word in sorted(counts):
        dictionary.add_symbol(word, counts[word])
    dictionary.finalize(threshold=min_count, padding_factor=1)
    if min_count > 1 and len(dictionary) == dictionary.nspecial:
        raise UserError(
            f"--min-count is {min_count}, and no word occurs so often; give a smaller one"
        )
    return dictionary


def binarise(splits: Mapping[str, Sequence[Sequence[str]]], dictionary, folder: Path) -> None:
    """Write ``SPLIT.bin``, ``SPLIT.idx`` and ``dict.txt``, each sentence ended by </s>."""
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


def write_singletons(sentences: Iterable[Sequence[str]], folder: Path) -> None:
    """``singletons.txt``: the words that occur once in the sentences, equal ones counting once."""
    counts = Counter(word for sentence in set(map(tuple, sentences)) for word in sentence)
    rare = sorted(word for word, count in counts.items() if count == 1)
    (folder / "singletons.txt").write_text("".join(f"{word}\n" for word in rare), "utf-8")


def write_json(path: Path, content) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

"""What fairseq would notice late, on some devices only, or never, looked at before it starts.

Each check wraps one function of fairseq and raises a UserError; a right input passes unchanged.
"""

import contextlib
import functools
import os
import struct
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy

from fairseq_casrnn.errors import UserError

# Of fairseq.data.indexed_dataset.MMapIndexedDataset.Index: magic, version, type code, sentences.
INDEX_HEADER = struct.Struct("<9sQBQ")
INDEX_MAGIC = b"MMIDIDX\x00\x00"
PREPARE_AGAIN = "run fairseq-preprocess again, into a new folder"


def install() -> None:
    """Wrap fairseq's functions; again and again does no harm."""
    from fairseq import checkpoint_utils
    from fairseq.data import indexed_dataset

    wrap(indexed_dataset, "make_dataset", _make_dataset)
    wrap(checkpoint_utils, "load_checkpoint", _load_checkpoint)


def install_for_program(path: str) -> None:
    """What concerns one of fairseq's programs only; ``path`` is ``sys.argv[0]`` of any of them."""
    program = Path(path).stem.removeprefix("fairseq-")
    if program == "preprocess":
        # Its functions are those of __main__ when it was started with python -m.
        module = sys.modules.get("fairseq_cli.preprocess") or sys.modules["__main__"]
        wrap(module, "main", _preprocess)
    if program == "interactive":
        # As fairseq reads a file. In the C locale Python lets invalid bytes pass, as characters
        # that no dictionary holds.
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")


def wrap(module, name: str, check) -> None:
    """Put ``check(original, *args, **kwargs)`` in the place of ``module.name``, once."""
    original = getattr(module, name, None)
    if original is None or getattr(original, "_checks", False):
        return
    wrapper = functools.wraps(original)(functools.partial(check, original))
    wrapper._checks = True
    setattr(module, name, wrapper)


# --- binarised data ----------------------------------------------------------------------------


def _make_dataset(original, path, impl, fix_lua_indexing=False, dictionary=None):
    if impl == "mmap":
        check_binarised(path, dictionary)
    return original(path, impl, fix_lua_indexing, dictionary)


def check_binarised(path: str, dictionary=None) -> None:
    """Check ``path.idx`` and ``path.bin``, as far as they are there and memory-mapped.

    fairseq finds a truncated file when it comes to the missing part, which can be hours later, and
    a token beyond the embedding table never says which file it is from (on a GPU: nothing at all).

    Args:
        path: data set without its two endings.
        dictionary: the ``fairseq.data.Dictionary`` it will be used with, or None.

    Raises:
        UserError: a file is truncated, the set is empty, or the dictionary is another one's.
    """
    index, data = f"{path}.idx", f"{path}.bin"
    if not (os.path.isfile(index) and os.path.isfile(data)):
        return
    dtype, tokens = _read_index(index)
    if tokens == 0:
        raise UserError(f"{data} holds no sentence; {PREPARE_AGAIN}, from text that is not empty")
    if os.path.getsize(data) != tokens * dtype.itemsize:
        raise UserError(
            f"{data} is truncated or does not belong to its .idx file: it has "
            f"{os.path.getsize(data)} bytes instead of {tokens * dtype.itemsize}; {PREPARE_AGAIN}"
        )
    largest = int(numpy.memmap(data, dtype, mode="r").max())
    if dictionary is not None and largest >= len(dictionary):
        raise UserError(
            f"{data} contains token number {largest}, but {_dictionary_file(path)} has only "
            f"{len(dictionary)} entries: it is not the dictionary the data was made with; "
            "put that one in its place"
        )


def _read_index(index: str) -> tuple[numpy.dtype, int]:
    """The type and the number of tokens that an index file announces."""
    from fairseq.data.indexed_dataset import _code_to_dtype

    with open(index, "rb") as file:
        header = file.read(INDEX_HEADER.size)
        magic, _, code, sentences = (
            INDEX_HEADER.unpack(header) if len(header) == INDEX_HEADER.size else (b"", 0, 0, 0)
        )
        # A length (int32) and a position (int64) for each sentence.
        expected = INDEX_HEADER.size + 12 * sentences
        if magic != INDEX_MAGIC or code not in _code_to_dtype:
            raise UserError(f"{index} is not an index of fairseq-preprocess; {PREPARE_AGAIN}")
        if os.path.getsize(index) != expected:
            raise UserError(
                f"{index} is truncated: it has {os.path.getsize(index)} bytes instead of "
                f"{expected}; {PREPARE_AGAIN}"
            )
        lengths = numpy.fromfile(file, numpy.int32, sentences)
    return numpy.dtype(_code_to_dtype[code]), int(lengths.sum(dtype=numpy.int64))


def _dictionary_file(path: str) -> str:
    language = os.path.basename(path).rpartition(".")[2]  # train.de-en.de
    file = os.path.join(os.path.dirname(path), f"dict.{language}.txt")
    return file if os.path.isfile(file) else "its dictionary"


# --- text for fairseq-preprocess ---------------------------------------------------------------


def _preprocess(original, args: Namespace):
    check_text(args)
    with _undone_on_failure(Path(args.destdir)):
        return original(args)


def check_text(args: Namespace) -> None:
    """Check the files that ``fairseq-preprocess`` with the options ``args`` will read.

    fairseq does not compare the lengths of the two sides, and finds invalid UTF-8 (without saying
    where) when it has written half of its output.

    Raises:
        UserError: a file is missing, empty or no UTF-8, or two sides differ in length.
    """
    for _, group in groupby(_text_files(args), key=lambda item: item[0]):
        files = [(name, count_lines(name)) for _, name in group]
        for name, lines in files:
            if lines == 0:
                raise UserError(f"{name} is empty; give a file with at least one sentence")
            if lines != files[0][1]:
                raise UserError(
                    f"{files[0][0]} has {files[0][1]} lines but {name} has {lines}; line n of one "
                    "must be the translation of line n of the other"
                )


def _text_files(args: Namespace) -> Iterator[tuple[str, str]]:
    """(prefix, file) for the text files of each prefix."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    for prefixes in (args.trainpref, args.validpref, args.testpref):
        for prefix in prefixes.split(",") if prefixes else ():
            for language in languages:
                yield prefix, f"{prefix}.{language}" if language else prefix


def count_lines(name: str) -> int:
    r"""Lines of a text file as fairseq reads it: they end at ``\n``, ``\r`` or both.

    Raises:
        UserError: the file is missing or not UTF-8.
    """
    lines = 0
    try:
        with open(name, "rb") as file:
            for piece in file:
                piece.decode("utf-8")
                lines += len(piece.splitlines())
    except FileNotFoundError:
        raise UserError(f"{name} does not exist; check the path and the languages") from None
    except UnicodeDecodeError as error:
        line = lines + len(error.object[: error.start].splitlines() or [b""])
        raise UserError(
            f"{name}, line {line} is not valid UTF-8; convert the file to UTF-8"
        ) from None
    return lines


@contextlib.contextmanager
def _undone_on_failure(folder: Path):
    """Remove what was written to ``folder`` if anything fails, a full disk or Ctrl-C say."""
    before = _versions(folder)
    try:
        yield
    except BaseException:
        for file, version in _versions(folder).items():
            if before.get(file) != version and file.name != "preprocess.log":
                file.unlink(missing_ok=True)
        raise


def _versions(folder: Path) -> dict[Path, int]:
    files = folder.iterdir() if folder.is_dir() else ()
    return {file: file.stat().st_mtime_ns for file in files if file.is_file()}


# --- checkpoints -------------------------------------------------------------------------------


def _load_checkpoint(original, cfg, trainer, **kwargs):
    """fairseq trains a new model where ``--restore-file`` names no file."""
    from fairseq.file_io import PathManager

    # checkpoint_last.pt may be missing: scripts give it to the first run and to the next ones.
    name = cfg.restore_file
    last = os.path.basename(name).startswith("checkpoint_last")
    if not last and not trainer.checkpoint_suffix and not PathManager.isfile(name):
        raise UserError(
            f"checkpoint {name} does not exist; check --restore-file, or drop it to train a new "
            "model"
        )
    return original(cfg, trainer, **kwargs)

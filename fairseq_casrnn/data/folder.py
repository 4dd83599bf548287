"""Building a prepared data folder atomically, and ``fairseq-preprocess`` for its content."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from fairseq_casrnn import register
from fairseq_casrnn.console.program import captured_log
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


def run_fairseq_preprocess(command: list[str]) -> None:
    """Run ``fairseq-preprocess`` with the options ``command`` in this process.

    Its log is not printed; it is in the output folder.
    """
    with captured_log():
        from fairseq import options
        from fairseq_cli import preprocess

        register()  # fairseq reads text as this package does
        try:
            preprocess.main(options.get_preprocessing_parser().parse_args(command))
        finally:
            for handler in list(preprocess.logger.handlers):  # the log file
                preprocess.logger.removeHandler(handler)
                handler.close()

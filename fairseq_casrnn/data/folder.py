"""Making a folder of prepared data atomically, unless it exists already."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from fairseq_casrnn import register
from fairseq_casrnn.console.program import captured_log
from fairseq_casrnn.data.checksum import checksum, contents
from fairseq_casrnn.data.prepared import OPTIONS_FILE, prepared_options
from fairseq_casrnn.diagnostics.files import DISK_FULL
from fairseq_casrnn.errors import UserError, as_option

SPLITS = ("train", "valid", "test")
INPUT_CHECKSUMS = "checksums of the input files"  # key of OPTIONS_FILE
# Options that do not change the result, and paths, since files may have moved.
IGNORED_OPTIONS = {"out", "force", "workers", "raw", "archive", "set"}


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


def is_prepared(args: argparse.Namespace) -> bool:
    """Whether ``args.out`` already holds the data that ``args`` ask for; if so, print that.

    Raises:
        UserError: the folder was prepared with other options, from another corpus, or from input
            files that have changed since.
    """
    folder = args.out / "data-bin"
    source = ""
    if args.force or not folder.exists():
        return False
    if (folder / OPTIONS_FILE).is_file():
        before = {"words_of": None, "vectors": None, **prepared_options(args.out)}
        now = chosen_options(args)
        programs = [options.get("program") for options in (before, now)]
        if None not in programs and programs[0] != programs[1]:
            raise UserError(
                f"{args.out} holds another corpus ({programs[0]}), not {programs[1]}; "
                "give another --out, or --force to replace it"
            )
        source = f", from {before['source']}" if "source" in before else ""
        other = [name for name in now if name in before and before[name] != now[name]]
        if other:
            option = as_option(other[0])
            old, new = (as_typed(options[other[0]]) for options in (before, now))
            was = f"with {option} {old}" if old else f"without {option}"
            raise UserError(
                f"{args.out} was prepared {was}, not {new or 'without it'}; give another --out, or "
                "--force to prepare it again"
            )
        check_unchanged(args, before.get(INPUT_CHECKSUMS))
    print(f"{args.out} is already prepared{source}; --force prepares it again")
    return True


def as_typed(value: object) -> str:
    """An option's value as on a command line; empty for None."""
    values = value if isinstance(value, list) else [value]
    return " ".join(str(one) for one in values if one is not None)


def input_files(args: argparse.Namespace) -> Iterator[Path]:
    """The files or folders that the options name."""
    for option in SPLITS:
        value = getattr(args, option, None)
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path):
                yield path


def is_stream(path: Path) -> bool:
    """Whether a path is a pipe such as ``/dev/stdin``, which can be read only once."""
    return path.exists() and not path.is_file() and not path.is_dir()


def checksum_of(path: Path) -> str:
    """The checksum of a file, or of the names and contents of all files in a folder."""
    if not path.is_dir():
        return checksum(contents([path]))
    files = sorted(one for one in path.rglob("*") if one.is_file())
    names = "\n".join(str(one.relative_to(path)) for one in files)
    return checksum([names.encode("utf-8", "surrogateescape"), *contents(files)])


def check_unchanged(args: argparse.Namespace, before: object) -> None:
    """Raise UserError if an input file differs from that with which ``args.out`` was prepared.

    A pipe counts as different.

    Args:
        args: the command's options.
        before: the checksums at that time; folders of older versions have none.
    """
    known = before if isinstance(before, dict) else {}
    for path in input_files(args):
        if is_stream(path):
            raise UserError(
                f"{path} is not a file, so it cannot be compared with the text from which "
                f"{args.out} was prepared; add --force to prepare it again, or give another --out"
            )
        kept = known.get(str(path.resolve()))
        if kept is not None and path.exists() and kept != checksum_of(path):
            raise UserError(
                f"{path} has changed since {args.out} was prepared; add --force to prepare it "
                "again, or give another --out"
            )


def save_options(args: argparse.Namespace, folder: Path) -> None:
    """Write the options to ``folder``, a new ``data-bin``, for :func:`is_prepared`."""
    source = getattr(args, "raw", None) or getattr(args, "archive", None)
    known: dict[str, object] = {} if source is None else {"source": str(Path(source).resolve())}
    files = [path for path in input_files(args) if path.exists() and not is_stream(path)]
    if files:
        known[INPUT_CHECKSUMS] = {str(path.resolve()): checksum_of(path) for path in files}
    text = json.dumps(chosen_options(args) | known, indent=1) + "\n"
    (folder / OPTIONS_FILE).write_text(text, encoding="utf-8")


def chosen_options(args: argparse.Namespace) -> dict:
    """The options that determine the data, as JSON values."""
    chosen = {
        name: value
        for name, value in vars(args).items()
        if name not in IGNORED_OPTIONS and not callable(value)  # casrnn stores its function there
    }
    return json.loads(json.dumps(chosen, default=location))


def location(path: str | os.PathLike) -> str:
    """The absolute path of a file or folder; that of a pipe as it is typed."""
    return str(path) if is_stream(Path(path)) else str(Path(path).resolve())


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

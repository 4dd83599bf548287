"""Shared parts of the command lines: errors in one sentence, status 2, options of prepared data."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import NoReturn

from fairseq_casrnn import output, register
from fairseq_casrnn.data.input_files import check_unchanged, checksums
from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.diagnostics.files import disk_full
from fairseq_casrnn.diagnostics.memory import out_of_memory
from fairseq_casrnn.errors import UserError, as_option, one_sentence, printable


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line and accepts no abbreviations."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, **kwargs)
        self.set_defaults(program=self.prog.split(".")[-1])

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(2, f"error: {one_sentence(message)}; see --help\n")


@contextlib.contextmanager
def captured_log() -> Iterator[io.StringIO]:
    """Collect the log at INFO and above instead of printing it, and ignore warnings.

    fairseq's programs log their whole configuration, and hydra and torch warn about how fairseq
    uses them.
    """
    log, root = io.StringIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [logging.StreamHandler(log)]
    root.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield log
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


OPTIONS = "options.json"
FILES = "checksums of the input files"  # key of OPTIONS
# Options that do not change the result, and paths, since files may have moved.
IGNORED_OPTIONS = {"out", "force", "workers", "raw", "archive", "set"}
INTERRUPTED = 130  # exit status after Ctrl-C: 128 + SIGINT


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
    if (folder / OPTIONS).is_file():
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
            name = other[0]
            option = as_option(name)
            was = f"without {option}" if before[name] is None else f"with {option} {before[name]}"
            wanted = "without it" if now[name] is None else now[name]
            raise UserError(
                f"{args.out} was prepared {was}, not {wanted}; give another --out, or --force to "
                "prepare it again"
            )
        check_unchanged(args, before.get(FILES))
    print(f"{args.out} is already prepared{source}; --force prepares it again")
    return True


def read_json(path: Path) -> dict:
    """Read a JSON object from a file of a prepared folder.

    Raises:
        UserError: the file is damaged.
    """
    try:
        content = parse_json(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); prepare again with --force") from None
    return content


def prepared_folder(name: str) -> Path:
    """The prepared folder DIR for the argument ``DIR`` or ``DIR/data-bin`` of a command."""
    folder = Path(name)
    inner = folder.absolute().name == "data-bin" and not (folder / "data-bin").is_dir()
    return folder.parent if inner else folder


def binarised_folder(name: str | PathLike) -> Path:
    """``DIR/data-bin`` for the folder DIR of ``casrnn prepare``; otherwise the folder itself."""
    folder, inner = Path(name), Path(name, "data-bin")
    has_dictionary = any(folder.glob("dict*.txt"))
    return inner if inner.is_dir() and not has_dictionary else folder


def prepared_options(folder: str | Path) -> dict:
    """The options with which a folder was prepared; none if it does not say.

    Raises:
        UserError: its file of options is damaged.
    """
    path = Path(folder, "data-bin", OPTIONS)
    return read_json(path) if path.is_file() else {}


def save_options(args: argparse.Namespace, folder: Path) -> None:
    """Write the options to ``folder``, a new ``data-bin``, for :func:`is_prepared`."""
    source = getattr(args, "raw", None) or getattr(args, "archive", None)
    known: dict[str, object]
    known = {} if source is None else {"source": str(Path(source).resolve())}
    if files := checksums(args):
        known[FILES] = files
    text = json.dumps(chosen_options(args) | known, indent=1) + "\n"
    (folder / OPTIONS).write_text(text, encoding="utf-8")


def chosen_options(args: argparse.Namespace) -> dict:
    """The options that determine the data, as JSON values."""
    chosen = {
        name: value
        for name, value in vars(args).items()
        if name not in IGNORED_OPTIONS and not callable(value)  # casrnn stores its function there
    }
    return json.loads(json.dumps(chosen, default=lambda path: str(Path(path).resolve())))


def check_min_count(args: argparse.Namespace) -> None:
    """Raise UserError if ``--min-count`` is not positive."""
    if args.min_count < 1:
        raise UserError(f"--min-count is {args.min_count}; it must be at least 1")


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


def run_main(main: Callable[[], None]) -> int:
    """Call ``main`` and return the exit status.

    A UserError or an error of the system is printed as one sentence and gives 2. Ctrl-C gives
    :data:`INTERRUPTED`, a closed pipe (``… | head``) :data:`.output.BROKEN_PIPE`.
    """
    try:
        output.prepare()
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        output.give_up()
        return output.BROKEN_PIPE
    except OSError as err:
        output.flush()
        print(f"error: {format_os_error(err)}", file=sys.stderr)
        return 2
    except (UserError, MemoryError, RuntimeError) as err:
        sentence = str(err) if isinstance(err, UserError) else out_of_memory(err)
        if sentence is None:
            raise
        print(f"error: {sentence}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def show(lines: Iterable[str]) -> None:
    """Print lines that contain words or file names, with control characters escaped."""
    print("\n".join(map(printable, lines)), flush=True)


def format_os_error(err: OSError) -> str:
    """The system's error message, with the name of the file."""
    if sentence := disk_full(err, err.filename) or out_of_memory(err):
        return sentence
    where = f"{err.filename}: " if err.filename else ""
    return one_sentence(f"{where}{err.strerror or err}")

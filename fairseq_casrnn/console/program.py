"""Command-line programs: arguments, errors in one sentence, exit status, logs."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from fairseq_casrnn.console import output
from fairseq_casrnn.diagnostics.files import disk_full, out_of_memory
from fairseq_casrnn.errors import UserError, one_sentence, printable

INTERRUPTED = 130  # exit status after Ctrl-C: 128 + SIGINT


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line and accepts no abbreviations."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, **kwargs)
        self.set_defaults(program=self.prog.split(".")[-1])  # recorded in prepared folders

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(2, f"error: {one_sentence(message)}; see --help\n")


def split_at_dashes(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before ``--``, and those after it, which argparse would read as positional."""
    at = argv.index("--") if "--" in argv else len(argv)
    return list(argv[:at]), list(argv[at + 1 :])


def listed(text: str) -> list[str]:
    """The items of a list separated by commas or spaces."""
    return text.replace(",", " ").split()


def check_numbers(option: str, values: Iterable[str]) -> None:
    """Raise UserError if a value of an option is not a positive number."""
    for value in values:
        if not re.fullmatch("[1-9][0-9]*", value, re.ASCII):
            raise UserError(f"{option} must be a positive number, not '{value}'")


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


def run_main(main: Callable[[], object]) -> int:
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

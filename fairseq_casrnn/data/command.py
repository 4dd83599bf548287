"""What the command lines of ``data`` and ``evaluation`` share: errors in one sentence, status 2."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import NoReturn

from fairseq_casrnn.errors import UserError


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a wrong option in one line and accepts no abbreviations."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(2, f"error: {message}; see --help\n")


@contextlib.contextmanager
def captured_log() -> Iterator[io.StringIO]:
    """Collect everything that is logged at INFO and above; print neither it nor warnings.

    fairseq's programs print their whole configuration, and hydra and torch warn of how fairseq
    uses them: of no use beside the few lines of a recipe.
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


def run_main(main: Callable[[], None]) -> int:
    """Call ``main``; print a UserError or an error of the system as one sentence, return 2."""
    try:
        main()
    except UserError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except OSError as err:
        print(f"error: {of_system(err)}", file=sys.stderr)
        return 2
    return 0


def of_system(err: OSError) -> str:
    """What the system refused, and of which file."""
    where = f"{err.filename}: " if err.filename else ""
    return f"{where}{err.strerror or err}"

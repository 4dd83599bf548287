"""Handle standard output that is closed, full, a closed pipe, or in another encoding."""

import atexit
import io
import logging
import os
import sys

from fairseq_casrnn.diagnostics.files import READER_ENDED, disk_full
from fairseq_casrnn.errors import UserError

BROKEN_PIPE = 141  # exit status if the reader of a pipe has gone: 128 + SIGPIPE


def prepare() -> None:
    """Set up UTF-8 in any locale, before anything is printed.

    Raises:
        UserError: standard output is closed.
    """
    if sys.stdout is None:
        raise UserError("standard output is closed; open it, or send it to a file or to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names that are not UTF-8 are printed as their bytes.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def give_up() -> None:
    """Discard buffered output, so that Python reports no error when it exits."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def flush() -> OSError | None:
    """Write buffered output; if that fails, discard all output and return the error."""
    try:
        sys.stdout.flush()
    except OSError as error:
        give_up()
        return error
    return None


def flush_at_exit() -> None:
    """Exit with status 1 and one sentence if the last output cannot be written.

    fairseq's programs would exit with status 0 or print a traceback.
    """
    logging.raiseExceptions = False  # print no traceback for lines that cannot be logged
    atexit.register(_last_flush)


def _last_flush() -> None:
    if error := flush():
        broken = isinstance(error, BrokenPipeError)
        print(f"error: {READER_ENDED if broken else disk_full(error)}", file=sys.stderr)
        logging.shutdown()
        os._exit(1)  # the only way to change the status at exit

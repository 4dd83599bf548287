"""Standard output, which may be closed, full, in another encoding, or read by nobody to its end."""

import atexit
import io
import logging
import os
import sys

from fairseq_casrnn.diagnostics.files import READER_ENDED, disk_full
from fairseq_casrnn.errors import UserError

BROKEN_PIPE = 141  # status of a program whose reader has gone, as the shell reports SIGPIPE


def prepare() -> None:
    """Before anything is printed: text goes out in UTF-8, whatever the locale.

    Raises:
        UserError: standard output is closed.
    """
    if sys.stdout is None:
        raise UserError("standard output is closed; open it, or send it to a file or to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files that are not UTF-8 go out as the bytes they are.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def give_up() -> None:
    """Send what is still to be written nowhere, so that Python does not complain at its exit."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def flush() -> OSError | None:
    """Write what is still to be written; the error if that fails, and all later output goes."""
    try:
        sys.stdout.flush()
    except OSError as error:
        give_up()
        return error
    return None


def flush_at_exit() -> None:
    """End with status 1 and one sentence where the last of the output cannot be written.

    For fairseq's programs, which would end with status 0 or Python's own message about it.
    """
    logging.raiseExceptions = False  # a traceback for each line that cannot be logged
    atexit.register(_last_flush)


def _last_flush() -> None:
    if error := flush():
        broken = isinstance(error, BrokenPipeError)
        print(f"error: {READER_ENDED if broken else disk_full(error, None)}", file=sys.stderr)
        logging.shutdown()
        os._exit(1)  # nothing else changes the status here

"""What fairseq's programs print when something is wrong."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import NoReturn

from fairseq_casrnn import output
from fairseq_casrnn.diagnostics.explain import explain, explained
from fairseq_casrnn.diagnostics.names import shorten_choices

from .programs import is_hydra_train


def set_excepthook() -> None:
    """Print ``error: <one sentence>`` for mistakes that ``explain`` knows, else the traceback.

    Of Ctrl-C, which is none, that the program was interrupted.
    ``CASRNN_TRACEBACK=1`` in the environment shows every traceback.
    """
    sys.excepthook = _explaining(sys.excepthook)
    if is_hydra_train():
        # hydra prints a shortened traceback itself and exits unless told to let errors through.
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")


def _explaining(previous: Callable) -> Callable:
    def hook(kind, error, traceback):
        sentence = None
        if os.environ.get("CASRNN_TRACEBACK") != "1":
            known = explain(error)
            stopped = issubclass(kind, KeyboardInterrupt)
            sentence = "interrupted" if stopped else known and f"error: {known}"
        if sentence is None:
            previous(kind, error, traceback)
        else:
            if sys.stdout is not None:
                output.flush()
            print(sentence, file=sys.stderr)
        wait_for_batches()

    return hook


def wait_for_batches(seconds: float = 2.0) -> None:
    """Wait until fairseq's threads that collate batches ahead are done, or their queues are full.

    Python stops such a thread at its end; inside torch that aborts the process.
    """
    from fairseq.data.iterators import BackgroundConsumer

    end = time.monotonic() + seconds
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer):
            while thread.is_alive() and not thread._queue.full() and time.monotonic() < end:
                thread.join(0.01)


def explained_worker(*args):
    """Replaces fairseq's ``distributed_main``, which runs in one process for each GPU.

    Of an error there, the first process learns no more than the traceback's text. So what can be
    explained becomes a UserError, whose sentence it finds in that text.
    """
    from fairseq.distributed import utils as distributed

    # A spawned process may get here before it has registered this package.
    current = distributed.distributed_main
    with explained():
        getattr(current, "__wrapped__", current)(*args)


def shorten_usage(parser: argparse.ArgumentParser, *args, **kwargs) -> None:
    """Have fairseq's parser not print its hundreds of options before what is wrong with one."""

    def error(message: str) -> NoReturn:
        parser.exit(2, f"error: {shorten_choices(message)} (--help lists every option)\n")

    if isinstance(parser, argparse.ArgumentParser):  # and not a group of options
        parser.error = error  # type: ignore[method-assign]


def filter_logs() -> None:
    """Leave out what two loggers of fairseq print before an error; ``CASRNN_TRACEBACK=1`` shows it.

    That is one line of 12,000 characters with every option, before a mistake in one, and every
    weight's norm and gradients, when these are not finite.
    """
    logging.getLogger("fairseq.dataclass.utils").addFilter(_without_all_options)
    logging.getLogger("fairseq.nan_detector").addFilter(_shows_tracebacks)


def _shows_tracebacks(record: logging.LogRecord | None = None) -> bool:
    return os.environ.get("CASRNN_TRACEBACK") == "1"


def _without_all_options(record: logging.LogRecord) -> bool:
    return _shows_tracebacks() or not str(record.msg).startswith("Error when composing")


def filter_warnings() -> None:
    """No warnings of fairseq's libraries about each other, of which no user can do anything."""
    # Six lines about hydra's own past and future before each run's first line.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")
    warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")
    # fairseq pins memory and names autocast as older versions of torch had it, with no GPU too.
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true but no")
    warnings.filterwarnings("ignore", message=r"`torch\.cuda\.amp\.autocast\(args")


def prepare_output() -> None:
    """See :mod:`fairseq_casrnn.output`."""
    output.prepare()
    output.flush_at_exit()

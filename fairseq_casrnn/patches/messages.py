"""Error messages, warnings and output of fairseq's programs."""

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

from fairseq_casrnn.console import output
from fairseq_casrnn.diagnostics.explain import explain, explained
from fairseq_casrnn.diagnostics.names import name_unknown_options, shorten_choices
from fairseq_casrnn.patches.programs import is_hydra_train, program_name


def set_excepthook() -> None:
    """Print ``error: <one sentence>`` for mistakes that ``explain`` knows, otherwise the traceback.

    Ctrl-C prints ``interrupted``. ``CASRNN_TRACEBACK=1`` in the environment shows all tracebacks.
    """
    sys.excepthook = _explaining(sys.excepthook)
    if is_hydra_train():
        # Otherwise hydra prints a shortened traceback and exits by itself.
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
            # From Python 3.13 on, a file that could not be written reports so again when it closes.
            sys.unraisablehook = ignore
        wait_for_batches()

    return hook


def ignore(unraisable: object) -> None:
    """Print nothing about an exception that cannot be raised."""


def wait_for_batches(seconds: float = 2.0) -> None:
    """Wait until fairseq's prefetching threads are done or their queues are full.

    Python kills daemon threads when it exits; if one is inside torch, the process aborts.
    """
    from fairseq.data.iterators import BackgroundConsumer

    end = time.monotonic() + seconds
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer):
            while thread.is_alive() and not thread._queue.full() and time.monotonic() < end:
                thread.join(0.01)


def worker_with_messages(*args):
    """Replaces fairseq's ``distributed_main``, which runs in one process per GPU.

    The parent process gets only the text of a worker's traceback. Known mistakes therefore become
    a UserError, whose sentence the parent finds in that text.
    """
    from fairseq.distributed import utils as distributed

    # A spawned process may run this before it has registered the package.
    current = distributed.distributed_main
    with explained():
        getattr(current, "__wrapped__", current)(*args)


def shorten_usage(parser: argparse.ArgumentParser, *args, **kwargs) -> None:
    """Print the error of a wrong option without fairseq's usage of hundreds of options."""

    def error(message: str) -> NoReturn:
        text = shorten_choices(name_unknown_options(message, parser._option_string_actions))
        name = program_name().replace("_", "-")
        help_of = f"fairseq-{name} --help" if name else "--help"
        parser.exit(2, f"error: {text} ({help_of} lists every option)\n")

    if isinstance(parser, argparse.ArgumentParser):  # not an argument group
        parser.error = error  # type: ignore[method-assign]


def filter_logs() -> None:
    """Silence two fairseq loggers that print a dump before an error.

    One prints all options in a line of 12,000 characters before an error in one of them, the other
    the norm of each weight and gradient if one is not finite. ``CASRNN_TRACEBACK=1`` keeps both.
    """
    logging.getLogger("fairseq.dataclass.utils").addFilter(_without_all_options)
    logging.getLogger("fairseq.nan_detector").addFilter(_shows_tracebacks)


def _shows_tracebacks(record: logging.LogRecord | None = None) -> bool:
    return os.environ.get("CASRNN_TRACEBACK") == "1"


def _without_all_options(record: logging.LogRecord) -> bool:
    return _shows_tracebacks() or not str(record.msg).startswith("Error when composing")


def filter_warnings() -> None:
    """Ignore warnings about how fairseq's dependencies use each other."""
    # Six lines about deprecated features of hydra, at the start of each run.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")
    warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")
    # fairseq uses pin_memory without a GPU and the former name of autocast.
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true but no")
    warnings.filterwarnings("ignore", message=r"`torch\.cuda\.amp\.autocast\(args")


def prepare_output() -> None:
    """Set up standard output, see :mod:`fairseq_casrnn.console.output`."""
    output.prepare()
    output.flush_at_exit()

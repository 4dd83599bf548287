"""Running the programs that a recipe stands for, or printing their command lines."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SIGNALS = [
    number for name in ("SIGINT", "SIGTERM", "SIGUSR1") if (number := getattr(signal, name, 0))
]


@dataclass
class Programs:
    """What runs programs, in the Python that the variable PYTHON names or else in this one.

    Args:
        dry_run: print the command lines instead.
    """

    dry_run: bool = False

    def call(self, program: str, *arguments: str) -> None:
        """Run a module, or a file ending in ``.py``. Raises SystemExit if it fails."""
        command = python(program, *arguments)
        if self.dry_run:
            return print(shlex.join(command), flush=True)
        with passing_on_signals() as (children, received):
            children.append(subprocess.Popen(command))
            status = children[0].wait()
        if received or status:
            raise SystemExit(exit_status(status, received))

    def train(self, log: Path, *arguments: str) -> int:
        """Run ``fairseq-train``; both its outputs are shown and appended to ``log``.

        Returns:
            Its exit status.
        """
        command = python("fairseq_cli.train", *arguments)
        with passing_on_signals() as (children, received), open(log, "ab", buffering=0) as file:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            children.append(child)
            shown = ((child.stdout, sys.stdout.buffer), (child.stderr, sys.stderr.buffer))
            copiers = [threading.Thread(target=copy, args=(*pair, file)) for pair in shown]
            for copier in copiers:
                copier.start()
            for copier in copiers:
                copier.join()
            status = child.wait()
        return exit_status(status, received)


def python(program: str, *arguments: str) -> list[str]:
    """The command line of a module, or of a file ending in ``.py``."""
    name = [program] if program.endswith(".py") else ["-m", program]
    return [os.environ.get("PYTHON") or sys.executable, *name, *arguments]


def copy(source: BinaryIO, shown: BinaryIO, log: BinaryIO) -> None:
    """Write what ``source`` has to both; one that cannot be written does not keep the other."""
    left = [shown, log]
    with source:
        while chunk := os.read(source.fileno(), 1 << 16):
            for target in list(left):
                try:
                    target.write(chunk)
                    target.flush()
                except OSError as error:
                    left.remove(target)
                    if target is log:
                        why = error.strerror
                        print(f"warning: {log.name} cannot be written on ({why})", file=sys.stderr)


@contextlib.contextmanager
def passing_on_signals() -> Iterator[tuple[list[subprocess.Popen], list[int]]]:
    """Signals end a program that is called here, and only then this process.

    Ctrl-C reaches every process of a terminal by itself; others are passed on, and harmless twice.

    Yields:
        A list, for the program, and a list that gets the signals.
    """
    children: list[subprocess.Popen] = []
    received: list[int] = []

    def handle(number, frame):
        received.append(number)
        for child in children:
            if number != signal.SIGINT:
                child.send_signal(number)

    before = {}
    if threading.current_thread() is threading.main_thread():  # where Python allows handlers
        # What is ignored, as Ctrl-C in the background, the program has to ignore, too.
        heard = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield children, received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_status(status: int, received: list[int]) -> int:
    """The status of a program as the shell has it; that of a signal, if one was received."""
    if status < 0:
        return 128 - status
    return 128 + received[0] if received and not status else status

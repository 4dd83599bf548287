"""Run other programs, or print their command lines."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

SIGNALS = [
    number for name in ("SIGINT", "SIGTERM", "SIGUSR1") if (number := getattr(signal, name, 0))
]
PR_SET_PDEATHSIG = 1  # in linux/prctl.h


@dataclass
class Programs:
    """Runs programs with the Python in the environment variable PYTHON, or with this one.

    Args:
        dry_run: whether to print the command lines instead.
    """

    dry_run: bool = False

    def call(self, program: str, *arguments: str) -> None:
        """Run a module, or a file ending in ``.py``. Raises SystemExit if it fails."""
        command = python_command(program, *arguments)
        if self.dry_run:
            return print(shlex.join(command), flush=True)
        with forwarding_signals() as (start, received):
            status = start(command).wait()
        if received or status:
            raise SystemExit(exit_status(status, received))

    def train(self, log: Path, *arguments: str) -> int:
        """Run ``fairseq-train``; show its stdout and stderr and append both to ``log``.

        Returns:
            Its exit status.
        """
        command = python_command("fairseq_cli.train", *arguments)
        with forwarding_signals() as (start, received), open(log, "ab", buffering=0) as file:
            child = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            streams = ((child.stdout, sys.stdout.buffer), (child.stderr, sys.stderr.buffer))
            copiers = [threading.Thread(target=copy, args=(*pair, file)) for pair in streams]
            for copier in copiers:
                copier.start()
            for copier in copiers:
                copier.join()
            status = child.wait()
        return exit_status(status, received)


def end_with_parent() -> None:
    """Make this process receive SIGTERM when its parent is killed; works on Linux only.

    A training then saves a checkpoint and stops, instead of going on without a log.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def python_command(program: str, *arguments: str) -> list[str]:
    """The command line of a module, or of a file ending in ``.py``."""
    name = [program] if program.endswith(".py") else ["-m", program]
    return [os.environ.get("PYTHON") or sys.executable, *name, *arguments]


def copy(source: BinaryIO, shown: BinaryIO, log: BinaryIO) -> None:
    """Copy ``source`` to ``shown`` and ``log``; if one fails, continue with the other."""
    targets = [shown, log]
    with source:
        while chunk := os.read(source.fileno(), 1 << 16):
            for target in list(targets):
                try:
                    target.write(chunk)
                    target.flush()
                except OSError as error:
                    targets.remove(target)
                    if target is log:
                        why = error.strerror
                        print(f"warning: cannot write to {log.name} ({why})", file=sys.stderr)


@contextlib.contextmanager
def forwarding_signals() -> Iterator[tuple[Callable[..., subprocess.Popen], list[int]]]:
    """Forward signals to the programs that are started in the context; they end first.

    Ctrl-C reaches all processes of a terminal anyway. Others are forwarded; receiving one twice is
    harmless.

    Yields:
        ``subprocess.Popen``, for a program that ends with this one, and the received signals.
    """
    children: list[subprocess.Popen] = []
    received: list[int] = []

    def handle(number, frame):
        received.append(number)
        for child in children:
            if number != signal.SIGINT:
                child.send_signal(number)

    def start(command: list[str], **options: Any) -> subprocess.Popen:
        child = subprocess.Popen(command, preexec_fn=end_with_parent, **options)
        children.append(child)
        for number in received:  # signals that arrived before it started
            child.send_signal(number)
        return child

    previous = {}
    if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
        # Ignored signals, such as Ctrl-C in the background, stay ignored.
        active = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        previous = {number: signal.signal(number, handle) for number in active}
    try:
        yield start, received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def exit_status(status: int, received: list[int]) -> int:
    """The exit status as in a shell: 128 plus the number of a signal, if there was one."""
    if status < 0:
        return 128 - status
    return 128 + received[0] if received and not status else status

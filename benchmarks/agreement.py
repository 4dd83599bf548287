"""Check the GPU kernels of every cell, in every dtype, against the reference in float64.

    python benchmarks/agreement.py [--processes 16] [--only REGEX] [--seconds 200]

Each check runs forward and backward twice over sequences of unequal length and compares the results
with engine ``reference`` in float64 on the same rounded inputs. It prints the largest relative
error of any output or gradient, ‖actual − expected‖ / ‖expected‖. The exit status is 1 if an error
exceeds the limit of its dtype, if the two runs differ in any bit, or if a check fails or times out.

Most of the time is spent on compiling kernels, so the checks run in several processes.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import NamedTuple

import machine
import problems
import torch

from fairseq_casrnn import recurrence

DTYPES = {
    "bf16": (torch.bfloat16, "highest", 2e-2),
    "fp16": (torch.float16, "highest", 4e-3),
    "TF32": (torch.float32, "high", 2e-3),
    "float32": (torch.float32, "highest", 5e-6),
    "float64": (torch.float64, "highest", 1e-10),
}
"""The dtype, torch's float32 matmul precision, and the largest relative error allowed."""
KERNELS = {"whole": "1", "steps": "0"}
"""One launch per sequence or one per step, by values of CASRNN_TRITON_SEQUENCES."""
SIZES = 130, 37, 11  # H, B, T: several tiles in each dimension, the last one partial
TINY = 5, 3, 4
TIMED = [(256, 64, 30), (1024, 64, 50)]  # sizes that recurrent_layers.py times afterwards


class Check(NamedTuple):
    """One check: a computation, its sizes, dtype and kernel.

    Attributes:
        kind: name of a function in :mod:`problems`.
        case: a key of ``problems.CASES``, or "" for a computation without a cell.
        sizes: H, B, T.
        dtype, kernel: keys of ``DTYPES`` and ``KERNELS``.
    """

    kind: str
    case: str
    sizes: tuple[int, int, int]
    dtype: str
    kernel: str = "whole"

    def __str__(self):
        """The name that ``--only`` is matched against."""
        of_cell = [self.case] if self.case else []
        return ", ".join([self.kind, *of_cell, self.dtype, self.kernel, str(self.sizes)])


class Outcome(NamedTuple):
    """The outcome of a check.

    Attributes:
        error: the largest relative error.
        where: name of the tensor that has it.
        repeats: whether both runs gave identical bits.
        seconds: duration, compiling included.
        messages: what the package logged.
    """

    error: float
    where: str
    repeats: bool
    seconds: float
    messages: list[str]


def checks(sizes=SIZES, timed=TIMED) -> list[Check]:
    """All checks, those that take longest to compile first."""
    found = [
        Check("layer", case, size, dtype)
        for size in reversed(timed)
        for case in ("stacked_lstm", "cas_lstm")
        for dtype in ("float32", "TF32", "bf16")
    ]
    for kernel in KERNELS:
        for dtype in DTYPES:
            if (kernel, dtype) != ("whole", "float64"):  # no such kernel
                found += [Check("layer", case, sizes, dtype, kernel) for case in problems.CASES]
    for dtype in DTYPES:
        for kind in ("decoder", "beam"):
            found += [Check(kind, case, sizes, dtype) for case in problems.CASES]
        found.append(Check("sentence_state", "", sizes, dtype))
        found.append(Check("loss", "", sizes, dtype))
    found.append(Check("choice", "", sizes, "float32"))
    return found


def run(check: Check, device: str, engine: str) -> Outcome | None:
    """Compute ``check`` twice and the reference once; None if the engine has no such kernel."""
    dtype, precision, _ = DTYPES[check.dtype]
    os.environ["CASRNN_TRITON_SEQUENCES"] = KERNELS[check.kernel]
    torch.set_float32_matmul_precision(precision)
    torch.manual_seed(1)
    start, messages = time.perf_counter(), Messages()
    logger = logging.getLogger("fairseq_casrnn")
    logger.addHandler(messages)
    try:
        problem = getattr(problems, check.kind)(check.case, *check.sizes, device, dtype)
        first = problem(engine)
        if first is None:
            return None
        second = problem(engine)
        expected = problem("reference")
        machine.synchronize()
    finally:
        logger.removeHandler(messages)
    repeats = all(torch.equal(first[name], second[name]) for name in first)
    errors = {name: relative(first[name], expected[name]) for name in first}
    where = max(errors, key=errors.get)
    return Outcome(errors[where], where, repeats, time.perf_counter() - start, messages.found)


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """‖actual − expected‖ / ‖expected‖; infinite if any element is not finite."""
    error = (actual.double() - expected).norm() / expected.norm()
    return error.item() if error.isfinite() else float("inf")


class Messages(logging.Handler):
    """Collects the package's log, which says if another kernel replaced the checked one."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.found: list[str] = []

    def emit(self, record):
        """Collect a message, unless it only says which engine runs."""
        text = record.getMessage()
        if "recurrence engine: " not in text:
            self.found.append(text)


def prepare() -> None:
    """Initialise a worker process."""
    torch.set_num_threads(1)
    logging.getLogger("fairseq_casrnn").setLevel(logging.INFO)


def safely(check: Check, device: str, engine: str) -> Outcome | str | None:
    """The result of :func:`run`, or the end of its traceback, so that the other checks continue."""
    try:
        return run(check, device, engine)
    except Exception:
        return traceback.format_exc()[-1500:]


def run_all(wanted: list[Check], args) -> dict[Check, Outcome | str | None]:
    """The outcome of each check, or a text that says why it has none."""
    deadline = time.monotonic() + args.seconds
    pool = ProcessPoolExecutor(args.processes, get_context("spawn"), initializer=prepare)
    futures = {check: pool.submit(safely, check, args.device, args.engine) for check in wanted}
    wait(futures.values(), max(0.0, deadline - time.monotonic()))
    found = {}
    for check, future in futures.items():
        try:
            found[check] = future.result() if future.done() else f"no end in {args.seconds} s"
        except BrokenProcessPool:
            found[check] = "its process was killed, or another one's"
    if not all(future.done() for future in futures.values()):
        for process in list(pool._processes.values()):
            process.kill()
    pool.shutdown(cancel_futures=True)
    return found


def row(check: Check, outcome: Outcome | None) -> list[str]:
    """The check's row of the table."""
    size = "H {} B {} T {}".format(*check.sizes)
    start = [check.kind, check.case, check.dtype, check.kernel if check.kind == "layer" else ""]
    if outcome is None:
        return [*start, size, "no kernel", "", "", ""]
    error, where, repeats, seconds, _ = outcome
    limit = DTYPES[check.dtype][2]
    same = "yes" if repeats else "**no**"
    shown = f"{error:.1e}" if error <= limit else f"**{error:.1e}**"
    return [*start, size, shown, where, same, f"{seconds:.1f}"]


def report(found: dict[Check, Outcome | str | None]) -> list[str]:
    """Print the table and the logged messages; return one line for each problem."""
    wrong, rows, messages = [], [], {}
    for check, outcome in found.items():
        if isinstance(outcome, str):
            wrong.append(f"{check}: {outcome}")
            continue
        rows.append(row(check, outcome))
        if outcome is None:
            continue
        limit = DTYPES[check.dtype][2]
        if not outcome.error <= limit:
            wrong.append(f"{check}: an error of {outcome.error:.1e} in {outcome.where}")
        if not outcome.repeats:
            wrong.append(f"{check}: two runs differ")
        for message in outcome.messages:
            messages.setdefault(message, check)
            if (check.kind == "layer" and "falls back to" in message) or "instead: " in message:
                wrong.append(f"{check}: {message}")
    limits = ", ".join(f"{name} {limit:g}" for name, (*_, limit) in DTYPES.items())
    print(f"Largest errors allowed: {limits}.\n")
    columns = ["what", "cell", "dtype", "kernel", "sizes", "largest relative error", "of", "same"]
    print(machine.table([*columns, "seconds"], rows))
    for message, check in messages.items():
        print(f"- Logged, first by ({check}): {message}")
    return wrong


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=machine.positive, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=machine.positive, default=200, help="for all of them")
    parser.add_argument("--only", default="", help="regular expression for names of checks")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    device = machine.device()
    parser.add_argument("--device", default=device, help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="triton" if device == "cuda" else recurrence.default())
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    every = checks(TINY, []) if args.tiny else checks()
    wanted = [check for check in every if re.search(args.only, str(check))]
    if args.list:
        return print(*wanted, sep="\n")
    start = time.perf_counter()
    print("\n## Kernels against float64\n")
    wrong = report(run_all(wanted, args))
    print(f"\n{len(wanted)} checks, {time.perf_counter() - start:.0f} s.\n")
    if wrong:
        print("Wrong:\n\n" + "\n".join(f"- {line}" for line in wrong), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Helpers of all benchmarks: the machine's name, its load, timing, Markdown tables."""

from __future__ import annotations

import argparse
import atexit
import os
import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from fairseq_casrnn.recurrence.products import linear
from fairseq_casrnn.runs import environment

RESULTS = Path(__file__).parent / "results"


def name() -> str:
    """The GPU, if there is one; otherwise CPU model, number of cores and vector instructions."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{environment.machine()['cpu']}, {os.cpu_count()} cores, {instructions()}"


def instructions() -> str:
    """The vector instructions that torch uses, and whether there is a matrix unit."""
    matrix = " and AMX" if "amx_tile" in str(environment.machine()["instructions"]) else ""
    return torch.backends.cpu.get_cpu_capability() + matrix


def folder() -> Path:
    """The folder of this machine's results, ``benchmarks/results/<name>``, created if missing."""
    path = RESULTS / re.sub(r"[^a-z0-9]+", "-", name().lower()).strip("-")
    path.mkdir(parents=True, exist_ok=True)
    return path


def busy_cores() -> float:
    """How many cores other processes use in a second of sleep; 0 on systems other than Linux."""

    def ticks() -> tuple[int, int]:
        fields = [
            int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        ]
        return sum(fields), fields[3] + fields[4]  # in all, and idle or waiting for I/O

    if not Path("/proc/stat").exists():
        return 0.0
    total, idle = ticks()
    time.sleep(1)
    new_total, new_idle = ticks()
    busy_share = 1 - (new_idle - idle) / max(1, new_total - total)
    return busy_share * (os.cpu_count() or 1)


def warn_if_busy(threads: int, prefix: str = "The") -> str:
    """A warning if other processes are running, which makes measurements unreliable.

    The check is repeated when this process ends, since other processes may start in the meantime.
    """
    if prefix == "The":
        atexit.register(lambda: print(warn_if_busy(threads, "At the end the"), end=""))
    others, cores = busy_cores(), os.cpu_count() or 1
    if others <= max(0.1, cores - threads - 0.5):
        return ""
    return f"**{prefix} machine was busy: other processes took {others:.1f} of {cores} cores.**\n\n"


def device() -> str:
    """The type of device to measure on: "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def synchronize() -> None:
    """Wait until the GPU, if there is one, has finished all work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def median_seconds(jobs: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of each job, after two warm-up rounds.

    The jobs take turns, so that changes in the machine's speed affect all of them alike. Compare
    only ratios within one run.
    """
    times = {key: [] for key in jobs}
    for _ in range(rounds + 2):
        for key, job in jobs.items():
            synchronize()
            start = time.perf_counter()
            job()
            synchronize()
            times[key].append(time.perf_counter() - start)
    return {key: statistics.median(seconds[2:]) for key, seconds in times.items()}


def gpu_seconds(job: Callable[[], None]) -> float:
    """Seconds that the GPU is busy during a call of ``job``, which must have been called before."""
    synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        job()
        synchronize()
    events = profiler.key_averages()
    on_gpu = [event for event in events if event.device_type == DeviceType.CUDA]
    return sum(event.self_device_time_total for event in on_gpu) / 1e6


def ceiling(shapes: list[tuple[int, int, int]], device: str, dtype: torch.dtype) -> float:
    """Floating-point operations per second of the fastest of several matrix products.

    Each product is computed by torch and by the layers' :func:`linear`, which rounds the factors to
    bfloat16 if the float32 matmul precision allows it.

    Args:
        shapes: rows, inner dimension and columns of each product.
        device, dtype: of the factors.
    """
    jobs, flops = {}, {}
    for rows, inner, columns in shapes:
        a, b = torch.randn(rows, inner), torch.randn(columns, inner)
        a, b = (t.to(device, dtype) for t in (a, b))
        for name, product in (("torch", F.linear), ("layers", linear)):
            key = f"{name} {rows} x {inner} x {columns}"
            jobs[key] = partial(product, a, b)
            flops[key] = 2 * rows * inner * columns
    seconds = median_seconds(jobs, rounds=7)
    return max(flops[key] / seconds[key] for key in jobs)


def positive(text: str) -> int:
    """A positive integer, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def plots_folder(text: str) -> Path:
    """A folder, created if missing before anything is measured, for argparse."""
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} is no folder ({error.strerror})") from None
    return Path(text)


def names_of(known) -> Callable[[str], list[str]]:
    """A type for argparse: comma-separated names, each of them in ``known``."""

    def names(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        return text.split(",")

    return names


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "".join(map(row, [columns, ["---"] * len(columns), *rows]))


def row(cells: list[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |\n"

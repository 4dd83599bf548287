"""Check the GPU kernels, then measure their speed: the script behind ``make gpu``.

    python benchmarks/gpu.py [--sections check,layers,…] [--budget 300] [--out DIR] [DATA_BIN]

It takes five minutes on an H100 and downloads nothing; without fairseq it only measures the layers.
First, every kernel is compared with float64 (``agreement.py``), while the kernels to be timed are
compiled; a wrong kernel ends the program with status 1. Then the benchmarks run. Each command is a
process of its own with a time limit, so that a failure or a hang does not affect the others.

After each command, it writes ``gpu.json`` and, from that, ``README.md`` to
``benchmarks/results/<card>``. Sections that were not requested are kept if card and versions are
the same.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import machine
import torch
from gpu_commands import SECTIONS, WITH_FAIRSEQ, Command

import fairseq_casrnn
from fairseq_casrnn.recurrence.triton import support as triton_support

HERE = Path(__file__).parent
LEAST = 10
"""Seconds that must be left of the budget to start another command."""
LIMIT = 120
"""Time limit of one benchmark command, in seconds."""
RUNNING: set[subprocess.Popen] = set()
"""Processes that :func:`execute` has started and that still run."""


def query(*command: str) -> str | None:
    """The last line of a program's output, or None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip().rpartition("\n")[2]


def setting() -> dict[str, str]:
    """What the measurements depend on: card, driver, versions."""
    import importlib.metadata as packages

    found = {"card": machine.name()}
    if torch.cuda.is_available():
        found["driver"] = query("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    found |= {"torch": torch.__version__}
    for name in ("triton", "fairseq-fixed"):
        try:
            found[name] = packages.version(name)
        except packages.PackageNotFoundError:
            found[name] = None
    found |= {"Python": platform.python_version(), "CPU cores": str(os.cpu_count())}
    found["fairseq-casrnn"] = fairseq_casrnn.__version__
    return {name: value for name, value in found.items() if value}


def entry_of(command: list[str], status: int | str, seconds: float = 0.0) -> dict:
    """The entry of a command in ``gpu.json``."""
    shown = " ".join([f"python benchmarks/{command[0]}.py", *command[1:]])
    when = {"date": str(datetime.date.today()), "commit": commit()}
    return {"command": shown, "status": status, "seconds": seconds, **when, "blocks": []}


@functools.cache
def commit() -> str | None:
    """The commit that is checked out, or None if it is unknown."""
    return query("git", "describe", "--always", "--dirty")


def execute(command: list[str], limit: float) -> dict:
    """Run a script of this folder for at most ``limit`` seconds; return its ``gpu.json`` entry."""
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, str(HERE / f"{command[0]}.py"), *command[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # fairseq logs to standard output, which would end up in the report.
        env={"LOGLEVEL": "WARNING", **os.environ},
        start_new_session=True,  # a process group, so that its children can be killed, too
    )
    RUNNING.add(process)
    try:
        out, errors = process.communicate(timeout=limit)
        status: int | str = process.returncode
    except subprocess.TimeoutExpired:
        kill(process)
        out, errors = process.communicate()
        status = f"killed after {limit:.0f} s"
    RUNNING.discard(process)
    seconds = round(time.monotonic() - start, 1)
    entry = entry_of(command, status, seconds)
    if status != 0:
        entry["errors"] = errors[-3000:]
    return entry | {"blocks": blocks(out)}


def kill(process: subprocess.Popen) -> None:
    """Kill a process that :func:`execute` started, together with its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def stop_all() -> None:
    """Kill all running processes and wait until they have ended."""
    for process in list(RUNNING):
        kill(process)
        process.wait()


def blocks(text: str) -> list[str | dict]:
    """Parse Markdown into texts and tables, ``{"columns": […], "rows": [[…], …]}``."""
    found: list[str | dict] = []
    for line in text.strip().splitlines():
        if line.startswith("| "):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not found or isinstance(found[-1], str):
                found.append({"columns": cells, "rows": []})
            elif cells[0] != "---":
                found[-1]["rows"].append(cells)
        elif found and isinstance(found[-1], str):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    stripped = [block.strip() if isinstance(block, str) else block for block in found]
    return [block for block in stripped if block]


class Report:
    """``gpu.json`` and ``README.md`` in a folder, both complete after every entry."""

    temporary: str | None = None  # temporary data, left out of the commands in the report

    def __init__(self, folder: Path, sections: list[str]):
        self.folder, self.content = folder, {"setting": setting(), "sections": {}}
        path = folder / "gpu.json"
        if path.exists():
            earlier = json.loads(path.read_text(encoding="utf-8"))
            if earlier["setting"] == self.content["setting"]:  # keep its other sections
                self.content = earlier
        for name in sections:
            self.content["sections"][name] = []

    def add(self, section: str, entry: dict) -> None:
        """Add an entry to both files, and print it."""
        if self.temporary:
            entry["command"] = entry["command"].replace(f" {self.temporary}", "")
        self.content["sections"][section].append(entry)
        print(markdown(entry), flush=True)
        text = f"# {self.content['setting']['card']}\n\n{self.summary()}\n"
        for name in SECTIONS:
            text += "".join(map(markdown, self.content["sections"].get(name, [])))
        written = {"README.md": text, "gpu.json": json.dumps(self.content, indent=1) + "\n"}
        for name, content in written.items():
            part = self.folder / f"{name}.part"
            part.write_text(content, encoding="utf-8")
            part.replace(self.folder / name)

    def summary(self) -> str:
        """The paragraph below the title."""
        parts = [f"{name} {value}" for name, value in self.content["setting"].items()]
        return f"{', '.join(parts[1:])}. Seed 1. Written by `make gpu`.\n"


def markdown(entry: dict) -> str:
    """An entry as Markdown, with its command below the first heading."""
    text = ""
    for block in entry["blocks"]:
        if isinstance(block, str):
            text += f"{block}\n\n"
        else:
            text += machine.table(block["columns"], block["rows"]) + "\n"
    title, _, rest = text.partition("\n\n")
    if not title.startswith("#"):
        title, rest = f"## {entry['command']}", text
    when = [entry[k] for k in ("date", "commit") if entry.get(k)]
    said = "; ".join([f"`{entry['command']}`, {entry['seconds']} s", *when])
    if entry["status"] != 0:
        said += f". **Status: {entry['status']}**"
    text = f"{title}\n\n{said}\n\n{rest}"
    if entry.get("errors"):
        text += f"```\n{entry['errors'].strip()}\n```\n\n"
    return text


def check(report: Report, wanted: dict[str, list[Command]], deadline: float) -> bool:
    """Run the checks while other processes compile kernels; return whether all checks passed."""
    cores = os.cpu_count() or 1
    warming = [line for name in wanted for command in wanted[name] for line in command.warming]
    limit = max(LEAST, (deadline - time.monotonic()) * (0.6 if warming else 0.95))
    processes = max(1, cores // 2 if warming else cores)
    options = ["--processes", str(min(16, processes)), "--seconds", f"{limit:.0f}"]
    pool = ThreadPoolExecutor(max(1, cores // 2))
    try:
        compiled = [pool.submit(execute, line, limit) for line in warming]
        for command in wanted.get("check", []):
            entry = execute([*command.line, *options], limit + LIMIT)
            report.add("check", entry)
            if entry["status"] != 0:
                return False
        for future in compiled:
            entry = future.result()
            if entry["status"] != 0:
                print(f"compiling: {entry}", file=sys.stderr)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        stop_all()
    return True


def time_all(report: Report, wanted: dict[str, list[Command]], deadline: float) -> None:
    """Run the benchmarks of all other sections, one command after another."""
    for name, of_section in wanted.items():
        for command in of_section if name != "check" else ():
            left = deadline - time.monotonic()
            if left < LEAST:
                report.add(name, entry_of(command.line, "left out: the budget is used up"))
            else:
                report.add(name, execute(command.line, min(LIMIT, left)))


def sentence_pairs(data: str | None, folder: str) -> tuple[str | None, str | None]:
    """``data``, or else a data-bin generated in ``folder``; or the reason why there is none."""
    if importlib.util.find_spec("fairseq") is None:
        return None, "fairseq is not installed"
    data = data or query(sys.executable, str(HERE / "synthetic.py"), folder)
    return data, None if data else "benchmarks/synthetic.py failed; run it to see why"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="?", help="data-bin of a translation recipe")
    known = machine.names_of(SECTIONS)
    parser.add_argument("--sections", type=known, default=",".join(SECTIONS))
    parser.add_argument("--budget", type=machine.positive, default=300, help="seconds in all")
    parser.add_argument("--out", type=machine.plots_folder, help="folder (default: the card's)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    deadline = time.monotonic() + args.budget
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the finally below
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"error: torch {torch.__version__} sees no GPU, which this measures")
    if args.device == "cuda" and triton_support.missing():
        sys.exit(f"error: no kernels to measure: {triton_support.missing()}")
    sections = [name for name in SECTIONS if name in args.sections]
    report = Report(args.out or machine.folder(), sections)
    with tempfile.TemporaryDirectory() as folder:
        data, why_not = args.data, None
        if WITH_FAIRSEQ.intersection(sections):
            data, why_not = sentence_pairs(args.data, folder)
        report.temporary = None if args.data else data
        wanted = {name: SECTIONS[name](data or "", report.folder, args.tiny) for name in sections}
        for name in WITH_FAIRSEQ.intersection(sections) if why_not else ():
            for command in wanted.pop(name):
                report.add(name, entry_of(command.line, f"left out: {why_not}"))
        try:
            right = check(report, wanted, deadline)
            if right:
                time_all(report, wanted, deadline)
        finally:
            stop_all()
    print(f"written to {report.folder}/README.md and gpu.json")
    if not right:
        sys.exit("error: a kernel is wrong, or could not be checked; see above")


if __name__ == "__main__":
    main()

"""The environment of a run: command line, commit, versions, machine."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import fairseq_casrnn
from fairseq_casrnn import plugin


def command_line(names: Sequence[str] = ()) -> str:
    """The command line of this process, as a user would type it.

    Args:
        names: environment variables to prepend, in addition to those of this package.
    """
    path = Path(sys.argv[0])
    name = path.name
    if path.parts[-2:] == (fairseq_casrnn.__name__, "cli.py"):
        name = "casrnn"
    elif path.parent.name == "fairseq_cli":
        name = f"fairseq-{path.stem.replace('_', '-')}"
    elif fairseq_casrnn.__name__ in path.parts:
        at = len(path.parts) - path.parts[::-1].index(fairseq_casrnn.__name__) - 1
        name = "python -m " + ".".join(path.with_suffix("").parts[at:])
    found = {
        key: value
        for key, value in sorted(os.environ.items())
        if value and (key in names or key.startswith("CASRNN_"))
    }
    if name == "casrnn" and any(word.partition("=")[0] == "--user-dir" for word in sys.argv):
        found.pop(plugin.VARIABLE, None)  # set by the option
    assignments = [f"{key}={shlex.quote(value)}" for key, value in found.items()]
    return " ".join([*assignments, name, *map(shlex.quote, sys.argv[1:])])


@functools.cache
def commit() -> dict[str, object]:
    """The package's version and, in a Git checkout, ``commit`` and whether it is ``modified``."""
    package = Path(fairseq_casrnn.__file__).resolve().parent
    found: dict[str, object] = {"version": fairseq_casrnn.__version__}
    if _git(package, "rev-parse", "--show-toplevel") == str(package.parent):
        found["commit"] = _git(package, "rev-parse", "HEAD")
        if _git(package, "status", "--porcelain", "--untracked-files=no", "--", "."):
            found["modified"] = True
    return found


def _git(folder: Path, *arguments: str) -> str:
    """The output of git; empty if there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def versions() -> dict[str, str]:
    """Versions of Python, torch and fairseq."""
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("fairseq-fixed", "fairseq"):
        try:
            return found | {name: importlib.metadata.version(name)}
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, object]:
    """The processor, its vector instructions, and the numbers of cores and of torch's threads."""
    import torch

    model, flags = platform.processor() or platform.machine(), ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags = cpuinfo.read_text()
        found = re.search(r"^model name\s*: (.*)$", flags, re.MULTILINE)
        model = found[1] if found else model
    special = [name for name in ("avx512_bf16", "amx_tile") if re.search(rf"\b{name}\b", flags)]
    return {
        "cpu": " ".join(model.split()),
        "instructions": " ".join([torch.backends.cpu.get_cpu_capability(), *special]),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def load_average() -> float | None:
    """The system's load average over the last 15 minutes, including this process."""
    return round(os.getloadavg()[2], 2) if hasattr(os, "getloadavg") else None

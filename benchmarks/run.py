"""Every benchmark, into ``benchmarks/results/<machine>/README.md``; what ``make bench`` calls.

    python benchmarks/run.py [DATA_BIN]

Half an hour on two idle cores. Without DATA_BIN (a data-bin of a translation recipe) the
translation models run on random sentences.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import machine
import torch

HERE = Path(__file__).parent


def run(script: str, *options: str) -> str:
    """What the script prints; its messages go through."""
    command = [sys.executable, str(HERE / f"{script}.py"), *options]
    print("$ python", *(f"benchmarks/{script}.py", *options), flush=True)
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(result.stdout, flush=True)
    return result.stdout


def main() -> None:
    """Command line."""
    data = sys.argv[1:2]
    threads = ["1"] if (os.cpu_count() or 1) < 2 else ["1", "2"]
    text = f"# {machine.name()}\n\ntorch {torch.__version__}, {datetime.date.today()}\n"
    for number in threads:
        text += run("recurrent_layers", "--threads", number)
        text += run("translation", *data, "--threads", number)
    text += run("recurrent_layers", "--threads", threads[-1], "--precision", "medium")
    text += run("translation", *data, "--threads", threads[-1], "--precision", "medium")
    text += run("memory", *data)
    text += run("scaling", "--threads", "1") + "![scaling](scaling.png)\n"
    text += run("sentence_encoders", "--threads", threads[-1])
    text += "![by sentence length](sentence_lengths.png)\n"
    path = machine.folder() / "README.md"
    path.write_text(text, encoding="utf-8")
    print(f"written to {path}")


if __name__ == "__main__":
    main()

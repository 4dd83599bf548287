"""Every benchmark, into ``benchmarks/results/<machine>/README.md``; what ``make bench`` calls.

    python benchmarks/run.py [--quick] [DATA_BIN]

Three quarters of an hour on two idle cores, with --quick, which repeats less, a third of it.
Without DATA_BIN (a data-bin of a translation recipe) the translation models run on random
sentences.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import machine
import torch

from fairseq_casrnn import recurrence

HERE = Path(__file__).parent


QUICK = {
    "recurrent_layers": ["--rounds", "5"],
    "translation": ["--rounds", "3", "--updates", "2"],
    "commands": ["--rounds", "2", "--updates", "18", "--archs", "cas_lstm_iwslt"],
    "cross_entropy": ["--rounds", "5"],
    "rare_words": ["--rounds", "5"],
    "lengths": ["--rounds", "5"],
    "memory": ["--updates", "10"],
    "scaling": ["--rounds", "3"],
    "sentence_encoders": ["--rounds", "2"],
}


def run(script: str, *options: str, quick: bool) -> str:
    """What the script prints; its messages go through."""
    options = (*options, *(QUICK[script] if quick else ()))
    command = [sys.executable, str(HERE / f"{script}.py"), *options]
    print("$ python", *(f"benchmarks/{script}.py", *options), flush=True)
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(result.stdout, flush=True)
    return result.stdout


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="*", help="data-bin of a translation recipe")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    args = parser.parse_args()
    data, measure = args.data[:1], partial(run, quick=args.quick)
    threads = ["1"] if (os.cpu_count() or 1) < 2 else ["1", "2"]
    text = f"# {machine.name()}\n\ntorch {torch.__version__}, {datetime.date.today()}\n"
    for number in threads:
        text += measure("recurrent_layers", "--threads", number)
        text += measure("translation", *data, "--threads", number)
    large = ["--threads", threads[-1], "--settings", "1024", "--cells", "stacked_lstm,cas_lstm"]
    engine = recurrence.default("cuda" if torch.cuda.is_available() else "cpu")
    text += measure("recurrent_layers", *large, "--engines", engine, "--rounds", "3")
    small = ["--settings", "12,24", "--cells", "stacked_lstm,second_order_lstm"]
    text += measure("recurrent_layers", *small, "--threads", "1")
    medium = ["--threads", threads[-1], "--precision", "medium"]
    text += measure("recurrent_layers", *medium)
    text += measure("translation", *data, *medium, "--fast")
    text += measure("commands", *data, "--threads", threads[-1])
    text += measure("lengths", "--threads", threads[-1])
    text += measure("cross_entropy", "--threads", threads[-1])
    text += measure("cross_entropy", *medium)
    text += measure("rare_words")
    text += measure("memory", *data)
    text += measure("scaling", "--threads", "1") + "![scaling](scaling.png)\n"
    text += measure("sentence_encoders", "--threads", threads[-1])
    text += "![by sentence length](sentence_lengths.png)\n"
    text += measure("sentence_encoders", "--threads", threads[-1], "--mixed")
    text += "![by sentence length, mixed](sentence_lengths_mixed.png)\n"
    path = machine.folder() / "README.md"
    path.write_text(text, encoding="utf-8")
    print(f"written to {path}")


if __name__ == "__main__":
    main()

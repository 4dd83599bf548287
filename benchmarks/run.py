"""Run all CPU benchmarks and write ``benchmarks/results/<machine>/README.md``: ``make bench``.

    python benchmarks/run.py [--quick] [DATA_BIN]

It takes 45 minutes on two idle cores, or 15 with --quick, which repeats less. Without DATA_BIN (a
data-bin of a translation recipe), the translation models run on random sentences. It uses no GPU;
``gpu.py`` measures that.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
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


class Report:
    """Collects the scripts' output in a draft, which replaces ``path`` when it is complete."""

    def __init__(self, path: Path, quick: bool):
        self.path, self.quick = path, quick
        self.draft = path.with_name(f"{path.name}.part")
        self.draft.write_text(
            f"# {machine.name()}\n\ntorch {torch.__version__}, {datetime.date.today()}\n",
            encoding="utf-8",
        )

    def measure(self, script: str, *options: str, then: str = "") -> None:
        """Run a script and add its output, followed by ``then``; its standard error is shown."""
        options = (*options, *(QUICK[script] if self.quick else ()))
        print("$ python", *(f"benchmarks/{script}.py", *options), flush=True)
        command = [sys.executable, str(HERE / f"{script}.py"), *options]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(result.stdout, flush=True)
        with open(self.draft, "a", encoding="utf-8") as file:
            file.write(result.stdout + then)
        if result.returncode:
            sys.exit(
                f"error: benchmarks/{script}.py ended with status {result.returncode}; what was "
                f"measured before is in {self.draft}"
            )

    def finish(self) -> None:
        """Replace the previous report."""
        self.draft.replace(self.path)
        print(f"written to {self.path}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="*", help="data-bin of a translation recipe")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    args = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # in this process and in the scripts
    report = Report(machine.folder() / "README.md", args.quick)
    data, measure = args.data[:1], report.measure
    threads = ["1"] if (os.cpu_count() or 1) < 2 else ["1", "2"]
    for number in threads:
        measure("recurrent_layers", "--threads", number)
        measure("translation", *data, "--threads", number)
    large = ["--threads", threads[-1], "--settings", "1024", "--cells", "stacked_lstm,cas_lstm"]
    measure("recurrent_layers", *large, "--engines", recurrence.default(), "--rounds", "3")
    small = ["--settings", "12,24", "--cells", "stacked_lstm,second_order_lstm"]
    measure("recurrent_layers", *small, "--threads", "1")
    medium = ["--threads", threads[-1], "--precision", "medium"]
    measure("recurrent_layers", *medium)
    measure("translation", *data, *medium, "--fast")
    measure("commands", *data, "--threads", threads[-1])
    measure("lengths", "--threads", threads[-1])
    measure("cross_entropy", "--threads", threads[-1])
    measure("cross_entropy", *medium)
    measure("rare_words")
    measure("memory", *data)
    measure("scaling", "--threads", "1", then="![scaling](scaling.png)\n")
    lengths = ["--threads", threads[-1]]
    measure("sentence_encoders", *lengths, then="![by sentence length](sentence_lengths.png)\n")
    mixed = "![by sentence length, mixed](sentence_lengths_mixed.png)\n"
    measure("sentence_encoders", *lengths, "--mixed", then=mixed)
    report.finish()


if __name__ == "__main__":
    main()

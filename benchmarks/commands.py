"""Speed of the programs fairseq-train and fairseq-generate, compared with fairseq's ``lstm``.

    python benchmarks/commands.py [DATA_BIN] [--threads 2] [--archs cas_lstm_iwslt,…]

Words and sentences per second are those that the programs print; the models take turns, and the
median counts. The baseline is fairseq without this plugin. ``translation.py`` compares both in one
process, where the baseline, too, benefits from the plugin's memory allocation.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import machine
import synthetic
import torch
from translation import FAIRSEQS, ONE_GPU, OURS, PEER, PEER_SIZES, TRAINING, USER_DIR

PLUGIN = ["--user-dir", USER_DIR]
ENVIRONMENT = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}  # plain fairseq needs it to load files
PRECISIONS = ("highest", "medium")


def contenders(archs: list[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Options for training only and for both programs, by the model's name in the table."""
    found = {PEER: ([f"--arch={PEER}", *PEER_SIZES, *FAIRSEQS], [])}
    for arch in archs:
        plain = [f"--arch={arch}"]
        found[arch] = ([*plain, *FAIRSEQS], PLUGIN)
        for precision in PRECISIONS:
            options = [*PLUGIN, f"--float32-matmul-precision={precision}"]
            found[f"{arch}, {OURS[0][2:]}, {precision}"] = ([*plain, *OURS], options)
    return found


def figures(program: str, *options: str, pattern: str) -> list[float]:
    """Run a program of fairseq and return the numbers that ``pattern`` matches in its output."""
    command = [sys.executable, "-m", f"fairseq_cli.{program}", *options]
    command += [] if torch.cuda.is_available() else ["--cpu"]
    environment = {**ENVIRONMENT, **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return [float(number) for number in re.findall(pattern, done.stdout + done.stderr)]


def train(data: str, folder: Path, options: list[str], args) -> float:
    """Training words per second, not counting the first third of the updates."""
    interval = ["--log-format=simple", f"--log-interval={max(1, args.updates // 3)}"]
    size = [f"--max-tokens={args.max_tokens}", f"--max-update={args.updates}"]
    saving = [f"--save-dir={folder}", "--no-epoch-checkpoints", "--disable-validation"]
    options = [*options, *TRAINING, *interval, *size, *saving]
    shutil.rmtree(folder, ignore_errors=True)  # otherwise training would resume from the last round
    speeds = figures("train", data, *options, pattern=r"wps=([\d.]+)")
    return statistics.mean(speeds[1:] or speeds)


def generate(data: str, folder: Path, options: list[str], args) -> float:
    """Sentences per second of beam search with hypotheses of a fixed length."""
    length = ["--max-len-a=0", f"--max-len-b={args.length}", f"--min-len={args.length}"]
    path = [f"--path={folder / 'checkpoint_last.pt'}", "--gen-subset=valid", "--quiet", ONE_GPU]
    size = [f"--beam={args.beam}", f"--max-tokens={args.max_tokens}"]
    pattern = r"([\d.]+) sentences/s"
    return figures("generate", data, *path, *size, *length, *options, pattern=pattern)[-1]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="?", help="data-bin of a translation recipe")
    parser.add_argument("--archs", default="stacked_lstm_iwslt,cas_lstm_iwslt")
    parser.add_argument("--threads", type=machine.positive, default=1)
    parser.add_argument("--rounds", type=machine.positive, default=3)
    parser.add_argument("--updates", type=machine.positive, default=24)
    parser.add_argument("--max-tokens", type=machine.positive, default=4000)
    parser.add_argument("--beam", type=machine.positive, default=10)
    parser.add_argument(
        "--length", type=machine.positive, default=15, help="tokens of every hypothesis"
    )
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    busy = machine.warn_if_busy(args.threads)
    models = contenders(args.archs.split(","))
    words, sentences = ({name: [] for name in models} for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or synthetic.write(folder)
        for _ in range(args.rounds):
            for name, (training, options) in models.items():
                run = Path(folder, "run", name)
                words[name].append(train(data, run, [*training, *options], args))
                sentences[name].append(generate(data, run, options, args))
    print(f"\n## fairseq-train and fairseq-generate, {args.threads} threads\n\n{busy}", end="")
    print(f"{args.max_tokens} tokens a batch, beam {args.beam}; fairseq's `lstm` without this")
    print("package. Otherwise fairseq's Adam and criterion, and float32 products; with torch_adam")
    print("the fused criterion, too.\n")
    rows = []
    for name in models:
        row = [name]
        for speeds in (words, sentences):
            speed, peer = (statistics.median(speeds[key]) for key in (name, PEER))
            row += [f"{speed:,.1f}", f"{speed / peer:.2f}"]
        rows.append(row)
    columns = ["model", "training words/s", "ratio", "decoding sentences/s", "ratio"]
    print(machine.table(columns, rows))


if __name__ == "__main__":
    main()

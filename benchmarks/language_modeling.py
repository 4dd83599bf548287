"""Training speed of a second-order LSTM language model compared with fairseq's ``lstm_lm``.

    python benchmarks/language_modeling.py [DATA_BIN] [--dtype fp16]

Both have one layer 300 → 600. The second-order LSTM mixes two such cells and carries the state of
64 streams from batch to batch; fairseq's model starts each of its 64 blocks from zeros. Without
DATA_BIN (of examples/wikitext2), the text is random words from a vocabulary as large as
WikiText-2's. The models take turns, and the median of several rounds counts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile

import machine
import synthetic
import torch
import training

from fairseq_casrnn import precision
from fairseq_casrnn.patches import allocation

PEER = "lstm_lm"
SIZES = ["--decoder-embed-dim=300", "--decoder-hidden-size=600"]
PEER_SIZES = [*SIZES, "--decoder-out-embed-dim=600", "--decoder-layers=1", "--dropout=0.5"]
TRAINING = ["--lr=1e-4", "--clip-norm=1", "--seed=1", "--num-workers=0"]
TRAINING += ["--distributed-world-size=1"]
FAIRSEQS = ["--optimizer=adam", "--criterion=cross_entropy"]
OURS = ["--optimizer=torch_adam", "--criterion=fused_cross_entropy"]


def command(arch: str, data: str, streams: int, steps: int, fast: bool = False) -> list[str]:
    """The command line of ``fairseq-train`` for batches of ``streams`` × ``steps`` tokens.

    ``fast`` selects OURS, except for the baseline PEER.
    """
    argv = [data, f"--arch={arch}", f"--batch-size={streams}", *TRAINING]
    argv += OURS if fast and arch != PEER else FAIRSEQS
    if arch == PEER:
        return [*argv, *PEER_SIZES, "--task=language_modeling", f"--tokens-per-sample={steps}"]
    return [*argv, "--task=stateful_language_modeling", f"--bptt={steps}"]


def compare(data: str, archs: list[str], args) -> dict[str, float]:
    """Median training words per second of each model."""
    jobs, speeds = {}, {arch: [] for arch in archs}
    for arch in archs:
        argv = command(arch, data, args.streams, args.steps, args.fast)
        task, trainer = training.build(argv, args.dtype)
        jobs[arch] = trainer, training.batches(task, trainer, args.updates)
    for number in range(args.rounds + 1):
        for arch, job in jobs.items():
            speed = training.train(*job)
            if number > 0:  # the first round warms up
                speeds[arch].append(speed)
    return {arch: statistics.median(values) for arch, values in speeds.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="?", help="data-bin of a language model's recipe")
    parser.add_argument("--archs", default="second_order_lstm_lm_wikitext2")
    for option, number in (("--threads", 1), ("--rounds", 5), ("--updates", 6)):
        parser.add_argument(option, type=machine.positive, default=number)
    for option, number in (("--streams", 64), ("--steps", 70)):
        parser.add_argument(option, type=machine.positive, default=number, help="per batch")
    parser.add_argument("--precision", default="highest", choices=precision.TRAINING_CHOICES)
    training.add_dtype(parser)
    parser.add_argument(
        "--fast", action="store_true", help="our models with this package's optimizer and criterion"
    )
    args = parser.parse_args()
    allocation.keep_freed_memory()
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(args.precision)
    busy = machine.warn_if_busy(args.threads)
    archs = [PEER, *args.archs.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        tokens = args.streams * args.steps * (args.updates + 2)
        data = args.data or synthetic.write_text(folder, tokens)
        speeds = compare(data, archs, args)
    settings = f"{args.threads} threads, {args.dtype}, {args.precision} precision"
    settings += ", our optimizer and criterion" * args.fast
    print(f"\n## Language models, {settings}\n\n{busy}", end="")
    print(f"{args.streams} streams x {args.steps} tokens a batch.\n")
    rows = [
        [arch, f"{speed:,.0f}", f"{speed / speeds[PEER]:.2f}"] for arch, speed in speeds.items()
    ]
    print(machine.table(["model", "training words/s", "ratio"], rows))


if __name__ == "__main__":
    main()

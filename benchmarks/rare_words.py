"""Speed of Adam's update of an embedding table most of whose words have not occurred for long.

    python benchmarks/rare_words.py

Their averages are denormal numbers, as after 1,000 updates. fairseq's adam and torch's, with such
numbers kept, and flushed to zero as fairseq-train does with this plugin; one thread. Prints a
Markdown table.
"""

from __future__ import annotations

import argparse
from argparse import Namespace

import machine
import torch

from fairseq_casrnn import allocation, precision

SIZES = [(5208, 256), (18453, 300)]
FREQUENT = 500  # words that occur in every batch
DENORMAL = 1e-40


def job(optimizer: str, flushed: bool, size: tuple[int, int]):
    """An update with its own table and state."""
    from fairseq.optim.adam import FairseqAdam

    from fairseq_casrnn.optim.torch_adam import TorchAdam

    table = torch.nn.Parameter(0.1 * torch.randn(size))
    kind = {"adam": FairseqAdam, "torch_adam": TorchAdam}[optimizer]
    settings = {"adam_betas": "(0.9, 0.999)", "adam_eps": 1e-8, "weight_decay": 0.0, "lr": [1e-3]}
    adam = kind(Namespace(**settings, tpu=False, use_old_adam=True, fp16_adam_stats=False), [table])
    table.grad = torch.zeros(size)
    table.grad[:FREQUENT] = 1e-3
    adam.step()
    adam.optimizer.state[table]["exp_avg"][FREQUENT:] = DENORMAL

    def update() -> None:
        torch.set_flush_denormal(flushed)
        adam.step()
        torch.set_flush_denormal(False)

    return update


def rows(size: tuple[int, int], rounds: int) -> list[list[str]]:
    """Of one size: milliseconds of both, and their ratio, for each optimizer."""
    jobs = {
        (optimizer, flushed): job(optimizer, flushed, size)
        for optimizer in ("adam", "torch_adam")
        for flushed in (False, True)
    }
    seconds = machine.median_seconds(jobs, rounds)
    return [
        [
            ", ".join(map(str, size)),
            optimizer,
            *(f"{1e3 * seconds[optimizer, flushed]:.1f}" for flushed in (False, True)),
            f"{seconds[optimizer, True] / seconds[optimizer, False]:.2f}",
        ]
        for optimizer in ("adam", "torch_adam")
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=machine.positive, default=9)
    args = parser.parse_args()
    allocation.keep_freed_memory()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if not precision.flush_denormals():
        raise SystemExit("error: this processor cannot flush denormal numbers")
    torch.set_flush_denormal(False)
    print("\n## Adam and rare words\n")
    print(machine.warn_if_busy(1), end="")
    columns = ["words, features", "optimizer", "kept, ms", "flushed, ms", "ratio"]
    print(machine.table(columns, [row for size in SIZES for row in rows(size, args.rounds)]))


if __name__ == "__main__":
    main()

"""Speed of Adam on an embedding table most of whose words have not occurred for many updates.

    python benchmarks/rare_words.py

The gradient averages of such words decay to denormal numbers, which are slow. Measures fairseq's
Adam and torch's with denormals kept, and with denormals flushed to zero, as fairseq-train does with
this plugin. It uses one thread and prints a Markdown table.
"""

from __future__ import annotations

import argparse
from argparse import Namespace

import machine
import torch
from fairseq.optim.adam import FairseqAdam

from fairseq_casrnn.optim.torch_adam import TorchAdam
from fairseq_casrnn.patches import allocation

SIZES = [(5208, 256), (18453, 300)]
OPTIMIZERS = {"adam": FairseqAdam, "torch_adam": TorchAdam}
FREQUENT = 500  # words that occur in every batch
DENORMAL = 1e-40
SETTINGS = Namespace(adam_betas="(0.9, 0.999)", adam_eps=1e-8, weight_decay=0.0, lr=[1e-3])
SETTINGS.tpu, SETTINGS.use_old_adam, SETTINGS.fp16_adam_stats = False, True, False


def table_and_optimizer(name: str, size: tuple[int, int]):
    """An embedding table and its optimizer, whose averages of rare words are denormal."""
    table = torch.nn.Parameter(0.1 * torch.randn(size))
    adam = OPTIMIZERS[name](SETTINGS, [table])
    table.grad = torch.zeros(size)
    table.grad[:FREQUENT] = 1e-3
    adam.step()
    adam.optimizer.state[table]["exp_avg"][FREQUENT:] = DENORMAL
    return table, adam


def job(name: str, flushed: bool, size: tuple[int, int]):
    """A function that makes one update of a table of its own."""
    _, adam = table_and_optimizer(name, size)

    def update() -> None:
        torch.set_flush_denormal(flushed)
        adam.step()
        torch.set_flush_denormal(False)

    return update


def rows(size: tuple[int, int], rounds: int) -> list[list[str]]:
    """A row per optimizer: milliseconds with denormals kept and flushed, and their ratio."""
    kinds = [(name, flushed) for name in OPTIMIZERS for flushed in (False, True)]
    seconds = machine.median_seconds({kind: job(*kind, size) for kind in kinds}, rounds)
    return [
        [
            ", ".join(map(str, size)),
            name,
            *(f"{1e3 * seconds[name, flushed]:.1f}" for flushed in (False, True)),
            f"{seconds[name, True] / seconds[name, False]:.2f}",
        ]
        for name in OPTIMIZERS
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=machine.positive, default=9)
    args = parser.parse_args()
    allocation.keep_freed_memory()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print("\n## Adam and rare words: 1 thread\n")
    print(machine.warn_if_busy(1), end="")
    columns = ["words, features", "optimizer", "kept, ms", "flushed, ms", "ratio"]
    print(machine.table(columns, [row for size in SIZES for row in rows(size, args.rounds)]))


if __name__ == "__main__":
    main()

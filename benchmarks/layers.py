"""Speed of the recurrent layers beside ``torch.nn.LSTM`` of the same sizes.

    python benchmarks/layers.py [--threads 1] [--cells cas_lstm,dg_lstm] [--engines cpp,eager]

All layers of one setting take turns in one process, round after round, and the median round counts,
so that a slow moment of the machine falls on all alike; only ratios within one run mean anything.
Prints Markdown tables: milliseconds, tokens a second, the time over nn.LSTM's, and the same per
unit of arithmetic (a cell with five gates multiplies more than one with four).

nn.LSTM concatenates its two directions after every layer and so computes more than two independent
stacks; beside bidirectional layers it is therefore built as two one-directional ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import torch
from torch import nn

from fairseq_casrnn import layers, recurrence

SETTINGS = {  # H, B, T, two directions
    "256": (256, 64, 30, False),
    "300bi": (300, 64, 30, True),
    "650": (650, 20, 35, False),
    "1024": (1024, 64, 50, False),
}
DEPTH = 2
CELLS = "stacked_lstm,cas_lstm,highway_lstm,dg_lstm,normalized_lstm,stacked_gru,second_order_lstm"


class Both(nn.Module):
    """Two nn.LSTMs, one of which reads backwards; their outputs side by side."""

    def __init__(self, *sizes):
        super().__init__()
        self.stacks = nn.ModuleList([nn.LSTM(*sizes), nn.LSTM(*sizes)])

    def forward(self, x):
        """``(T, B, 2H)`` in a tuple, as nn.LSTM's output stands in one."""
        forth, back = self.stacks
        return (torch.cat([forth(x)[0], back(x.flip(0))[0].flip(0)], dim=-1),)


def contenders(cells: list[str], engines: list[str], size: int, both: bool) -> dict[str, nn.Module]:
    """nn.LSTM and every cell on every engine, by name."""
    sizes = (size, size, DEPTH)
    models = {"nn.LSTM": Both(*sizes) if both else nn.LSTM(*sizes)}
    for cell in cells:
        for engine in engines:
            name = f"{cell} ({engine})"
            models[name] = layers.build(cell, *sizes, bidirectional=both, engine=engine)
    return models


def arithmetic(model: nn.Module) -> int:
    """Multiplications of one token: every weight matrix's elements."""
    return sum(p.numel() for name, p in model.named_parameters() if "weight" in name)


def forward(model: nn.Module, x, grad) -> None:
    """One inference."""
    with torch.no_grad():
        model(x)


def train(model: nn.Module, x, grad) -> None:
    """One forward and backward, to the input and all parameters."""
    for tensor in (x, *model.parameters()):
        tensor.grad = None
    model(x)[0].backward(grad)


def measure(models: dict, work, x, grad, rounds: int, clock) -> dict[str, float]:
    """Median seconds of each model, which take turns; two rounds to warm up."""
    times = {name: [] for name in models}
    for _ in range(rounds + 2):
        for name, model in models.items():
            start = clock()
            work(model, x, grad)
            times[name].append(clock() - start)
    return {name: statistics.median(seconds[2:]) for name, seconds in times.items()}


def report(models: dict, seconds: dict[str, float], tokens: int) -> None:
    """One Markdown row a model; the first is the peer."""
    peer = next(iter(models))
    print("| layer | ms | tokens/s | over nn.LSTM | per unit of arithmetic |")
    print("|---|---|---|---|---|")
    for name, model in models.items():
        ratio = seconds[name] / seconds[peer]
        unit = ratio * arithmetic(models[peer]) / arithmetic(model)
        rate = tokens / seconds[name]
        print(f"| {name} | {1e3 * seconds[name]:.1f} | {rate:,.0f} | {ratio:.2f} | {unit:.2f} |")


def warn_if_busy(threads: int) -> None:
    """Says so when other processes are running: then nothing measured here means much."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores - threads + 0.3:
        print(f"warning: the load is {load:.1f} on {cores} cores; measure on an idle machine\n")


def main() -> None:
    """Run the settings asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cells", default=CELLS, help="comma-separated families of cells")
    parser.add_argument("--engines", default=recurrence.DEFAULT, help="comma-separated")
    parser.add_argument("--settings", default="256,300bi,650", help=", ".join(SETTINGS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--precision", default="highest", help="highest, high or medium")
    parser.add_argument("--cpu-time", action="store_true", help="for one thread on a busy machine")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(args.precision)
    warn_if_busy(args.threads)
    clock = time.process_time if args.cpu_time else time.perf_counter
    for setting in args.settings.split(","):
        size, batch, steps, both = SETTINGS[setting]
        torch.manual_seed(1)
        models = contenders(args.cells.split(","), args.engines.split(","), size, both)
        x = torch.randn(steps, batch, size, requires_grad=True)
        grad = torch.randn(steps, batch, size * (1 + both))
        for work in (train, forward):
            print(
                f"\n{work.__name__}: H {size}{' bidirectional' * both}, B {batch}, T {steps}, ",
                end="",
            )
            print(f"{DEPTH} layers, {args.threads} threads, {args.precision} precision\n")
            seconds = measure(models, work, x, grad, args.rounds, clock)
            report(models, seconds, steps * batch)


if __name__ == "__main__":
    main()

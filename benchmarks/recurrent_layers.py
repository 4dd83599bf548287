"""Speed of the recurrent layers compared with ``torch.nn.LSTM`` of the same sizes.

    python benchmarks/recurrent_layers.py [--threads 1] [--cells cas_lstm,dg_lstm] [--engines cpp]
    python benchmarks/recurrent_layers.py --settings 256,1024 --engines triton --dtype bfloat16

Prints Markdown tables with milliseconds, microseconds per step and layer, tokens per second, the
ratio to nn.LSTM's time, that ratio per unit of arithmetic (five gates multiply more than four), and
the share of the machine's matrix multiplication speed, which is measured first; on a GPU also the
share of the time that it is busy. Engine ``reference`` is a plain Python loop over time. Settings
12 and 24 show the overhead of a step.

nn.LSTM concatenates its directions after every layer, which means larger products. Bidirectional
layers are therefore compared with two unidirectional nn.LSTMs.
"""

from __future__ import annotations

import argparse
from functools import partial

import machine
import torch
from torch import nn

from fairseq_casrnn import layers, precision, recurrence
from fairseq_casrnn.cells import FAMILIES

SETTINGS = {  # H, B, T, two directions
    "256": (256, 64, 30, False),
    "300bi": (300, 64, 30, True),
    "650": (650, 20, 35, False),
    "1024": (1024, 64, 50, False),
    "12": (12, 10, 500, False),
    "24": (24, 10, 500, False),
}
DEPTH = 2
CELLS = "stacked_lstm,cas_lstm,highway_lstm,dg_lstm,normalized_lstm,stacked_gru,second_order_lstm"
RATIOS = ["over nn.LSTM", "per unit of arithmetic", "of the ceiling"]
COLUMNS = ["layer", "ms", "µs a step", "tokens/s", *RATIOS]


class Both(nn.Module):
    """Two nn.LSTMs, one of which reads the sequence reversed, with concatenated outputs."""

    def __init__(self, *sizes):
        super().__init__()
        self.stacks = nn.ModuleList([nn.LSTM(*sizes), nn.LSTM(*sizes)])

    def forward(self, x):
        """A tuple whose first element is the output ``(T, B, 2H)``, as nn.LSTM returns it."""
        forth, back = self.stacks
        return (torch.cat([forth(x)[0], back(x.flip(0))[0].flip(0)], dim=-1),)


def contenders(cells: list[str], engines: list[str], size: int, both: bool) -> dict[str, nn.Module]:
    """nn.LSTM and all cells by name: the first cell on all engines, the others on the first one."""
    sizes = (size, size, DEPTH)
    models = {"nn.LSTM": Both(*sizes) if both else nn.LSTM(*sizes)}
    for cell in cells:
        for engine in engines if cell == cells[0] else engines[:1]:
            name = f"{cell} ({engine})"
            models[name] = layers.build(cell, *sizes, bidirectional=both, engine=engine)
    return models


def arithmetic(model: nn.Module) -> int:
    """Multiplications per token: all elements of weight matrices, or one cell's if routed hard."""
    weights = {name: p.numel() for name, p in model.named_parameters() if "weight" in name}
    routed = not model.training and getattr(model, "engine", None) == "cpp"
    routed = routed and weights["weight_hh_l0"] >= recurrence.cpp.ROUTED_WEIGHTS
    return sum(weights.values()) // (getattr(model.options, "num_cells", 1) if routed else 1)


def forward(model: nn.Module, x, grad) -> None:
    """One forward without gradients."""
    with torch.no_grad():
        model(x)


def train(model: nn.Module, x, grad) -> None:
    """One forward and backward, with gradients of the input and all parameters."""
    for tensor in (x, *model.parameters()):
        tensor.grad = None
    model(x)[0].backward(grad)


def compare(
    setting: str,
    cells: list[str],
    engines: list[str],
    rounds: int,
    device: str,
    dtype: torch.dtype = torch.float32,
) -> str:
    """Both tables of a setting, as Markdown."""
    size, batch, steps, both = SETTINGS[setting]
    torch.manual_seed(1)
    models = contenders(cells, engines, size, both)
    for model in models.values():
        model.to(device, dtype)
    x = torch.randn(steps, batch, size, device=device, dtype=dtype, requires_grad=True)
    grad = torch.randn(steps, batch, size * (1 + both), device=device, dtype=dtype)
    # The products of one step and of a whole sequence, and a large one at about peak speed.
    shapes = [(batch, size, 4 * size), (steps * batch, size, 4 * size), (1024, 1024, 1024)]
    with torch.no_grad():
        ceiling = machine.ceiling(shapes, device, dtype)
    sizes = f"H {size}{' bidirectional' * both}, B {batch}, T {steps}, {DEPTH} layers"
    text = f"{sizes}. Ceiling, the fastest product: {ceiling / 1e9:.0f} GFLOP/s.\n"
    for work, title, passes in ((train, "Training", 3), (forward, "Inference", 1)):
        nn.ModuleList(models.values()).train(work is train)
        jobs = {name: partial(work, model, x, grad) for name, model in models.items()}
        seconds = machine.median_seconds(jobs, rounds)
        rows = []
        for name, model in models.items():
            ratio = seconds[name] / seconds["nn.LSTM"]
            unit = ratio * arithmetic(models["nn.LSTM"]) / arithmetic(model)
            share = 2 * passes * arithmetic(model) * steps * batch / seconds[name] / ceiling
            step, rate = 1e6 * seconds[name] / (steps * DEPTH), steps * batch / seconds[name]
            figures = [f"{1e3 * seconds[name]:.1f}", f"{step:.1f}", f"{rate:,.0f}"]
            rows.append([name, *figures, f"{ratio:.2f}", f"{unit:.2f}", f"{share:.0%}"])
            if device == "cuda":
                rows[-1].append(f"{machine.gpu_seconds(jobs[name]) / seconds[name]:.0%}")
        columns = [*COLUMNS, "GPU busy"] if device == "cuda" else COLUMNS
        text += f"\n{title}:\n\n" + machine.table(columns, rows)
    return text


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option, number in (("--threads", 1), ("--rounds", 15)):
        parser.add_argument(option, type=machine.positive, default=number)
    names = machine.names_of
    parser.add_argument("--cells", type=names(FAMILIES), default=CELLS, help="comma-separated")
    device = machine.device()
    engines, known = f"{recurrence.default(device)},reference", names(recurrence.installed(device))
    parser.add_argument("--engines", type=known, default=engines, help="the first runs all cells")
    parser.add_argument("--settings", type=names(SETTINGS), default="256,300bi,650")
    parser.add_argument("--precision", default="highest", choices=precision.TRAINING_CHOICES)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(args.precision)
    # cuDNN has a switch of its own, which is on by default.
    torch.backends.cudnn.allow_tf32 = args.precision != "highest"
    print(f"\n## Layers, {args.threads} threads, {args.dtype}, {args.precision} precision\n")
    print(machine.warn_if_busy(args.threads), end="")
    dtype = getattr(torch, args.dtype)
    for setting in args.settings:
        print(compare(setting, args.cells, args.engines, args.rounds, device, dtype), flush=True)


if __name__ == "__main__":
    main()

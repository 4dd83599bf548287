"""Time of a training step by T, B, H, L and S, as tables and log-log curves.

    python benchmarks/scaling.py [--threads 1] [--out DIR]

One size varies at a time, while the others are those of BASE. Writes DIR/scaling.png.
"""

from __future__ import annotations

import argparse
import logging
import sys
from functools import partial
from pathlib import Path

import machine
import torch
from recurrent_layers import train
from torch import nn

from fairseq_casrnn import layers

BASE = {"T": 32, "B": 32, "H": 256, "L": 2, "S": 2}
VALUES = {
    "T": (8, 16, 32, 64, 128),
    "B": (4, 8, 16, 32, 64),
    "H": (16, 64, 128, 256, 512),
    "L": (1, 2, 4, 8),
    "S": (1, 2, 4, 8),
}


def models(sizes: dict, device: str) -> dict[str, nn.Module]:
    """nn.LSTM, CAS-LSTM and second-order LSTM of these sizes."""
    shape = (sizes["H"], sizes["H"], sizes["L"])
    by_name = {
        "nn.LSTM": nn.LSTM(*shape),
        "cas_lstm": layers.CASLSTM(*shape),
        "second_order_lstm": layers.SecondOrderLSTM(*shape, num_cells=sizes["S"]),
    }
    return {name: model.to(device) for name, model in by_name.items()}


def milliseconds(axis: str, rounds: int, device: str) -> dict[str, list[float]]:
    """Milliseconds of each model at each value of the axis."""
    curves: dict[str, list[float]] = {}
    for value in VALUES[axis]:
        sizes = {**BASE, axis: value}
        shape = (sizes["T"], sizes["B"], sizes["H"])
        x = torch.randn(*shape, device=device, requires_grad=True)
        measured = models(sizes, device)
        if axis == "S":  # the other models are not mixtures
            measured = {"second_order_lstm": measured["second_order_lstm"]}
        jobs = {name: partial(train, m, x, torch.ones_like(x)) for name, m in measured.items()}
        for name, seconds in machine.median_seconds(jobs, rounds).items():
            curves.setdefault(name, []).append(1e3 * seconds)
    return curves


def draw(panels: dict[str, tuple], path: Path, title: str) -> None:
    """Draw one log-log panel per axis; without matplotlib, only print a message.

    ``panels`` has, by axis, its values and the curves over them by name.
    """
    try:
        import matplotlib
    except ImportError:
        print(
            f"{path} is not drawn: it needs matplotlib (pip install 'fairseq-casrnn[plots]')",
            file=sys.stderr,
        )
        return
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq turns DEBUG on
    matplotlib.use("Agg")
    from matplotlib import pyplot

    width = 1.4 + 3.2 * len(panels)
    figure, grid = pyplot.subplots(1, len(panels), figsize=(width, 3), sharey=True, squeeze=False)
    for panel, (axis, (ticks, curves)) in zip(grid[0], panels.items(), strict=True):
        for name, values in curves.items():
            panel.loglog(ticks, values, marker="o", markersize=3, label=name)
        panel.set_xlabel(axis)
        panel.set_xticks(ticks, [str(value) for value in ticks])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    grid[0, 0].set_ylabel("ms, forward and backward")
    grid[0, 0].legend(fontsize=7)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=machine.positive, default=1)
    parser.add_argument("--rounds", type=machine.positive, default=7)
    parser.add_argument(
        "--out", type=machine.plots_folder, help="folder of the plot (default: this machine's)"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = machine.device()
    torch.manual_seed(1)
    others = ", ".join(f"{axis} {value}" for axis, value in BASE.items())
    print(f"\n## Scaling, {args.threads} threads: ms of a training step; otherwise {others}\n")
    print(machine.warn_if_busy(args.threads), end="")
    results = {axis: milliseconds(axis, args.rounds, device) for axis in VALUES}
    for axis, curves in results.items():
        columns = [axis, *map(str, VALUES[axis])]
        rows = [[name, *(f"{ms:.2f}" for ms in values)] for name, values in curves.items()]
        print(machine.table(columns, rows))
    path = (args.out or machine.folder()) / "scaling.png"
    panels = {axis: (VALUES[axis], curves) for axis, curves in results.items()}
    draw(panels, path, f"{machine.name()}, {args.threads} threads; otherwise {others}")


if __name__ == "__main__":
    main()

"""How far the gates on the cell below are open: ``casrnn analyze gates``.

The CAS-LSTM paper's Figure 4: histograms of the vertical forget gates, of their range over the
features of a time step, and of their distance from the output gate of the layer below, which reads
the same cell. Likewise for the depth gates of depth-gated and highway LSTMs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import check_writable, whole_file

V = TypeVar("V")

BINS = 50
OUTPUT, BELOW = 3, 4  # blocks i f g o and, where the cell reads the one below, its gate
MEASURES = {
    "gate": "gate on the cell below",
    "range": "range within a time step",
    "difference": "|gate - output gate below|",
}


@dataclass
class Histogram:
    """Counts of values in [0, 1] by :data:`BINS` bins, and their moments."""

    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))
    total: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Count some values."""
        self.counts += np.histogram(values, bins=BINS, range=(0, 1))[0]
        self.total += float(values.sum(dtype=np.float64))
        self.squares += float(np.square(values, dtype=np.float64).sum())

    @property
    def mean(self) -> float:
        """Their mean."""
        return self.total / self.counts.sum()

    @property
    def deviation(self) -> float:
        """Their standard deviation."""
        return max(self.squares / self.counts.sum() - self.mean**2, 0.0) ** 0.5

    def share(self, low: float, high: float) -> float:
        """Share of the values in [low, high], which are borders of bins."""
        first, last = round(low * BINS), round(high * BINS)
        return float(self.counts[first:last].sum() / self.counts.sum())


def measure(readings) -> dict[tuple[int, str], dict[str, Histogram]]:
    """Histograms of :data:`MEASURES` by (layer, direction), the layer counted from 0.

    Args:
        readings: of :func:`.tracing.readings`.
    """
    found: dict[tuple[int, str], dict[str, Histogram]] = {}
    for _, groups in readings:
        for passes in groups:
            gates = {(one.layer, one.direction): one.gates.cpu().numpy() for one in passes}
            for (layer, direction), blocks in gates.items():
                if layer == 0 or blocks.shape[1] <= BELOW:
                    continue
                own = found.setdefault((layer, direction), {name: Histogram() for name in MEASURES})
                gate, below = blocks[:, BELOW], gates[layer - 1, direction][:, OUTPUT]
                own["gate"].add(gate)
                own["range"].add(gate.max(-1) - gate.min(-1))
                own["difference"].add(np.abs(gate - below))
    return dict(sorted(found.items()))


def name_of(layer: int, direction: str, both: bool) -> str:
    """A layer as people count them."""
    way = (", backward" if direction else ", forward") if both else ""
    return f"layer {layer + 1}{way}"


def named(found: Mapping[tuple[int, str], V]) -> dict[str, V]:
    """The same by the layers' names."""
    both = any(direction for _, direction in found)
    return {name_of(layer, direction, both): own for (layer, direction), own in found.items()}


def lines_of_table(found: dict[str, dict[str, Histogram]]) -> list[str]:
    """A line for each layer."""
    width = max(len(name) for name in found)
    head = "gate    sd  <=0.1  >=0.9  range in a step  |gate - output gate below|"
    lines = [f"{'':<{width}}  {head}"]
    for name, own in found.items():
        gate = own["gate"]
        lines.append(
            f"{name:<{width}}  {gate.mean:.2f}  {gate.deviation:.2f}   {gate.share(0, 0.1):.2f}   "
            f"{gate.share(0.9, 1):.2f}  {own['range'].mean:>15.2f}  "
            f"{own['difference'].mean:>26.2f}"
        )
    return lines


def write_csv(path: Path, found: dict[str, dict[str, Histogram]]) -> None:
    """Columns layer, measure, from, to, count. Raises UserError where it cannot be written."""
    edges = np.linspace(0, 1, BINS + 1)
    with whole_file(path) as file:
        file.write("layer,measure,from,to,count\n")
        for name, own in found.items():
            for measure_name, histogram in own.items():
                for low, high, count in zip(edges, edges[1:], histogram.counts, strict=False):
                    file.write(f'"{name}",{measure_name},{low:.2f},{high:.2f},{count}\n')


def plot(png: Path, found: dict[str, dict[str, Histogram]]) -> None:
    """Draw the histograms, a row for each layer. Raises UserError: no matplotlib."""
    from fairseq_casrnn.analysis import plots

    figure, axes = plots.figure_grid(len(found), len(MEASURES), 3.4, 2.4)
    centres = (np.arange(BINS) + 0.5) / BINS
    for row, (name, own) in zip(axes, found.items(), strict=True):
        for at, (key, histogram) in zip(row, own.items(), strict=True):
            at.bar(centres, histogram.counts / histogram.counts.sum(), 1 / BINS, color="#9ab6d6")
            at.set_title(f"{MEASURES[key]}, {name}", loc="left", fontsize=8)
            at.set_xlim(0, 1)
            at.spines[["top", "right"]].set_visible(False)
    plots._save(figure, png)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn analyze gates``."""
    parser.description = (
        "How far the gates on the cell below are open (CAS-LSTM paper, Figure 4) while a model, "
        "of a translation model the encoder, reads sentences."
    )
    add_reading_arguments(parser, sentences=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the choice of sentences (1)")
    parser.add_argument("--csv", type=Path, help="file for the histograms")
    parser.add_argument("--png", type=Path, help="file for a plot of them")


def add_reading_arguments(parser: argparse.ArgumentParser, sentences: int) -> None:
    """What is read by which model."""
    parser.add_argument("data", type=Path, help="data-bin that the model was trained on")
    parser.add_argument("--path", required=True, type=Path, help="checkpoint, or its folder")
    parser.add_argument("--subset", default="valid", help="split to read (default: valid)")
    parser.add_argument(
        "--sentences", type=int, default=sentences, help=f"how many of it (default: {sentences})"
    )


def run(args: argparse.Namespace) -> None:
    """Print the table, write histograms and plot. Raises UserError."""
    from fairseq_casrnn.analysis import tracing

    if args.sentences < 1:
        raise UserError(f"--sentences is {args.sentences}; it must be at least 1")
    check_writable(args.csv, args.png)
    model, task = tracing.load(args.path, args.data)
    if not any(cell.lower_cell for stack in tracing.stacks(model) for cell in stack.cells):
        raise UserError(
            f"{args.path} has no gates on the cell below; give a model of cas_lstm, dg_lstm or "
            "highway_lstm with two layers or more"
        )
    found = named(
        measure(tracing.readings(model, task, args.data, args.subset, args.sentences, args.seed))
    )
    if args.csv is not None:
        write_csv(args.csv, found)
    if args.png is not None:
        plot(args.png, found)
    print("\n".join(lines_of_table(found)))

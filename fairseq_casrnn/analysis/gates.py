"""How open the gates on the cell below are: ``casrnn analyze gates``.

As in the CAS-LSTM paper's Figure 4: histograms of the vertical forget gates, of their range over
the features of a time step, and of their difference from the output gate of the layer below, which
reads the same cell. The same for the depth gates of depth-gated and highway LSTMs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fairseq_casrnn.analysis.reading import add_reading_arguments, by_layer_name
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.files import check_writable, whole_file
from fairseq_casrnn.inference.tracing import LOWER_CELL_GATE, OUTPUT_GATE

BINS = 50
MEASURES = {
    "gate": "gate on the cell below",
    "range": "range within a time step",
    "difference": "|gate - output gate below|",
}


@dataclass
class Histogram:
    """Counts of values in [0, 1] in :data:`BINS` bins, and their first two moments."""

    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))
    total: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Add values."""
        self.counts += np.histogram(values, bins=BINS, range=(0, 1))[0]
        self.total += float(values.sum(dtype=np.float64))
        self.squares += float(np.square(values, dtype=np.float64).sum())

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return self.total / self.counts.sum()

    @property
    def deviation(self) -> float:
        """Standard deviation of the values."""
        return max(self.squares / self.counts.sum() - self.mean**2, 0.0) ** 0.5

    def share(self, low: float, high: float) -> float:
        """Share of the values in [low, high], which must be edges of bins."""
        first, last = round(low * BINS), round(high * BINS)
        return float(self.counts[first:last].sum() / self.counts.sum())


def measure(traced_sentences) -> dict[tuple[int, str], dict[str, Histogram]]:
    """Histograms of :data:`MEASURES` by (layer, direction), the layer counted from 0.

    Args:
        traced_sentences: of :func:`.tracing.trace_sentences`.
    """
    histograms: dict[tuple[int, str], dict[str, Histogram]] = {}
    for _, groups in traced_sentences:
        for traces in groups:
            gates = {(trace.layer, trace.direction): trace.gates.cpu().numpy() for trace in traces}
            for (layer, direction), blocks in gates.items():
                if layer == 0 or blocks.shape[1] <= LOWER_CELL_GATE:
                    continue
                empty = {name: Histogram() for name in MEASURES}
                by_measure = histograms.setdefault((layer, direction), empty)
                gate = blocks[:, LOWER_CELL_GATE]
                output_gate_below = gates[layer - 1, direction][:, OUTPUT_GATE]
                by_measure["gate"].add(gate)
                by_measure["range"].add(gate.max(-1) - gate.min(-1))
                by_measure["difference"].add(np.abs(gate - output_gate_below))
    return dict(sorted(histograms.items()))


def table_lines(histograms: dict[str, dict[str, Histogram]]) -> list[str]:
    """A table with a line for each layer."""
    width = max(len(name) for name in histograms)
    head = "gate    sd  <=0.1  >=0.9  range in a step  |gate - output gate below|"
    lines = [f"{'':<{width}}  {head}"]
    for name, by_measure in histograms.items():
        gate = by_measure["gate"]
        lines.append(
            f"{name:<{width}}  {gate.mean:.2f}  {gate.deviation:.2f}   {gate.share(0, 0.1):.2f}   "
            f"{gate.share(0.9, 1):.2f}  {by_measure['range'].mean:>15.2f}  "
            f"{by_measure['difference'].mean:>26.2f}"
        )
    return lines


def write_csv(path: Path, histograms: dict[str, dict[str, Histogram]]) -> None:
    """Columns layer, measure, from, to, count. Raises UserError if it cannot be written."""
    edges = np.linspace(0, 1, BINS + 1)
    with whole_file(path) as file:
        file.write("layer,measure,from,to,count\n")
        for name, by_measure in histograms.items():
            for measure_name, histogram in by_measure.items():
                for low, high, count in zip(edges, edges[1:], histogram.counts, strict=False):
                    file.write(f'"{name}",{measure_name},{low:.2f},{high:.2f},{count}\n')


def plot(png: Path, histograms: dict[str, dict[str, Histogram]]) -> None:
    """Plot the histograms, one row per layer. Raises UserError: no matplotlib."""
    from fairseq_casrnn import plotting

    figure, grid = plotting.figure_grid(len(histograms), len(MEASURES), 3.4, 2.4)
    centres = (np.arange(BINS) + 0.5) / BINS
    for row, (name, by_measure) in zip(grid, histograms.items(), strict=True):
        for axes, (key, histogram) in zip(row, by_measure.items(), strict=True):
            axes.bar(centres, histogram.counts / histogram.counts.sum(), 1 / BINS, color="#9ab6d6")
            axes.set_title(f"{MEASURES[key]}, {name}", loc="left", fontsize=8)
            axes.set_xlim(0, 1)
    plotting.save_png(figure, png)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn analyze gates``."""
    parser.description = (
        "How open the gates on the cell below are (CAS-LSTM paper, Figure 4) while a model reads "
        "sentences; of a translation model, the encoder."
    )
    add_reading_arguments(parser, sentences=1000)
    parser.add_argument(
        "--seed", type=int, default=1, help="seed for sampling the sentences (default: 1)"
    )
    parser.add_argument("--csv", type=Path, help="output file for the histograms")
    parser.add_argument("--png", type=Path, help="output file for a plot")


def run(args: argparse.Namespace) -> None:
    """Print the table, write histograms and plot. Raises UserError."""
    from fairseq_casrnn.inference import loading, tracing

    check_at_least(1, sentences=args.sentences)
    check_writable(args.csv, args.png)
    model, task = loading.load_model(args.path, args.data)
    if not any(
        cell.lower_cell for stack in tracing.recurrent_stacks(model) for cell in stack.cells
    ):
        raise UserError(
            f"{args.path} has no gates on the cell below; give a model of cas_lstm, dg_lstm or "
            "highway_lstm with two layers or more"
        )
    traced = tracing.trace_sentences(model, task, args.data, args.subset, args.sentences, args.seed)
    histograms = by_layer_name(measure(traced))
    if args.csv is not None:
        write_csv(args.csv, histograms)
    if args.png is not None:
        plot(args.png, histograms)
    print("\n".join(table_lines(histograms)))

"""How different the cells of a second-order LSTM are: ``casrnn analyze subspaces``.

As in its paper's Figures 4 and 5: principal angles between subspaces ("PABS") spanned by the
hidden-to-hidden matrices of two cells, for every pair of cells. If all angles are greater than 0,
the subspaces intersect only in 0.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np

from fairseq_casrnn.analysis.reading import add_model_arguments, by_layer_name
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import check_writable, whole_file


def recurrent_matrices(stack) -> dict[tuple[int, str], np.ndarray]:
    """The cells' hidden-to-hidden matrices ``(S, 4H, H)`` by (layer from 0, direction)."""
    size, cells = stack.hidden_size, stack.options.num_cells
    return {
        (layer, suffix): stack.layer_parameters(layer, suffix)
        .weight_hh.detach()
        .double()
        .cpu()
        .view(cells, 4 * size, size)
        .numpy()
        for layer in range(stack.num_layers)
        for suffix in stack.suffixes
    }


def angles(matrices: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    """Principal angles in degrees, ascending, for each pair of ``(S, rows, columns)`` matrices."""
    from scipy.linalg import subspace_angles

    return {
        (a, b): np.sort(np.degrees(subspace_angles(matrices[a], matrices[b])))
        for a, b in itertools.combinations(range(len(matrices)), 2)
    }


def table_lines(found: dict[str, dict[tuple[int, int], np.ndarray]]) -> list[str]:
    """A table with the smallest, median and largest angle of each pair of cells."""
    width = max(len(name) for name in found)
    lines = [f"{'':<{width}}  cells  smallest  median  largest angle"]
    for name, pairs in found.items():
        for (a, b), row in pairs.items():
            low, middle, high = row[0], np.median(row), row[-1]
            lines.append(
                f"{name:<{width}}  {a}, {b}  {low:>7.1f}°  {middle:>5.1f}°  {high:>12.1f}°"
            )
    return lines


def write_csv(path: Path, found: dict[str, dict[tuple[int, int], np.ndarray]]) -> None:
    """Columns layer, cell, other, index, degrees. Raises UserError."""
    with whole_file(path) as file:
        file.write("layer,cell,other,index,degrees\n")
        for name, pairs in found.items():
            for (a, b), row in pairs.items():
                for index, value in enumerate(row, start=1):
                    file.write(f'"{name}",{a},{b},{index},{value:.4f}\n')


def plot(png: Path, found: dict[str, dict[tuple[int, int], np.ndarray]]) -> None:
    """Plot the angles in ascending order, one panel per layer. Raises UserError: no matplotlib."""
    from fairseq_casrnn import plotting

    figure, (panels,) = plotting.figure_grid(1, len(found), 4.4, 3.4)
    for axes, (name, pairs) in zip(panels, found.items(), strict=True):
        for (a, b), row in pairs.items():
            axes.plot(range(1, len(row) + 1), row, lw=1.5, label=f"cells {a}, {b}")
        axes.set_ylim(0, 90)
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_xlabel("principal vectors")
        axes.set_ylabel("angle, degrees")
        axes.legend(frameon=False, fontsize=7)
    plotting.save_png(figure, png)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn analyze subspaces``."""
    parser.description = (
        "Principal angles between the subspaces of the hidden-to-hidden matrices of a second-order "
        "LSTM's cells (its paper's Figures 4 and 5); of a translation model, the encoder's."
    )
    add_model_arguments(parser)
    parser.add_argument("--csv", type=Path, help="output file for the angles")
    parser.add_argument("--png", type=Path, help="output file for a plot")


def run(args: argparse.Namespace) -> None:
    """Print the table and write the files. Raises UserError."""
    from fairseq_casrnn.inference import loading, tracing
    from fairseq_casrnn.layers import SecondOrderLSTM

    check_writable(args.csv, args.png)
    model, _ = loading.load_model(args.path, args.data)
    stacks = tracing.recurrent_stacks(model, SecondOrderLSTM)
    if not stacks or stacks[0].options.num_cells < 2:
        raise UserError(
            f"{args.path} has no second-order LSTM of two cells or more; give a model that has one"
        )
    matrices = by_layer_name(recurrent_matrices(stacks[0]))
    found = {name: angles(cells) for name, cells in matrices.items()}
    if args.csv is not None:
        write_csv(args.csv, found)
    if args.png is not None:
        plot(args.png, found)
    print("\n".join(table_lines(found)))

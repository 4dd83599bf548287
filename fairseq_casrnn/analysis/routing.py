"""Which cell of a second-order LSTM processes which word: ``casrnn analyze routing``.

As in the second-order LSTM paper's Figure 6, on an HTML page: the colour of a word shows the cell
with the largest attention weight, and the intensity of the colour shows that weight.
"""

from __future__ import annotations

import argparse
import html
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_casrnn.analysis.reading import add_reading_arguments
from fairseq_casrnn.console.program import show
from fairseq_casrnn.errors import UserError, check_at_least
from fairseq_casrnn.files import check_writable, table_cell, whole_file, write_text

STYLE = (
    "body{font:16px/1.9 sans-serif;max-width:60em;margin:2em auto;color:#222}"
    "span{padding:.15em .25em;border-radius:.25em}p{margin:.6em 0}"
)


class Routed(NamedTuple):
    """A word, the cell that processed it, and that cell's weight under the softmax."""

    word: str
    cell: int
    weight: float


def route(traced_sentences, symbols: Sequence[str], layer: int) -> list[list[Routed]]:
    """The words of each sentence with their cells, in the forward direction of a layer.

    Args:
        traced_sentences: of :func:`.tracing.trace_sentences`.
        symbols: of the dictionary.
        layer: the layer, from 0.
    """
    sentences = []
    for rows, groups in traced_sentences:
        for row, traces in zip(rows, groups, strict=True):
            (trace,) = (t for t in traces if t.layer == layer and not t.direction)
            cells = trace.cells.tolist()
            if trace.weights is None:  # routing by assignment
                weights = [1.0] * len(cells)
            else:
                weights = [float(w[cell]) for w, cell in zip(trace.weights, cells, strict=True)]
            # A tagger's encoder does not read the </s> of the row.
            words = [symbols[token] for token in row[: len(cells)]]
            sentences.append(list(map(Routed, words, cells, weights)))
    return sentences


def consistency(sentences: Iterable[Sequence[Routed]]) -> tuple[int, int]:
    """For words that occur more than once: occurrences in the word's most frequent cell; all."""
    cells: dict[str, Counter] = defaultdict(Counter)
    for sentence in sentences:
        for word, cell, _ in sentence:
            cells[word][cell] += 1
    repeated = [counts for counts in cells.values() if counts.total() > 1]
    return sum(max(counts.values()) for counts in repeated), sum(c.total() for c in repeated)


def table_lines(sentences: Sequence[Sequence[Routed]], count: int) -> list[str]:
    """A table with the share, mean weight and most frequent words of each cell; consistency."""
    words_of_cell: list[Counter] = [Counter() for _ in range(count)]
    weights = [0.0] * count
    for sentence in sentences:
        for word, cell, weight in sentence:
            words_of_cell[cell][word] += 1
            weights[cell] += weight
    total = sum(words.total() for words in words_of_cell)
    lines = ["cell   share  weight  most frequent words"]
    for cell, words in enumerate(words_of_cell):
        mean = f"{weights[cell] / words.total():.3f}" if words else "–"
        often = " ".join(word for word, _ in words.most_common(10))
        lines.append(f"{cell:>4}  {100 * words.total() / total:5.1f}%  {mean:>6}  {often}")
    same, seen = consistency(sentences)
    if seen:
        lines.append(
            f"{100 * same / seen:.1f}% of the occurrences of words that occur more than once are "
            "in their word's usual cell"
        )
    return lines


def colour(cell: int, count: int, weight: float) -> str:
    """The cell's hue; its intensity grows with the weight above an even share."""
    even = 1 / count
    strength = 1.0 if count == 1 else min(max((weight - even) / (1 - even), 0.0), 1.0)
    return f"hsla({round(360 * cell / count + 30) % 360},75%,60%,{0.08 + 0.67 * strength:.2f})"


def page(sentences: Sequence[Sequence[Routed]], count: int, title: str) -> str:
    """The sentences as HTML; words have their cell's colour, and a tooltip with the weight."""

    def mark(routed: Routed) -> str:
        note = f"cell {routed.cell}, {routed.weight:.3f}"
        style = f"background:{colour(routed.cell, count, routed.weight)}"
        return f'<span style="{style}" title="{note}">{html.escape(routed.word)}</span>'

    legend = " ".join(mark(Routed(f"cell {cell}", cell, 1.0)) for cell in range(count))
    lines = [f"<p>{' '.join(map(mark, sentence))}</p>" for sentence in sentences]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8">',
            f"<title>{html.escape(title)}</title><style>{STYLE}</style>",
            f"<h1>{html.escape(title)}</h1>\n<p>{legend}</p>",
            *lines,
            "</html>\n",
        ]
    )


def write_tsv(path: Path, sentences: Sequence[Sequence[Routed]]) -> None:
    """Columns sentence, position, word (:func:`.table_cell`), cell, weight. Raises UserError."""
    with whole_file(path) as file:
        file.write("sentence\tposition\tword\tcell\tweight\n")
        for number, sentence in enumerate(sentences, start=1):
            for place, routed in enumerate(sentence, start=1):
                word = table_cell(routed.word)
                file.write(f"{number}\t{place}\t{word}\t{routed.cell}\t{routed.weight:.4f}\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn analyze routing``."""
    parser.description = (
        "Which cell of a second-order LSTM processes which word (its paper's Figure 6). The "
        "weights are those at the final temperature of the training; the cell is the one with the "
        "largest weight, as in evaluation."
    )
    add_reading_arguments(parser, sentences=20)
    parser.add_argument("--layer", type=int, default=1, help="layer to show (default: 1)")
    parser.add_argument("--html", type=Path, help="output file for the sentences, coloured by cell")
    parser.add_argument("--tsv", type=Path, help="output file with one line per word")


def run(args: argparse.Namespace) -> None:
    """Print the table and write the files. Raises UserError."""
    from fairseq_casrnn.inference import loading, tracing
    from fairseq_casrnn.layers import SecondOrderLSTM

    check_at_least(1, sentences=args.sentences)
    check_writable(args.html, args.tsv)
    model, task = loading.load_model(args.path, args.data)
    stacks = tracing.recurrent_stacks(model, SecondOrderLSTM)
    if not stacks:
        raise UserError(f"{args.path} has no second-order LSTM; give a model that has one")
    if not 1 <= args.layer <= stacks[0].num_layers:
        raise UserError(
            f"--layer is {args.layer}; the model has the layers 1 to {stacks[0].num_layers}"
        )
    count = stacks[0].options.num_cells
    sentences = route(
        tracing.trace_sentences(model, task, args.data, args.subset, args.sentences, seed=None),
        task.source_dictionary.symbols,
        args.layer - 1,
    )
    if args.tsv is not None:
        write_tsv(args.tsv, sentences)
    if args.html is not None:
        title = f"{args.subset}: layer {args.layer}, {count} cells"
        write_text(args.html, page(sentences, count, title))
    show(table_lines(sentences, count))

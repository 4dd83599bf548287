"""Draw data_flow.svg: the data flow through the package. Run it to write the file."""

import itertools
from pathlib import Path

from svg import Figure


def draw() -> Figure:
    """From a raw corpus to an update of the parameters, and to answers."""
    figure = Figure(860, 400, "Data flow, from a raw corpus to an update and to answers")
    figure.text(430, 34, "Data flow", "title")
    top = [
        (110, "raw corpus", "your files, or a corpus"),
        (325, "reader", "data/, prepare/"),
        (540, "data-bin", "fairseq-preprocess"),
        (750, "batches", "tasks/, padded"),
    ]
    for x, label, where in top:
        figure.box(x, 85, 150, 44, label)
        figure.text(x, 130, where, "small")
    for (x, *_), (after, *_) in itertools.pairwise(top):
        figure.arrow((x + 75, 85), (after - 76, 85))
    figure.arrow((750, 140), (750, 182))
    figure.box(750, 205, 150, 44, "embedding")
    figure.text(750, 250, "models/", "small")
    figure.box(540, 205, 150, 44, "RecurrentStack", "new")
    figure.text(540, 250, "layers/: layers, directions", "small")
    figure.box(325, 205, 150, 44, "head")
    figure.text(325, 250, "attention decoder, pooling, CRF", "small")
    figure.box(110, 205, 150, 44, "criterion")
    figure.text(110, 250, "criterions/: the loss", "small")
    for x, after in ((750, 540), (540, 325), (325, 110)):
        figure.arrow((x - 75, 205), (after + 76, 205))
    figure.arrow((540, 262), (540, 305), bold=True)
    figure.box(540, 328, 190, 44, "recurrence.run", "new")
    figure.text(540, 372, "one layer and direction, all steps, on an engine", "small")
    figure.box(760, 328, 130, 44, "cell", "new")
    figure.text(760, 372, "cells/: one step", "small")
    figure.arrow((694, 328), (637, 328), bold=True)
    figure.arrow((110, 262), (110, 305))
    figure.box(110, 328, 170, 44, "fairseq's trainer")
    figure.text(110, 372, "update, checkpoint", "small")
    figure.arrow((325, 262), (325, 305))
    figure.box(325, 328, 150, 44, "answers")
    figure.text(325, 372, "search, evaluation/", "small")
    return figure


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw().render(), encoding="utf-8")

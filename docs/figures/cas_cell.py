"""Draw cas_cell.svg: the cell-aware stack beside the plain one. Run it to write the file."""

from pathlib import Path

from svg import Figure

LOWER, UPPER = 250, 120  # heights of the two layers


def stack(figure: Figure, left: int, title: str, equation: str, cells: bool) -> None:
    """Two layers at two time steps; with ``cells``, c also goes from the lower to the upper one."""
    centre = left + 205
    figure.text(centre, 36, title, "title")
    for step, x in (("t−1", left + 90), ("t", left + 290)):
        for layer, y in ((1, LOWER), (2, UPPER)):
            figure.box(x, y, 96, 46, f"layer {layer}", "new" if cells and layer == 2 else "box")
        figure.arrow((x, LOWER + 72), (x, LOWER + 25))
        figure.text(x, LOWER + 92, f"x at {step}", "small")
        figure.arrow((x - 16, LOWER - 23), (x - 16, UPPER + 25))
        figure.text(x - 30, (LOWER + UPPER) // 2 + 5, "h", "math")
        figure.arrow((x, UPPER - 23), (x, UPPER - 58))
        if cells:
            figure.arrow((x + 16, LOWER - 23), (x + 16, UPPER + 26), bold=True)
            figure.text(x + 32, (LOWER + UPPER) // 2 + 5, "c", "math")
    for y in (LOWER, UPPER):
        figure.arrow((left + 138, y), (left + 241, y))
        figure.text(left + 190, y - 8, "h, c", "math")
        figure.arrow((left + 338, y), (left + 392, y))
    figure.text(centre, 386, equation, "math")


def draw() -> Figure:
    """Both stacks, side by side."""
    figure = Figure(860, 440, "A plain stack of LSTMs beside a cell-aware stack of LSTMs")
    stack(figure, 10, "Stacked LSTM", "c = f ⊙ c_{t−1}  + i ⊙ g", cells=False)
    stack(
        figure,
        435,
        "CAS-LSTM",
        "c = (1 − λ) f ⊙ c_{t−1}  + λ v ⊙ c_{below}  + i ⊙ g",
        cells=True,
    )
    figure.text(215, 416, "only h goes to the layer above", "small")
    figure.text(640, 416, "c goes up as well, through a forget gate v of its own", "accent")
    return figure


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw().render(), encoding="utf-8")

"""Draw decoder_step.svg: one step of the attention decoder. Run it to write the file."""

from pathlib import Path

from svg import Figure


def draw() -> Figure:
    """One target position of a decoder with two layers and input feeding."""
    figure = Figure(860, 400, "One step of the attention decoder with input feeding")
    figure.text(430, 34, "One step of the decoder", "title")
    figure.box(110, 315, 130, 44, "embedding")
    figure.text(110, 362, "target word at t", "small")
    figure.box(110, 205, 130, 44, "output at t−1")
    figure.box(300, 260, 110, 44, "layer 1")
    figure.box(300, 150, 110, 44, "layer 2", "new")
    figure.arrow((175, 315), (210, 315), (210, 268), (244, 268))
    figure.arrow((175, 205), (210, 205), (210, 252), (244, 252))
    figure.text(110, 172, "input feeding", "small")
    figure.arrow((288, 237), (288, 173))
    figure.text(274, 210, "h", "math")
    figure.arrow((314, 237), (314, 174), bold=True)
    figure.text(330, 210, "c", "math")
    figure.text(300, 300, "state: h, c at t−1", "small")
    figure.box(495, 150, 150, 44, "scores = keys · h")
    figure.arrow((356, 150), (419, 150))
    figure.text(386, 142, "h", "math")
    figure.box(495, 260, 150, 44, "keys, values")
    figure.text(495, 305, "encoder's output, projected", "small")
    figure.text(495, 323, "once for the sentence", "small")
    figure.arrow((470, 237), (470, 173))
    figure.box(720, 150, 190, 44, "α = softmax(scores)")
    figure.arrow((571, 150), (624, 150))
    figure.box(720, 260, 220, 44, "tanh(Σ α · values + W h)")
    figure.arrow((720, 173), (720, 237))
    figure.arrow((571, 260), (609, 260))
    figure.arrow((720, 283), (720, 338))
    figure.text(720, 360, "output at t, to the softmax", "small")
    figure.text(720, 378, "and to the next step", "small")
    figure.arrow((300, 127), (300, 80), (822, 80), (822, 237))
    figure.text(550, 72, "h", "math")
    return figure


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw().render(), encoding="utf-8")

"""Draw speed.svg: cas_lstm_iwslt over fairseq's lstm. Run it to write the file.

The ratios are those of docs/speed.md, which says where they were measured.
"""

from pathlib import Path

from svg import Figure

# Machine, precision, and how many times fairseq's lstm in training and in translating.
MEASURED = [
    ("2 cores, AVX512_BF16", "float32", 1.8, 2.1),
    ("", "bfloat16 products", 2.5, 3.2),
    ("the same, Zen 5", "float32", 2.7, 3.0),
    ("", "bfloat16 products", 3.8, 4.7),
    ("2 cores, AMX", "float32", 1.6, 2.0),
    ("", "bfloat16 products", 3.1, 3.3),
    ("H100", "float32", 3.3, 2.4),
    ("", "float16", 2.9, 1.7),
]
LEFT, UNIT, ROW = 330, 95, 52  # where bars begin; width of 1 times; height of a row


def draw() -> Figure:
    """Two bars for each machine and precision."""
    bottom = 80 + ROW * len(MEASURED)
    title = "Speed of cas_lstm_iwslt over fairseq's lstm"
    figure = Figure(860, bottom + 70, title)
    figure.text(430, 34, title, "title")
    for times in range(6):
        x = LEFT + UNIT * times
        figure.line((x, 64), (x, bottom))
        figure.text(x, bottom + 20, f"{times} ×", "small")
    for row, (machine, precision, training, translating) in enumerate(MEASURED):
        y = 88 + ROW * row
        figure.text(100, y + 18, machine)
        figure.text(255, y + 18, precision, "small")
        for place, (value, kind) in enumerate(((training, "new"), (translating, "box"))):
            width = round(UNIT * value)
            figure.box(LEFT + width // 2, y + 4 + 20 * place, width, 16, "", kind)
            figure.text(LEFT + width + 26, y + 9 + 20 * place, f"{value} ×", "small")
    for x, kind, label in ((LEFT, "new", "training"), (LEFT + 130, "box", "translating, beam 10")):
        figure.box(x + 8, bottom + 45, 16, 16, "", kind)
        figure.text(x + 20 + 4 * len(label), bottom + 50, label, "small")
    return figure


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw().render(), encoding="utf-8")

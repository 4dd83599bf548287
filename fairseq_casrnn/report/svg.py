"""Charts as SVG; the style sheet of the HTML page sets the colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 400, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 10, 40
SCALE = 1.15  # display size, if there is room
MOST_POINTS, MOST_DOTS = 400, 60  # maximum per curve


@dataclass
class Line:
    """A curve.

    Args:
        name: its name, for screen readers.
        points: (x, y), sorted by x.
        colour: index of its colour.
        thin: whether to draw it thin, in the background.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    thin: bool = False


def thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most about MOST_POINTS points of a curve, evenly spaced, with the last one."""
    step = -(-len(points) // MOST_POINTS)
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def ticks(low: float, high: float) -> list[float]:
    """At most six round numbers from ``low`` to ``high``."""
    if high <= low:
        return [low]
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + i) * step, 12) for i in range(count)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten between ``low`` and ``high``, or these two."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [f * 10.0**p for p in powers for f in (1, 2, 5) if low <= f * 10.0**p <= high]
    if len(found) > 8:
        found = [value for value in found if f"{value:e}".startswith("1")]
    return found if len(found) > 1 else [low, high]


def figure(label: str, text: str, body: Sequence[Markup], size=(WIDTH, HEIGHT)) -> Markup:
    """An SVG image with a label and, for screen readers, a description."""
    width, height = size
    return element(
        "svg",
        element("desc", text),
        *body,
        role="img",
        viewBox=f"0 0 {width} {height}",
        width=round(SCALE * width),
        aria_label=f"{label}. {text}",
    )


def element(name: str, *children: object, **attributes: object) -> Markup:
    """An element; ``class_`` is the attribute ``class``, and ``_`` in a name is ``-``."""
    pairs = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("_", "-"),
            f"{value:.1f}" if isinstance(value, float) else value,
        )
        for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(
        Markup(name), pairs, Markup("").join(map(escape, children))
    )


def line_chart(label: str, lines: Sequence[Line], x_label: str, log: bool = False) -> Markup:
    """A chart of curves.

    Args:
        label: label of the y axis.
        lines: the curves.
        x_label: label of the x axis.
        log: whether the y axis is logarithmic.
    """
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    low, high = min(ys), max(ys)
    if low == high:
        low, high, log = min(low, 0), max(high, 0) or 1, False
    if log:
        marks = log_ticks(low, high)
    else:
        marks = ticks(low, high)
        step = marks[1] - marks[0] if len(marks) > 1 else 0
        if 0 < low <= step:
            low, marks = 0.0, ticks(0, high)
    right = max(*xs, 1.0)

    def x_of(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * x / right

    def y_of(y: float) -> float:
        place = math.log(y / low) / math.log(high / low) if log else (y - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * place

    body = axes(
        [(x_of(x), short(x)) for x in ticks(0, right)], [(y_of(y), short(y)) for y in marks]
    )
    body += axis_labels(x_label)
    for line in sorted(lines, key=lambda line: not line.thin):
        chosen = thinned(line.points)
        points = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in chosen)
        style = f"curve c{line.colour % 8}{' thin' if line.thin else ''}"
        body.append(element("polyline", points=points, class_=style))
        if not line.thin and len(chosen) <= MOST_DOTS:
            body += [
                element("circle", cx=x_of(x), cy=y_of(y), r=2.5, class_=f"dot c{line.colour % 8}")
                for x, y in chosen
            ]
    told = "; ".join(
        f"{line.name}: from {short(line.points[0][1])} to {short(line.points[-1][1])}, lowest "
        f"{short(min(y for _, y in line.points))}, highest {short(max(y for _, y in line.points))}"
        for line in lines
    )
    return figure(label, f"By {x_label}. {told}.", body)


def spans_magnitudes(lines: Sequence[Line]) -> bool:
    """Whether all values are positive and the largest is more than 20 times the smallest."""
    ys = [y for line in lines for _, y in line.points]
    return min(ys) > 0 and max(ys) > 20 * min(ys)


def axes(columns: Sequence[tuple[float, str]], rows: Sequence[tuple[float, str]]) -> list[Markup]:
    """The grid, and numbers at these (coordinate, text)."""
    bottom = HEIGHT - BOTTOM
    body = []
    for y, text in rows:
        body.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        body.append(element("text", text, x=LEFT - 6, y=y + 4, class_="end"))
    for x, text in columns:
        body.append(element("text", text, x=x, y=bottom + 16, class_="middle"))
    body.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis"))
    return body


def axis_labels(x_label: str, y_label: str = "") -> list[Markup]:
    """The labels of the axes."""
    middle = (HEIGHT - BOTTOM + TOP) / 2
    turn = f"rotate(-90 12 {middle})"
    x = (WIDTH - RIGHT + LEFT) / 2
    return [
        element("text", x_label, x=x, y=HEIGHT - 6, class_="middle"),
        element("text", y_label, x=12, y=middle, class_="middle", transform=turn),
    ]


def calibration_chart(label: str, bins: Sequence[tuple[float, float, int]], error: float) -> Markup:
    """Accuracy by probability; the diagonal is a perfectly calibrated model.

    Args:
        label: label of the figure.
        bins: (mean probability, accuracy, count).
        error: the expected calibration error.
    """

    def at(x: float, y: float) -> tuple[float, float]:
        inner = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y
        return LEFT + (WIDTH - LEFT - RIGHT) * x, inner

    marks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    body = axes([(at(x, 0)[0], f"{x:g}") for x in marks], [(at(0, y)[1], f"{y:g}") for y in marks])
    body += axis_labels("probability", "accuracy")
    (x1, y1), (x2, y2) = at(0, 0), at(1, 1)
    body.append(element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="diagonal"))
    points = [at(p, share) for p, share, _ in bins]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    body.append(element("polyline", points=path, class_="curve c0"))
    largest = max(count for _, _, count in bins)
    for (x, y), (p, share, count) in zip(points, bins, strict=True):
        title = element("title", f"{count} with probability {p:.2f}: {share:.0%} right")
        radius = 3 + 6 * math.sqrt(count / largest)
        body.append(element("circle", title, cx=x, cy=y, r=radius, class_="dot c0"))
    told = "; ".join(f"of {count} at {p:.2f}, {share:.0%} right" for p, share, count in bins)
    return figure(label, f"Expected calibration error {error:.3f}; {told}.", body)


def heat_map(label: str, classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Markup:
    """A confusion matrix; the colour of a cell is its share of the true class, the row."""
    size, left, top = 34, 14 + 7 * min(max(map(len, classes)), 16), 24
    names = [name if len(name) <= 16 else f"{name[:15]}…" for name in classes]
    high = top + size * len(classes)
    body, told = [], []
    body.append(element("text", "true class, by row; predicted class, by column", x=0, y=12))
    for i, (row, name) in enumerate(zip(counts, names, strict=True)):
        y, total = top + size * i, sum(row)
        body.append(element("text", name, x=left - 6, y=y + size / 2 + 4, class_="end"))
        x = left + size * i + size / 2 + 4
        turn = f"rotate(-90 {x} {high + 6})"
        body.append(element("text", name, x=x, y=high + 6, class_="end", transform=turn))
        for j, count in enumerate(row):
            share = count / total if total else 0.0
            place = {"x": left + size * j, "y": y}
            title = element("title", f"{classes[i]} as {classes[j]}: {count} of {total}")
            cell = {"width": size - 1, "height": size - 1, "class_": "cell"}
            style = f"fill-opacity:{0.55 * share:.3f}"
            body.append(element("rect", title, **place, **cell, style=style))
            if count:
                text = {"x": place["x"] + size / 2, "y": y + size / 2 + 4}
                body.append(element("text", count, **text, class_="middle"))
        told.append(f"{classes[i]}: {row[i]} of {total} right")
    width = left + size * len(classes) + 10
    height = high + 16 + 7 * min(max(map(len, classes)), 16)
    return figure(label, "; ".join(told), body, (max(width, 330), height))


def short(value: float) -> str:
    """A number in a few characters."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        digits, _, exponent = f"{value:.1e}".partition("e")
        return f"{digits.removesuffix('.0')}e{int(exponent)}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

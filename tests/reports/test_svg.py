"""SVG charts."""

import re

import pytest

from fairseq_casrnn.report import svg


def coordinates(picture):
    """The points of each curve."""
    return [
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall(r'points="([^"]*)"', str(picture))
    ]


@pytest.mark.parametrize("log", [False, True])
def test_points_are_where_their_values_belong(log):
    line = svg.Line("x", [(0, 1.0), (50, 10.0), (100, 100.0)], 0)
    ((first, middle, last),) = coordinates(svg.line_chart("y", [line], "x", log))
    bottom, top = svg.HEIGHT - svg.BOTTOM, svg.TOP
    assert first[0] == svg.LEFT
    assert last == (svg.WIDTH - svg.RIGHT, top)
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2)
    share = 0.5 if log else 0.1  # a linear axis starts at 0
    assert middle[1] == pytest.approx(bottom - share * (bottom - top), abs=0.06)
    assert first[1] == pytest.approx(bottom - (0 if log else 0.01) * (bottom - top), abs=0.06)


@pytest.mark.parametrize("value", [0.0, 5.0, -2.0])
def test_constant_curves(value):
    picture = svg.line_chart("y", [svg.Line("x", [(1, value), (2, value)], 0)], "x", log=True)
    ((first, last),) = coordinates(picture)
    assert first[1] == last[1]
    assert svg.TOP <= first[1] <= svg.HEIGHT - svg.BOTTOM


def test_long_curves_are_thinned():
    points = [(n, n % 7) for n in range(100_001)]
    picture = svg.line_chart("y", [svg.Line("x", points, 0)], "updates")
    (drawn,) = coordinates(picture)
    assert len(drawn) <= svg.MOST_POINTS + 1
    assert drawn[0][0] == svg.LEFT
    assert drawn[-1][0] == svg.WIDTH - svg.RIGHT
    assert "lowest 0, highest 6" in picture


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (3, 97, [20, 40, 60, 80]),
        (-5, 5, [-4, -2, 0, 2, 4]),
        (7, 7, [7]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert svg.ticks(low, high) == expected


def test_numbers_are_short():
    values = (0, 0.00095, 1e-4, 0.5, 12.3456, 2500, 123456.0)
    assert [svg.short(v) for v in values] == [
        "0", "9.5e-4", "1e-4", "0.5", "12.35", "2,500", "1.2e5"
    ]  # fmt: skip
    assert [svg.short(v) for v in svg.log_ticks(0.3, 30)] == ["0.5", "1", "2", "5", "10", "20"]
    assert svg.log_ticks(0.001, 1e4) == pytest.approx([10.0**n for n in range(-3, 5)])

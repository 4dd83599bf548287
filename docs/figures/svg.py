"""A few shapes of SVG, for the figures of the documentation."""

import re
from html import escape

# A card of its own colour keeps a figure legible whatever lies behind it.
STYLE = """
    .card { fill: #ffffff; stroke: #d0d7de }
    .box { fill: #eef2f7; stroke: #57606a; stroke-width: 1.5 }
    .new { fill: #fff1e5; stroke: #bc4c00; stroke-width: 1.5 }
    .line { fill: none; stroke: #57606a; stroke-width: 1.6 }
    .bold { fill: none; stroke: #bc4c00; stroke-width: 3 }
    .grid { fill: none; stroke: #d0d7de }
    .tip { fill: #57606a } .boldtip { fill: #bc4c00 }
    text { font: 15px sans-serif; fill: #1f2328; text-anchor: middle }
    text.title { font-size: 18px; font-weight: bold }
    text.small { font-size: 13px; fill: #57606a }
    text.accent { font-size: 13px; fill: #bc4c00 }
    text.math { font: italic 15px serif }
    @media (prefers-color-scheme: dark) {
      .card { fill: #161b22; stroke: #3d444d }
      .box { fill: #212830; stroke: #9198a1 }
      .new { fill: #3b2313; stroke: #f0883e }
      .line { stroke: #9198a1 } .bold { stroke: #f0883e }
      .grid { stroke: #3d444d }
      .tip { fill: #9198a1 } .boldtip { fill: #f0883e }
      text { fill: #f0f6fc } text.small { fill: #9198a1 } text.accent { fill: #f0883e }
    }
"""


class Figure:
    """A picture of ``width`` by ``height`` user units; (0, 0) is the upper left corner."""

    def __init__(self, width: int, height: int, title: str):
        self.width, self.height, self.title = width, height, title
        card = f'<rect class="card" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10"/>'
        self.shapes = [card]

    def box(self, x: int, y: int, width: int, height: int, label: str, kind: str = "box") -> None:
        """A labelled box whose centre is (x, y)."""
        left, top = x - width // 2, y - height // 2
        self.shapes.append(
            f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>'
        )
        if label:
            self.text(x, y + 5, label)

    def text(self, x: int, y: int, label: str, kind: str = "") -> None:
        """Text centred at x, with its base line at y; ``_{...}`` is a subscript."""
        chosen = f' class="{kind}"' if kind else ""
        lowered = r'<tspan dy="5" font-size="11">\1</tspan><tspan dy="-5">\2</tspan>'
        content = re.sub(r"_\{(.*?)\}([^_]*)", lowered, escape(label))
        self.shapes.append(f'<text{chosen} x="{x}" y="{y}">{content}</text>')

    def arrow(self, *points: tuple[int, int], bold: bool = False) -> None:
        """An arrow through ``points``."""
        kind = "bold" if bold else "line"
        path = " L ".join(f"{x} {y}" for x, y in points)
        self.shapes.append(f'<path class="{kind}" marker-end="url(#{kind}tip)" d="M {path}"/>')

    def line(self, *points: tuple[int, int], kind: str = "grid") -> None:
        """A line through ``points``; ``kind`` is its class in :data:`STYLE`."""
        path = " L ".join(f"{x} {y}" for x, y in points)
        self.shapes.append(f'<path class="{kind}" d="M {path}"/>')

    def render(self) -> str:
        """The file's text."""
        tips = "".join(
            f'<marker id="{kind}tip" viewBox="0 0 10 10" refX="9" refY="5" markerUnits='
            f'"userSpaceOnUse" markerWidth="{size}" markerHeight="{size}" orient="auto">'
            f'<path class="{tip}" d="M 0 0 L 10 5 L 0 10 z"/></marker>'
            for kind, tip, size in (("line", "tip", 9), ("bold", "boldtip", 13))
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} '
                f'{self.height}" width="{self.width}" height="{self.height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                f"<defs>{tips}</defs>",
                *self.shapes,
                "</svg>\n",
            ]
        )

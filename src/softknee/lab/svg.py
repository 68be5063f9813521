"""Small drawings as SVG text: axes, curves and marks in data coordinates, coloured by CSS classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, kw_only=True)
class Axes:
    """A rectangle of the drawing in pixels, and the ranges of data that it shows."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at_x(self, value: float) -> float:
        return self.left + (value - self.x[0]) / (self.x[1] - self.x[0]) * self.width

    def at_y(self, value: float) -> float:
        return self.top + (self.y[1] - value) / (self.y[1] - self.y[0]) * self.height

    def grid(self, *, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> list[str]:
        """Hairlines and numbers at the ticks; the lines through zero are stronger."""
        parts = []
        bottom, right = self.top + self.height, self.left + self.width
        for tick in x_ticks:
            place, kind = self.at_x(tick), "zero" if tick == 0 else "grid"
            parts.append(line(place, self.top, place, bottom, kind=kind))
            parts.append(text(place, bottom + 15, number(tick), kind="tick middle"))
        for tick in y_ticks:
            place, kind = self.at_y(tick), "zero" if tick == 0 else "grid"
            parts.append(line(self.left, place, right, place, kind=kind))
            parts.append(text(self.left - 7, place + 4, number(tick), kind="tick end"))
        return parts

    def curve(self, xs: Sequence[float], ys: Sequence[float], *, kind: str, title: str) -> str:
        """A curve through the points; where it leaves the rectangle it is cut off there."""
        pieces, pen_down = [], False
        for x, y in zip(xs, ys, strict=True):
            inside = self.y[0] <= y <= self.y[1]
            if inside:
                pieces.append(f"{'L' if pen_down else 'M'}{self.at_x(x):.1f} {self.at_y(y):.1f}")
            pen_down = inside
        return f'<path class="{kind}" d="{"".join(pieces)}"><title>{escape(title)}</title></path>'

    def dot(self, x: float, y: float, *, kind: str, title: str, radius: float = 4.5) -> str:
        place = f'cx="{self.at_x(x):.1f}" cy="{self.at_y(y):.1f}" r="{radius}"'
        return f'<circle class="{kind}" {place}><title>{escape(title)}</title></circle>'


def line(x1: float, y1: float, x2: float, y2: float, *, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(x: float, y: float, words: str, *, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def drawing(width: float, height: float, parts: Sequence[str], *, label: str) -> str:
    """The parts as one picture that scales with the page; `label` tells a screen reader what it shows."""
    head = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label, quote=True)}">'
    return head + "".join(parts) + "</svg>"


def number(value: float) -> str:
    """A tick's number, with a true minus sign."""
    return f"{value:g}".replace("-", "−")

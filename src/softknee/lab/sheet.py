"""A figure as a page that is laid out by hand: pictures, boxes, marks and words in inches from its upper corner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .chart import INK, SOFT, Chart, Row, marks, number, sized
from .pixels import address

_INCH = 96  # pixels


class Page:
    """A figure that is laid out in inches from its upper left corner."""

    def __init__(self, wide: float, tall: float) -> None:
        self.wide, self.tall = wide, tall
        self._layers: list[Chart] = []
        self._texts: dict[tuple[Any, ...], list[Row]] = {}

    @property
    def figure(self) -> Chart:
        """The chart; words lie over everything else."""
        texts = [
            marks("text", rows, {**self.where, "text": {"field": "text"}}, **dict(look))
            for look, rows in self._texts.items()
        ]
        return sized({"layer": [*self._layers, *texts], "padding": 0}, _INCH * self.wide, _INCH * self.tall)

    @property
    def where(self) -> Chart:
        """Places on the page, from its upper left corner to its lower right one."""
        return {
            "x": number("x", domain=(0, self.wide), axis=None),
            "y": number("y", domain=(self.tall, 0), axis=None),
        }

    def write(
        self,
        left: float,
        top: float,
        text: str,
        *,
        size: float = 8,
        colour: str = INK,
        align: str = "center",
        baseline: str = "top",
        weight: str = "normal",
        angle: float = 0,
    ) -> None:
        """Words, in points; lines are broken where the text is."""
        look = {"fontSize": size * _INCH / 72, "color": colour, "align": align, "baseline": baseline}
        look |= {"fontWeight": weight, "angle": angle}
        row = {"x": left, "y": top, "text": text.split("\n") if "\n" in text else text}
        self._texts.setdefault(tuple(look.items()), []).append(row)

    def footnote(self, text: str, *, left: float = 0.12) -> None:
        """A line of small print at the foot of the page."""
        self.write(left, self.tall - 0.08, text, size=7, colour=SOFT, align="left", baseline="bottom")

    def box(self, left: float, top: float, wide: float, tall: float, **look: Any) -> None:
        """A rectangle."""
        row = {"x": left, "y": top, "right": left + wide, "bottom": top + tall}
        sides = {"x2": {"field": "right"}, "y2": {"field": "bottom"}}
        self._layers.append(marks("rect", [row], {**self.where, **sides}, **look))

    def image(self, left: float, top: float, wide: float, tall: float, picture: Tensor, *, framed: bool = True) -> None:
        """Colours [rows, columns, 3 or 4], in a thin frame."""
        size = {"width": _INCH * wide, "height": _INCH * tall, "aspect": False}
        look = {**size, "align": "left", "baseline": "top", "url": address(picture), "smooth": False}
        self._layers.append(marks("image", [{"x": left, "y": top}], self.where, **look))
        if framed:
            self.box(left, top, wide, tall, filled=False, stroke=SOFT, strokeWidth=0.5)

    def line(self, points: Iterable[tuple[float, float]], **look: Any) -> None:
        """A line through these places."""
        rows = [{"x": x, "y": y, "place": place} for place, (x, y) in enumerate(points)]
        order = {"order": {"field": "place", "type": "quantitative"}}
        self._layers.append(marks("line", rows, {**self.where, **order}, **look))

    def points(self, rows: Iterable[Row], **look: Any) -> None:
        """Marks at places x and y of the page."""
        self._layers.append(marks("point", rows, self.where, opacity=1, **look))

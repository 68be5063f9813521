"""What all figures of fitted functions share: the page, its words, colours and files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..figure_lines import INK
from ..figure_panels import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOFT, HAIR = "#6a6963", "#e4e3de"
# Told apart by readers who see red and green alike (Okabe and Ito; the purple is darker, and the yellow left out).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0508c", "#56b4e9", "#e69f00", "#5a5a5a")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
ERRORS = "magma_r"  # white where nothing is wrong
_DPI = 170
_LARGEST_SVG = 400_000  # bytes; what is larger is for pixels


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure and what it shows, in a sentence or two."""

    figure: Figure
    caption: str


class Page:
    """A figure that is laid out in inches from its upper left corner."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.wide, self.tall = figure.get_size_inches()

    def axes(self, left: float, top: float, wide: float, tall: float) -> Axes:
        """Axes of that size."""
        return self.figure.add_axes(
            (left / self.wide, 1 - (top + tall) / self.tall, wide / self.wide, tall / self.tall)
        )

    def write(self, left: float, top: float, text: str, *, size: float = 8, soft: bool = False, **how: Any) -> None:
        """Words; nothing in them is read as a formula."""
        how = {"ha": "center", "va": "top", **how}
        made = self.figure.text(
            left / self.wide, 1 - top / self.tall, text, size=size, color=SOFT if soft else INK, **how
        )
        made.set_parse_math(False)

    def footnote(self, text: str, *, left: float = 0.12) -> None:
        """A line of small print at the foot of the page."""
        self.write(left, self.tall - 0.08, text, size=7, soft=True, ha="left", va="bottom")


@contextmanager
def page(wide: float, tall: float) -> Iterator[Page]:
    """An empty page of so many inches."""
    with drawing((wide, tall)) as figure:
        yield Page(figure)


def furnish(axes: Axes, *, across: str = "", upright: str = "") -> None:
    """Hairlines instead of a frame."""
    axes.grid(color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, which="both", labelsize=7, labelcolor=SOFT, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for label in (axes.set_xlabel(across, size=8, color=SOFT), axes.set_ylabel(upright, size=8, color=SOFT)):
        label.set_parse_math(False)


def frame(axes: Axes) -> None:
    """Only a thin frame: what is shown is a picture and has no scale."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=SOFT, linewidth=0.4)


def colour_bar(axes: Axes, shown: Any, *, words: str) -> None:
    """A level scale of colours, with what it means above."""
    bar = axes.figure.colorbar(shown, cax=axes, orientation="horizontal")
    bar.outline.set_visible(False)  # type: ignore[operator]
    axes.tick_params(length=0, labelsize=7, labelcolor=SOFT, pad=2)
    axes.locator_params(nbins=3)
    axes.set_title(words, size=7.5, color=SOFT, pad=4).set_parse_math(False)


def png_bytes(figure: Figure) -> bytes:
    """The figure as pixels; the same bytes for the same figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    figure.set_dpi(_DPI)
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()


def svg_bytes(figure: Figure) -> bytes | None:
    """The figure as SVG, where that is small: no date and no version in it."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    if any(axes.images for axes in figure.axes):
        return None  # pixels would be inside all the same
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "softknee", "svg.fonttype": "path"}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    content = buffer.getvalue()
    return content if len(content) <= _LARGEST_SVG else None

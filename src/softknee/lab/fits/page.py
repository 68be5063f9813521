"""What all figures of fitted functions share: colours and files."""

from __future__ import annotations

from dataclasses import dataclass

from ..chart import Chart, png_of, svg_of

# Told apart by readers who see red and green alike (Okabe and Ito; the purple is darker, and the yellow left out).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0508c", "#56b4e9", "#e69f00", "#5a5a5a")
MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
ERRORS = "magma_r"  # white where nothing is wrong
_LARGEST_SVG = 400_000  # bytes; what is larger is for pixels


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure and what it shows, in a sentence or two."""

    figure: Chart
    caption: str


def png_bytes(figure: Chart) -> bytes:
    """The figure as pixels; the same bytes for the same figure."""
    return png_of(figure)


def svg_bytes(figure: Chart) -> bytes | None:
    """The figure as SVG, where that is small."""
    if any(layer["mark"]["type"] == "image" for layer in figure.get("layer", ())):
        return None  # pixels would be inside all the same
    content = svg_of(figure, label="fitted functions").encode("utf-8")
    return content if len(content) <= _LARGEST_SVG else None

"""The figures of the page as files for a paper, PDF or PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..chart import pdf_of, png_of
from .curves import chart_of, curves, legend_of
from .figures import Figure, on_paper
from .palette import Look
from .parts import Band, Summary
from .plane import plane
from .shapes import hardness, learned


def pdf_figures(summary: Summary, *, png: bool = False) -> dict[str, tuple[bytes, str]]:
    """Content and caption of each figure that there is something to show in, by name; as PNG where asked for."""
    drawn = plane(summary)
    files: dict[str, list[Figure]] = {}
    for figure in (*([drawn] if drawn else []), *curves(summary), *learned(summary), *hardness(summary)):
        if figure.file:
            files.setdefault(figure.file, []).append(figure)
    picture = png_of if png else pdf_of
    return {name: (picture(on_paper(figures)), figures[0].caption) for name, figures in files.items()}


def bands_png(look: Mapping[str, Look], bands: Sequence[Band], axis: str) -> bytes:
    """Curves of one's own over the epochs, drawn as those of a report."""
    entries = legend_of(bands, look, {band.label for band in bands})
    chart = chart_of(bands, entries, axis, 1.0, filled=True)
    return png_of(on_paper([Figure(name="", caption="", label="", chart=chart, legend=entries, height=0)]))

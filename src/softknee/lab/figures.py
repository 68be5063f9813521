"""Figures of f, f' and f'' side by side, for several settings of the knob, with the hard limit dotted.

    draw(sk.get("smelu"), "smelu.svg")                                   # the knob at several values
    draw(sk.get("smelu"), "smelu.png", beta=0.5)                         # one setting
    draw(act, "mine.html", settings=[{"beta": 1.0}, {"beta": 2.0}])      # settings of your own

Lines are broken where the function jumps: the second derivative of SmeLU is a step and no ramp. A kink of f is a jump
of f' and a point mass of f'', drawn as an arrow as high as the mass. The same call writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..files import write_whole
from .chart import check_ending, svg_of, write_figure
from .figure_lines import Definition, lines_of, settings_of, shared
from .figure_page import page
from .figure_panels import panels

SUFFIXES = (".png", ".svg", ".html")


def draw(
    act: Definition,
    path: str | PathLike[str],
    *,
    settings: Sequence[Mapping[str, Any]] | None = None,
    low: float | None = None,
    high: float | None = None,
    stacked: bool = False,
    **params: Any,
) -> Path:
    """Draw f, f' and f'' of a definition into a .png, an .svg or an .html file, and return where it is.

    settings: parameters of each line; without it the knob takes several values, unless `params` fixes it.
    low, high: the stretch of x; by default one that has every seam and every bend in it.
    stacked: one panel below the other, for a narrow column.
    params: parameters that all lines share.

    >>> import softknee as sk, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(sk.get("smelu"), folder + "/smelu.svg", beta=0.5).name
    'smelu.svg'
    """
    kind = check_ending(path, SUFFIXES)
    chosen = settings_of(act, params) if settings is None else [{**params, **one} for one in settings]
    figure = panels([lines_of(act, chosen)], low=low, high=high, stacked=stacked, note=shared(act, chosen))
    label = f"{act.name}, its first and its second derivative"
    if kind != ".html":
        return write_figure(figure, path, label=label)
    return write_whole(path, page(act, svg_of(figure, label=label), chosen), what="figure")

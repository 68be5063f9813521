"""Figures of f, f' and f'' side by side, for several settings of the knob, with the hard limit dotted.

    draw(sk.get("smelu"), "smelu.svg")                                   # the knob at several values
    draw(sk.get("smelu"), "smelu.png", beta=0.5)                         # one setting
    draw(act, "mine.html", settings=[{"beta": 1.0}, {"beta": 2.0}])      # settings of your own

Lines are broken where the function jumps: the second derivative of SmeLU is a step and no ramp. A kink of f is a jump
of f' and a point mass of f'', drawn as an arrow as high as the mass. The same call writes the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import ParameterError
from ..files import WriteError, write_whole
from .figure_lines import Definition, lines_of, settings_of, shared
from .figure_page import page
from .figure_panels import panels, png_of, svg_of

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
    kind = Path(path).suffix.lower()
    if kind not in SUFFIXES:
        raise ParameterError(
            f"A figure is written as {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, and {os.fspath(path)!r} ends in "
            f"{kind or 'none'}; choose one of these endings."
        )
    chosen = settings_of(act, params) if settings is None else [{**params, **one} for one in settings]
    figure = panels([lines_of(act, chosen)], low=low, high=high, stacked=stacked, note=shared(act, chosen))
    if kind == ".png":
        return _write_bytes(path, png_of(figure))
    picture = svg_of(figure, label=f"{act.name}, its first and its second derivative")
    return write_whole(path, page(act, picture, chosen) if kind == ".html" else picture, what="figure")


def _write_bytes(path: str | PathLike[str], content: bytes) -> Path:
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise WriteError(
            f"The figure could not be written to '{os.fspath(path)}' ({error.strerror or error}). Choose a folder that "
            "exists, can be written to and has space."
        ) from error
    return Path(path).resolve()

"""A drawn figure into a file, .png or .svg by its ending."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ParameterError
from ..files import write_whole
from .figure_panels import png_of, svg_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg")


def check_ending(path: str | PathLike[str], endings: Sequence[str] = ENDINGS) -> str:
    """The ending, if it is one that the figure can have: asked before anything is trained or drawn."""
    kind = Path(path).suffix.lower()
    if kind not in endings:
        raise ParameterError(
            f"A figure is written as {', '.join(endings[:-1])} or {endings[-1]}, and {os.fspath(path)!r} ends in "
            f"{kind or 'none'}; choose one of these endings."
        )
    return kind


def write_figure(figure: Figure, path: str | PathLike[str], *, label: str) -> Path:
    """Write it, and return where it is; `label` says in a .svg what is to be seen."""
    picture = svg_of(figure, label=label) if check_ending(path) == ".svg" else png_of(figure)
    return write_whole(path, picture, what="figure")

"""A drawn figure into a file, .png or .svg by its ending."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ParameterError
from ..files import WriteError, write_whole
from .figure_panels import png_of, svg_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg")


def check_ending(path: str | PathLike[str]) -> str:
    """The ending, if it is one that a figure can have: asked before anything is trained or drawn."""
    kind = Path(path).suffix.lower()
    if kind not in ENDINGS:
        raise ParameterError(
            f"A figure is written as .png or .svg, and {os.fspath(path)!r} ends in {kind or 'none'}; choose one of "
            "these endings."
        )
    return kind


def write_figure(figure: Figure, path: str | PathLike[str], *, label: str) -> Path:
    """Write it, and return where it is; `label` says in a .svg what is to be seen."""
    if check_ending(path) == ".svg":
        return write_whole(path, svg_of(figure, label=label), what="figure")
    try:
        Path(path).write_bytes(png_of(figure))
    except OSError as error:
        raise WriteError(
            f"The figure could not be written to '{os.fspath(path)}' ({error.strerror or error}). Choose a folder that "
            "exists, can be written to and has space."
        ) from error
    return Path(path).resolve()

"""Small panels on one sheet: a function in each, with its slope, all on the same scales."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .curves import thin
from .figure_lines import DISTINCT, INK, Definition, lines_of
from .figure_panels import drawing, furnish

_COLUMNS = 8
_SIZE = 1.15  # inches of a panel
_X, _Y = (-4.0, 4.0), (-1.5, 4.0)
_SLOPE = "#e69f00"


def poster(shown: Mapping[str, tuple[Definition, Mapping[str, Any]]]) -> Any:
    """A figure with f (blue) and f' (orange) of every definition, under the names they are given."""
    rows = math.ceil(len(shown) / _COLUMNS)
    wide, tall = 1 / _COLUMNS, 1 / rows
    with drawing((_COLUMNS * _SIZE, rows * _SIZE)) as figure:
        for index, (name, (act, values)) in enumerate(shown.items()):
            row, column = divmod(index, _COLUMNS)
            place = figure.add_axes(((column + 0.05) * wide, 1 - (row + 0.96) * tall, 0.9 * wide, 0.78 * tall))
            place.set(xlim=_X, ylim=_Y, xticks=(-2, 2), yticks=(2,))
            furnish(place)
            place.patch.set_visible(False)
            place.tick_params(labelbottom=False, labelleft=False)
            place.set_title(name, loc="left", fontsize=7, color=INK, pad=3)
            curve = lines_of(act, [values])[0].between(*_X)
            for order, colour in ((1, _SLOPE), (0, DISTINCT[0])):
                for part, run in enumerate(curve.runs[order]):
                    kept = thin(run, scale_x=9.0, scale_y=12.0, tolerance=0.08)
                    place.plot(kept.xs, kept.ys, color=colour, linewidth=1.4, gid=f"line-{name}-{order}-{part}")
    return figure

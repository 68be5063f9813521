"""The legend of a figure as HTML: a button for each name, with a swatch of its line and its symbol."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .figures import Entry

_WIDE, _TALL, _RADIUS = 26, 12, 5.0
_STROKES = {"dash": "6 4", "dot": "2 3", "dashdot": "6 3 2 3", "longdash": "10 4"}


def legend(entries: Sequence[Entry]) -> str:
    """Pressed is shown; one name alone needs no legend."""
    if len(entries) < 2:
        return ""
    return f'<div class="legend" role="group" aria-label="Shown in the figure">{"".join(map(_button, entries))}</div>'


def _button(entry: Entry) -> str:
    traces = ",".join(map(str, entry.traces))
    pressed = "true" if entry.shown else "false"
    return (
        f'<button type="button" aria-pressed="{pressed}" data-traces="{traces}">{_swatch(entry)}'
        f"<span>{escape(entry.name)}</span></button>"
    )


def _swatch(entry: Entry) -> str:
    parts = []
    if entry.line:
        dashes = f' stroke-dasharray="{_STROKES[entry.dash]}"' if entry.dash in _STROKES else ""
        parts.append(f'<path d="M0 6H{_WIDE}" stroke="{entry.colour}" stroke-width="2"{dashes}/>')
    if entry.symbol:
        parts.append(f'<path d="{outline(entry.symbol)}" fill="{entry.colour}"/>')
    return (
        f'<svg width="{_WIDE}" height="{_TALL}" viewBox="0 0 {_WIDE} {_TALL}" aria-hidden="true">{"".join(parts)}</svg>'
    )


def outline(symbol: str) -> str:
    """A symbol as the path of a polygon around the middle of the swatch; angles are from the top, in turns."""
    x, y = _WIDE / 2, _TALL / 2
    corners = {"square": 4, "diamond": 4, "triangle-up": 3, "triangle-down": 3, "pentagon": 5, "hexagon": 6}
    turned = {"square": 0.125, "triangle-down": 0.5, "x": 0.125}
    if symbol in corners:
        count = corners[symbol]
        points = [(_RADIUS, place / count + turned.get(symbol, 0.0)) for place in range(count)]
    elif symbol == "star":
        points = [(_RADIUS if place % 2 == 0 else 0.4 * _RADIUS, place / 10) for place in range(10)]
    elif symbol in ("cross", "x"):
        # Four arms, each two corners far out and one near the middle.
        arms = [(_RADIUS, -0.06), (_RADIUS, 0.06), (0.5 * _RADIUS, 0.125)]
        points = [(far, arm / 4 + turn + turned.get(symbol, 0.0)) for arm in range(4) for far, turn in arms]
    else:
        return f"M{x - _RADIUS:g} {y:g}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0"
    places = [(x + far * math.sin(2 * math.pi * turn), y - far * math.cos(2 * math.pi * turn)) for far, turn in points]
    return "M" + "L".join(f"{px:.2f} {py:.2f}" for px, py in places) + "Z"

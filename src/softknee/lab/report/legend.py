"""The legend of a figure as HTML: a button for each name, with a swatch of its line and its symbol."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..chart import outline
from .figures import STROKES, Entry

_WIDE, _TALL, _RADIUS = 26, 12, 5


def legend(entries: Sequence[Entry]) -> str:
    """Pressed is shown; one name alone needs no legend."""
    if len(entries) < 2:
        return ""
    return f'<div class="legend" role="group" aria-label="Shown in the figure">{"".join(map(_button, entries))}</div>'


def _button(entry: Entry) -> str:
    pressed, name = "true" if entry.shown else "false", escape(entry.name)
    return f'<button type="button" aria-pressed="{pressed}">{_swatch(entry)}<span>{name}</span></button>'


def _swatch(entry: Entry) -> str:
    parts = []
    if entry.line:
        dashes = " ".join(map(str, STROKES[entry.dash]))
        parts.append(f'<path d="M0 6H{_WIDE}" stroke="{entry.colour}" stroke-width="2" stroke-dasharray="{dashes}"/>')
    if entry.symbol:
        middle = f"translate({_WIDE / 2:g} {_TALL / 2:g}) scale({_RADIUS})"
        parts.append(f'<path d="{outline(entry.symbol)}" transform="{middle}" fill="{entry.colour}"/>')
    return (
        f'<svg width="{_WIDE}" height="{_TALL}" viewBox="0 0 {_WIDE} {_TALL}" aria-hidden="true">{"".join(parts)}</svg>'
    )

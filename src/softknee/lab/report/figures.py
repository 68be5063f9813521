"""The figures of the page as Plotly's JSON: checked by Plotly's own schema, without colours of text and paper.

Those follow the reader's scheme, light or dark, and are put in by the page (`script.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import Any

from ...errors import MissingToolError
from .numbers import few_epochs, log_ticks, plain


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A name of the legend, how it is drawn, and which traces it shows and hides."""

    name: str
    colour: str
    dash: str
    symbol: str
    line: bool
    traces: tuple[int, ...]
    shown: bool


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the page: its anchor, what stands below it, what it says to who cannot see it, and Plotly's JSON."""

    name: str
    caption: str
    label: str
    json: str
    legend: tuple[Entry, ...] = ()
    wide: bool = True


def figure(name: str, traces: Sequence[Any], layout: Any, *, caption: str, label: str, wide: bool = True) -> Figure:
    """Traces and layout, refused where Plotly does not know them."""
    try:
        import plotly.graph_objects as graph
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "The page of a study is drawn by Plotly, which is not installed. Install it with: "
            "pip install 'softknee[lab]'"
        ) from error
    made = graph.Figure(data=list(traces), layout={"template": "none", "showlegend": False, **layout})
    text = made.to_json()
    if text is None:
        raise MissingToolError("Plotly gave no JSON for a figure; install plotly 6 or later.")
    return Figure(name=name, caption=caption, label=label, json=text, legend=_legend(traces), wide=wide)


def _legend(traces: Sequence[Any]) -> tuple[Entry, ...]:
    """An entry for each name; the traces of one legend group go together. The page writes it, so that it can be reached
    with the keyboard, and breaks into lines as text does."""
    groups: dict[str, list[int]] = {}
    for place, trace in enumerate(traces):
        groups.setdefault(trace.get("legendgroup", f"\0{place}"), []).append(place)
    found = []
    for members in groups.values():
        named = next(
            (traces[one] for one in members if "name" in traces[one] and traces[one].get("showlegend", True)), {}
        )
        if named:
            style = {**named.get("marker", {}), **named.get("line", {})}
            found.append(
                Entry(
                    name=unescape(named["name"]),
                    colour=style["color"],
                    dash=style.get("dash", "solid"),
                    symbol=style.get("symbol", "") if "markers" in named["mode"] else "",
                    line="lines" in named["mode"],
                    traces=tuple(members),
                    shown=named.get("visible", True) is True,
                )
            )
    return tuple(found)


def safe(text: str) -> str:
    """Text of the user's own: Plotly reads some HTML in texts, and this keeps it from reading any."""
    return escape(text, quote=False)


def after_epochs(epochs: Sequence[int]) -> str:
    """`after each epoch`, or `after every 20 epochs` where only these were noted; the first may be 0, the start."""
    noted = [epoch for epoch in epochs if epoch]
    apart = noted[1] - noted[0] if len(noted) > 1 else 1
    return "after each epoch" if apart == 1 else f"after every {apart} epochs"


def epoch_axis(epochs: Sequence[int]) -> dict[str, Any]:
    """The axis of epochs; of few ones each has its number, and nothing between them has one."""
    return {"title": {"text": "epoch"}, "automargin": True, **({"dtick": 1} if few_epochs(epochs) else {})}


def log_axis(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis with its numbers; a linear one where the range is too narrow for two of them."""
    shown = log_ticks(low, high)
    return {"type": "log", "tickvals": shown, "ticktext": [plain(tick) for tick in shown]} if shown else {}


def faint(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.16)"

"""The page of the quickstart: one HTML file with its pictures and its style inside, light and dark."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path

import torch

import softknee as sk

from ..files import write_whole
from ..measure.record import Quantity
from .page_style import STYLE
from .quickstart import BASELINE, HIDDEN, Outcome, Study, gain_over_baseline
from .svg import Axes, drawing, line, number, text

_REACH = 2.0
_POINTS = 321


def render(study: Study) -> str:
    """The whole page as text."""
    baseline = next(outcome for outcome in study.outcomes if outcome.entry.name == BASELINE)
    seeds = _counted(len(study.settings.seeds), "seed")
    keys = {"before": "before training", "layer1": "after, hidden layer 1", "layer2": "after, hidden layer 2"}
    legend = "".join(_key(kind, words) for kind, words in keys.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>softknee quickstart</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>Five activations, one network</h1>
<p class="lead">A network of {_widths(study)} units learns scikit-learn's 8 × 8 digits, with {seeds} per
activation. For a given seed every activation starts from the same weights and sees the same batches.</p>
<h2>Accuracy</h2>
{_accuracy_picture(study.outcomes)}
{_table(study, baseline)}
<h2>The functions before and after training</h2>
<p>The function above, its derivative below. A learned parameter is one number per layer; there is a line for
every seed, and they often lie on top of each other.</p>
<p class="legend">{legend}</p>
<div class="panels">{_panels(study.outcomes)}</div>
<h2>How this was measured</h2>
{_provenance(study)}
</main>
</body>
</html>
"""


def write_page(study: Study, path: str | PathLike[str]) -> Path:
    """Write the page to one file that needs nothing beside it."""
    return write_whole(path, render(study), what="page")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _widths(study: Study) -> str:
    return "–".join(str(width) for width in study.record.settings["widths"])


def _key(kind: str, words: str) -> str:
    stroke = f'<svg class="key" viewBox="0 0 28 10" aria-hidden="true">{line(0, 5, 28, 5, kind=kind)}</svg>'
    return f"<span>{stroke} {words}</span>"


def _table(study: Study, baseline: Outcome) -> str:
    head = (
        "activation",
        "test accuracy, %",
        f"against {BASELINE}",
        "test loss",
        "learned parameters",
        "time, s",
    )
    lines = []
    for outcome in study.outcomes:
        gain = "baseline" if outcome is baseline else _signed(gain_over_baseline(outcome, baseline))
        cells = (
            _number_cell(Quantity.mean(outcome.accuracy, unit="%").text(2)),
            _number_cell(gain),
            _number_cell(Quantity.mean(outcome.loss, unit="nats").text(3)),
            f"<td>{_learned(outcome)}</td>",
            _number_cell(Quantity.mean(outcome.seconds, unit="s").text(2)),
        )
        lines.append(f'<tr><th scope="row">{escape(outcome.entry.name)}</th>{"".join(cells)}</tr>')
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    caption = (
        f"Mean ± standard deviation over {_counted(len(study.settings.seeds), 'seed')}. The difference to "
        f"{BASELINE} is taken seed by seed, in percentage points. Time is one training run."
    )
    return (
        f'<div class="scroll"><table><caption>{caption}</caption><thead><tr>{columns}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _number_cell(words: str) -> str:
    return f'<td class="number">{escape(words)}</td>'


def _signed(gain: Quantity) -> str:
    return ("+" if gain.value >= 0 else "") + gain.text(2).replace("-", "−")


def _learned(outcome: Outcome) -> str:
    """Each parameter's way from its start to its end in every hidden layer."""
    if not outcome.entry.learns:
        return '<span class="quiet">none</span>'
    lines = []
    for name, start in outcome.entry.start.items():
        for layer in range(HIDDEN):
            end = outcome.at_end(layer, name).text(3).replace("-", "−")
            lines.append(f"<i>{escape(name)}</i>, layer {layer + 1}: {number(start)} → {end}")
    return "<br/>".join(lines)


def _accuracy_picture(outcomes: Sequence[Outcome]) -> str:
    """A line per activation: a ring for each seed, a bar at their mean."""
    everything = [value for outcome in outcomes for value in outcome.accuracy]
    step = 0.5 if max(everything) - min(everything) < 4 else 5.0
    low, high = step * (min(everything) // step), step * (max(everything) // step + 1)
    row, width = 30, 860
    axes = Axes(left=90, top=8, width=width - 110, height=row * len(outcomes), x=(low, high), y=(len(outcomes), 0.0))
    ticks = [low + step * index for index in range(round((high - low) / step) + 1)]
    parts = axes.grid(x_ticks=ticks, y_ticks=[])
    parts.append(text(axes.left + axes.width / 2, axes.top + axes.height + 36, "test accuracy, %", kind="axis middle"))
    for index, outcome in enumerate(outcomes):
        place = index + 0.5
        mean = sum(outcome.accuracy) / len(outcome.accuracy)
        name = outcome.entry.name
        parts.append(text(axes.left - 12, axes.at_y(place) + 4, name, kind="name end"))
        parts.append(line(axes.left, axes.at_y(place), axes.left + axes.width, axes.at_y(place), kind="grid"))
        parts.append(line(axes.at_x(mean), axes.at_y(place) - 9, axes.at_x(mean), axes.at_y(place) + 9, kind="mean"))
        for run, value in enumerate(outcome.accuracy):
            # Equal accuracies are common, since they count images: such rings are set side by side.
            nudge = 0.16 * outcome.accuracy[:run].count(value)
            title = f"{name}, run {run + 1}: {value:.2f}%"
            parts.append(axes.dot(value, place + nudge, kind="seed", title=title))
    label = "Test accuracy of every activation, a ring for each seed and a bar at the mean"
    keys = (("ring", "one seed"), ("bar", "mean"))
    legend = "".join(f'<span><span class="{kind}"></span> {words}</span>' for kind, words in keys)
    return f'<p class="legend">{legend}</p>' + drawing(width, axes.top + axes.height + 44, parts, label=label)


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """A function and its derivative on an even grid, with the CSS class that colours it."""

    kind: str
    title: str
    xs: list[float]
    ys: list[float]
    slopes: list[float]


def _curves(outcome: Outcome) -> list[_Curve]:
    """The function as each seed left it in each layer, and last, so that it lies on top, as it started."""
    name = outcome.entry.name
    curves = [
        _curve(
            name,
            layers[layer],
            kind=f"layer{layer + 1}",
            title=f"{name}, hidden layer {layer + 1}, run {run + 1}",
        )
        for run, layers in enumerate(outcome.learned)
        for layer in range(HIDDEN)
        if outcome.entry.learns
    ]
    return [*curves, _curve(name, outcome.entry.start, kind="before", title=f"{name} before training")]


def _curve(name: str, parameters: Mapping[str, float], *, kind: str, title: str) -> _Curve:
    x = torch.linspace(-_REACH, _REACH, _POINTS, dtype=torch.float64, requires_grad=True)
    y = sk.get(name)(x, **parameters)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return _Curve(kind=kind, title=title, xs=x.tolist(), ys=y.tolist(), slopes=slope.tolist())


def _panels(outcomes: Sequence[Outcome]) -> str:
    """A panel per activation, all on the same scales, which are wide enough for every curve."""
    curves = {outcome.entry.name: _curves(outcome) for outcome in outcomes}
    everything = [curve for group in curves.values() for curve in group]
    values = _range([y for curve in everything for y in curve.ys])
    slopes = _range([slope for curve in everything for slope in curve.slopes])
    return "".join(_panel(outcome, curves[outcome.entry.name], values, slopes) for outcome in outcomes)


def _range(numbers: Sequence[float]) -> tuple[float, float]:
    """The numbers' range with a little room, rounded outwards to halves."""
    return math.floor(2 * min(numbers) - 0.1) / 2, math.ceil(2 * max(numbers) + 0.1) / 2


def _whole_numbers(limits: tuple[float, float]) -> list[int]:
    return list(range(math.ceil(limits[0]), math.floor(limits[1]) + 1))


def _panel(outcome: Outcome, curves: Sequence[_Curve], values: tuple[float, float], slopes: tuple[float, float]) -> str:
    """A function and, below it, its derivative."""
    name = outcome.entry.name
    value = Axes(left=34, top=8, width=214, height=150, x=(-_REACH, _REACH), y=values)
    slope = Axes(left=34, top=194, width=214, height=120, x=(-_REACH, _REACH), y=slopes)
    parts = value.grid(x_ticks=(-2, -1, 0, 1, 2), y_ticks=_whole_numbers(values))
    parts += slope.grid(x_ticks=(-2, -1, 0, 1, 2), y_ticks=_whole_numbers(slopes))
    parts.append(text(value.left + 6, value.top + 14, "f(x)", kind="axis"))
    parts.append(text(slope.left + 6, slope.top + 14, "f′(x)", kind="axis"))
    parts.append(text(value.left + value.width / 2, 345, "x", kind="axis middle"))
    for curve in curves:
        kind = f"curve {curve.kind}"
        parts.append(value.curve(curve.xs, curve.ys, kind=kind, title=curve.title))
        parts.append(slope.curve(curve.xs, curve.slopes, kind=kind, title=f"{curve.title}, derivative"))
    remark = "" if outcome.entry.learns else '<span class="quiet"> nothing to learn</span>'
    picture = drawing(256, 351, parts, label=f"{name} and its derivative, before and after training")
    return f"<figure><figcaption><b>{escape(name)}</b>{remark}</figcaption>{picture}</figure>"


def _provenance(study: Study) -> str:
    record = study.record
    settings = ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in record.settings.items())
    entries = {
        "Command": f"<code>{escape(record.command)}</code>",
        "Seeds": escape(", ".join(str(seed) for seed in record.seeds)),
        "Settings": escape(settings),
        "Hardware": escape(record.hardware.sentence()),
        "Versions": escape(record.versions.sentence()),
        "Measured": escape(record.created.replace("T", " ").replace("Z", " UTC")),
    }
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in entries.items()) + "</dl>"


def _plain(value: object) -> str:
    return "–".join(str(part) for part in value) if isinstance(value, tuple) else str(value)

"""What the trained SQUAFs of a network have become: their parameters for a record, and a figure of them.

Figures 6 to 9 of the SQUAF paper show the function of every layer before and after training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

import softknee as sk

from ...errors import ParameterError
from ...measure.record import Record
from ..chart import INK, Chart, marks, number, points, rule_at, side_by_side, sized, write_figure
from ..figure_lines import DISTINCT

Shape = Mapping[str, Sequence[float]]
_PANEL, _ACROSS = (165, 130), 4  # pixels; panels in a row
_POINTS = 401
_FARTHEST = 6.0  # beyond which pre-activations hardly go


def learned(model: nn.Module) -> dict[str, dict[str, list[float]]]:
    """q, alpha and z of every SQUAF with a trained parameter, by its path.

    >>> net = nn.Sequential(sk.nn.SQUAF(k=1, q=0.5, z=[0.0, 0.0, 0.5], learn="z"), sk.nn.SQUAF(k=1))
    >>> learned(net)
    {'0': {'q': [0.5], 'alpha': [6.0], 'z': [0.0, 0.0, 0.5]}}
    """
    return {
        path: {name: getattr(one, name).detach().flatten().tolist() for name in ("q", "alpha", "z")}
        for path, one in model.named_modules()
        if isinstance(one, sk.nn.SQUAF) and any(p.requires_grad for p in one.parameters())
    }


def draw_shapes(record: Record, path: str | PathLike[str]) -> Path:
    """Every learned SQUAF of a record of `softknee study rate` or `distil`: dotted as it began, a line a seed."""
    several = any(len(row.get("start", {})) > 1 for row in record.rows)
    panels = [
        (
            f"{_title(row)}, {layer}" if several else _title(row),
            row["start"][layer],
            [one[layer] for one in row["learned"] if layer in one],
        )
        for row in record.rows
        for layer in row.get("start", {})
    ]
    if not panels:
        raise ParameterError(f"The record of {record.kind!r} has no SQUAF that was trained, and no shape to draw.")
    charts = [_panel(title, start, ends) for title, start, ends in panels]
    figure = side_by_side(charts, columns=min(_ACROSS, len(panels)), spacing=18)
    return write_figure(figure, path, label="learned SQUAFs, dotted as they began")


def _panel(title: str, start: Shape, ends: Sequence[Shape]) -> Chart:
    reach = min(_FARTHEST, (len(start["z"]) // 2 + 1) * max(one["q"][0] for one in (start, *ends)))
    x = torch.linspace(-reach, reach, _POINTS, dtype=torch.float64)
    where = {"x": number("x", title="x", domain=(-reach, reach)), "y": number("y", title="f(x)")}
    looks = [{"color": colour, "strokeWidth": 1.6} for _, colour in zip(ends, DISTINCT * 9, strict=False)]
    looks.append({"color": INK, "strokeWidth": 1.6, "strokeDash": [2, 3]})
    layers = [rule_at(x=0.0), rule_at(y=0.0)]
    for shape, look in zip((*ends, start), looks, strict=False):
        layers.append(marks("line", points(x.tolist(), values_of(shape, x).tolist()), where, **look))
    return sized({"title": {"text": title, "fontSize": 11}, "layer": layers}, *_PANEL)


def values_of(shape: Shape, x: torch.Tensor) -> torch.Tensor:
    """A SQUAF with these parameters at x, in float64."""
    z = torch.tensor(shape["z"], dtype=torch.float64)
    return sk.get("squaf")(x, k=len(z) // 2, q=shape["q"][0], alpha=shape["alpha"][0], z=z, window=5)


def _title(row: Mapping[str, Any]) -> str:
    weight = row.get("weight")
    return row["activation"] if weight is None else f"{row['activation']} λ = {weight:g}"

"""What the trained SQUAFs of a network have become: their parameters for a record, and a figure of them.

Figures 6 to 9 of the SQUAF paper show the function of every layer before and after training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

import softknee as sk

from ...errors import ParameterError
from ...measure.record import Record
from ..figure_files import write_figure
from ..figure_lines import DISTINCT, INK
from ..figure_panels import drawing, furnish

Shape = Mapping[str, Sequence[float]]
_PANEL, _ACROSS = (2.3, 1.9), 4
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
    across = min(_ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    with drawing((_PANEL[0] * across, _PANEL[1] * down)) as figure:
        for place, (title, start, ends) in enumerate(panels):
            axes: Any = figure.add_subplot(down, across, place + 1)
            furnish(axes)
            reach = min(_FARTHEST, (len(start["z"]) // 2 + 1) * max(one["q"][0] for one in (start, *ends)))
            x = torch.linspace(-reach, reach, _POINTS, dtype=torch.float64)
            for one, colour in zip(ends, DISTINCT * 9, strict=False):
                axes.plot(x, values_of(one, x), color=colour, linewidth=1.2)
            axes.plot(x, values_of(start, x), color=INK, linewidth=1.2, linestyle=":")
            axes.set_title(title, loc="left", fontsize=7.5, color=INK, pad=4)
        figure.supxlabel("x", fontsize=8, color=INK)
        figure.supylabel("f(x)", fontsize=8, color=INK)
        figure.tight_layout()
    return write_figure(figure, path, label="learned SQUAFs, dotted as they began")


def values_of(shape: Shape, x: torch.Tensor) -> torch.Tensor:
    """A SQUAF with these parameters at x, in float64."""
    z = torch.tensor(shape["z"], dtype=torch.float64)
    return sk.get("squaf")(x, k=len(z) // 2, q=shape["q"][0], alpha=shape["alpha"][0], z=z, window=5)


def _title(row: Mapping[str, Any]) -> str:
    weight = row.get("weight")
    return row["activation"] if weight is None else f"{row['activation']} λ = {weight:g}"

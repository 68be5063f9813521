"""Bending by hand: how far a slider travels for a visible change, and parameters that follow a dragged curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy
import torch
from torch import Tensor

from ...errors import ParameterError
from ...lab.figures import Function
from ...spec import Activation, AtLeastOne, Between, Param, Positive, SoftTable
from ...spec.algebra import sympy
from .inputs import seam_places, sympy_numbers
from .reading import ChosenFunction

KNOTS = 33  # of a slider's travel, straight between them
_GRID = 65
_EVEN = 0.1  # share of the travel that is spread evenly, so that every value can be reached
_ROUNDS = 3  # each narrows a parameter to a 64th
_ENOUGH = 0.05  # of the largest influence: what the parameter that was moved last needs to go on
_NUDGE = 0.03  # of a slider's travel: what one parameter moves the curve by, compared with another


def ends(p: Param, value: float) -> tuple[float, float, bool]:
    """The ends of a slider with room for a value, and whether equal steps are equal ratios."""
    limits, start = p.constraint, float(p.default)
    if isinstance(limits, Between):
        edge = 1e-3 * (limits.high - limits.low)
        low, high, ratios = limits.low + edge, limits.high - edge, False
    elif isinstance(limits, AtLeastOne):
        low, high, ratios = 1.0, max(20.0, 4 * start), True
    elif isinstance(limits, Positive):
        size = 10.0 ** round(math.log10(start))
        low, high, ratios = 0.01 * size, max(10.0 * size, 4.0), True
    else:
        room = max(2.0, 2 * abs(start))
        low, high, ratios = -room, room, False
    return min(low, value), max(high, value), ratios


def steps(p: Param, value: float) -> Tensor:
    """Values from one end of a slider to the other."""
    low, high, ratios = ends(p, value)
    if ratios:
        return torch.logspace(math.log10(low), math.log10(high), _GRID, dtype=torch.float64)
    return torch.linspace(low, high, _GRID, dtype=torch.float64)


def curves(function: ChosenFunction, name: str, x: Tensor) -> Function:
    """f at the places x, in a row for each value of one parameter."""

    def rows(values: Tensor) -> Tensor:
        return function.act(x.expand(len(values), -1).contiguous(), **{**function.given, name: values[:, None]})

    return rows


def travel(function: ChosenFunction, p: Param, low: float, high: float) -> list[float]:
    """The values of a slider at equal steps, such that each changes the curve between low and high about as much.

    >>> from softknee.app.workbench.reading import read
    >>> srelu = read({"text": "srelu", "values": {"delta": 1.0}})
    >>> values = travel(srelu, srelu.params[0], -3, 3)  # its distance to ReLU is 3/16 delta: nearly even steps
    >>> 0.4 < values[16] / values[32] < 0.6
    True
    """
    values = steps(p, function.values[p.name])
    x = torch.linspace(low, high, 101, dtype=torch.float64)
    rows = curves(function, p.name, x)(values).nan_to_num(0.0, 0.0, 0.0)
    change = (rows[1:] - rows[:-1]).abs().amax(1)
    change = change / change.sum() if float(change.sum()) > 0 else torch.full_like(change, 1 / len(change))
    way = torch.cat([torch.zeros(1), ((1 - _EVEN) * change + _EVEN / len(change)).cumsum(0)]).to(torch.float64)
    return numpy.interp(numpy.linspace(0, float(way[-1]), KNOTS), way, values).tolist()


# -- what can be dragged ----------------------------------------------------------------------------------


def handles(function: ChosenFunction, seams: list[float] | None) -> list[dict[str, Any]]:
    """The points of a table, by name, and the joints of pieces that a parameter moves, by number."""
    act = function.act
    if isinstance(act, SoftTable):
        return [
            {"name": f"z{i}", "x": (i - function.options["k"]) * function.values["q"], "y": z}
            for i, z in enumerate(function.points)
        ]
    places = seam_places(act) if seams else None
    if not places:
        return []
    at = [float(place.xreplace(sympy_numbers(function))) for place in places]
    heights = act(torch.tensor(at, dtype=torch.float64), **function.given).tolist()
    joints = enumerate(zip(places, at, heights, strict=True))
    return [{"joint": i, "x": x, "y": y} for i, (place, x, y) in joints if place.free_symbols and math.isfinite(y)]


def pulled(function: ChosenFunction, pull: Any) -> tuple[ChosenFunction, str]:
    """The function with one parameter changed so that it goes through a point, and the name of that parameter.

    pull: {"x", "y"}: f(x) = y; {"joint", "x"}: the joint of that number lies at x. By "param", or without one by the
          parameter that moves the curve there most, for which "prefer" need not move it quite as much.
    """
    if not isinstance(pull, Mapping) or not all(_is_number(pull.get(key, 0.0)) for key in ("y", "joint")):
        raise ParameterError("A curve is pulled to a point, whose places are finite numbers.")
    if not _is_number(pull.get("x")):
        raise ParameterError("A curve is pulled to a point, and its x is missing.")
    by_name = {p.name: p for p in function.params}
    if "joint" in pull:
        places = (seam_places(function.act) if isinstance(function.act, Activation) else None) or ()
        joint = int(pull["joint"])
        if not 0 <= joint < len(places):
            raise ParameterError("The function has no such joint.")
        moving = [name for name, p in by_name.items() if p.symbol in places[joint].free_symbols]
        target, measures = float(pull["x"]), {name: _seam(function, joint, name) for name in moving}
    else:
        x = torch.tensor([float(pull["x"])], dtype=torch.float64)
        target, measures = float(pull.get("y", 0.0)), {name: _height(function, name, x) for name in by_name}
    if not measures:
        raise ParameterError("The function has no parameter that could follow.")
    name, preferred = str(pull.get("param")), str(pull.get("prefer"))
    if name not in measures:
        moves = {name: _influence(measure, by_name[name], function.values[name]) for name, measure in measures.items()}
        name = max(moves, key=lambda other: moves[other])
        name = preferred if moves.get(preferred, 0.0) > _ENOUGH * moves[name] else name
    value = _solve(measures[name], target, by_name[name], function.values[name])
    return replace(function, values={**function.values, name: value}), name


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _height(function: ChosenFunction, name: str, x: Tensor) -> Function:
    rows = curves(function, name, x)
    return lambda values: rows(values)[:, 0]


def _seam(function: ChosenFunction, joint: int, name: str) -> Function:
    assert isinstance(function.act, Activation)
    formula = _seam_formula(function.act, joint)
    return lambda values: formula(**{**function.values, name: values}) + torch.zeros_like(values)


@lru_cache(maxsize=64)
def _seam_formula(act: Activation, joint: int) -> Callable[..., Any]:
    place = (seam_places(act) or ())[joint]
    return sympy.lambdify([p.symbol for p in act.params], place, "numpy")


def _influence(measure: Function, p: Param, value: float) -> float:
    values = steps(p, value)
    nearest = int((values - value).abs().argmin())
    reach = max(1, round(_NUDGE * len(values)))
    around = values[[max(nearest - reach, 0), min(nearest + reach, len(values) - 1)]]
    return float(measure(around).diff().abs().nan_to_num(0.0, 0.0, 0.0))


def _solve(measure: Function, target: float, p: Param, value: float) -> float:
    """The value of a parameter that meets the target or comes nearest to it; of several the one next to the present."""
    values = steps(p, value)
    for _ in range(_ROUNDS):
        gap = measure(values) - target
        crossing = torch.nonzero(gap[:-1] * gap[1:] <= 0).flatten()
        if not len(crossing):
            return _rounded(float(values[int(gap.abs().nan_to_num(math.inf).argmin())]))
        middles = (values[crossing] + values[crossing + 1]) / 2
        place = int(crossing[int((middles - value).abs().argmin())])
        values = torch.linspace(float(values[place]), float(values[place + 1]), _GRID, dtype=torch.float64)
    return _rounded(float(values[_GRID // 2]))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")

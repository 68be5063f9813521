"""What a function does to the signal that goes through it: entropy lost or gained, and two inputs through depth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...design.entropic.densities import Density
from ...design.entropic.entropy import mean_of
from ...design.gaussian import init_gain
from ...errors import SoftkneeError
from ...lab.figures import Function, orders_of, seams_of
from ...measure.propagation import propagation
from .inputs import density_of
from .reading import read

DEPTH = 40
_GRID, _SPREADS, _HALVINGS = 4001, 12.0, 60
_ALL = 1 - 1e-9
_NAMES = {"mean": "the mean", "deviation": "the deviation", "slope_square": "the mean of f′(X)²"}


@dataclass(frozen=True)
class Stretch:
    """Where the slope has one sign: -1, 0 or 1."""

    low: float
    high: float
    sign: int


def entropy(query: dict[str, Any]) -> dict[str, Any]:
    """H(f(X)) - H(X) = E log|f'(X)| of {"function", "density"}, on the whole line or where f is one-to-one.

    A flat stretch sends its share of the inputs into one point, which has no entropy; where f goes up and down the
    formula holds on each side alone. Then the stretch with most of the inputs is taken, and the answer says so.
    """
    function, density = read(query.get("function")), density_of(query.get("density"))
    value, slope, _ = orders_of(function.act, function.given)
    seams = [seam for seam in seams_of(function.act, function.given) or [] if abs(seam) < 1e6]
    mean, square = _mean(value, density, seams), _mean(lambda x: value(x) ** 2, density, seams)
    numbers = {
        "mean": mean,
        "deviation": _root(square - mean**2),
        "slope_square": _mean(lambda x: slope(x) ** 2, density, seams),
    }
    if _undefined(value, density):
        words = "It has no value for some of these inputs, so nothing can be said of its entropy."
        return {**numbers, "change": None, "flat": None, "words": words}
    missing = [name for name, number in numbers.items() if not math.isfinite(number)]
    verb = "does" if len(missing) == 1 else "do"
    gone = f"Of this function {_and([_NAMES[name] for name in missing])} {verb} not exist." if missing else ""
    pieces = [(stretch, _share(density, stretch)) for stretch in stretches(slope, density, seams)]
    flat = sum(share for stretch, share in pieces if stretch.sign == 0)
    steep = [(stretch, share) for stretch, share in pieces if stretch.sign]
    if not steep:
        words = f"It is flat wherever these inputs are. {gone}".strip()
        return {**numbers, "change": None, "flat": flat, "words": words}
    best, share = max(steep, key=lambda pair: pair[1])
    change, _ = mean_of(lambda x: torch.log(slope(x).abs().clamp(min=1e-300)), density, best.low, best.high, seams)
    whole = share > _ALL
    return {
        **numbers,
        "change": change if math.isfinite(change) else None,
        "low": None if math.isinf(best.low) else best.low,
        "high": None if math.isinf(best.high) else best.high,
        "whole": whole,
        "share": share,
        "flat": flat,
        "words": f"{'' if whole else _why(flat, len(steep))} {gone}".strip(),
    }


def _undefined(value: Function, density: Density) -> bool:
    """Whether the function has no value on a stretch of these inputs; a single place, as 0 of 1/x, is none."""
    lost = value(_grid(density)).isnan()
    return bool((lost[1:] & lost[:-1]).any())


def _and(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _why(flat: float, steep: int) -> str:
    if flat > 0:
        return "Flat stretches send the other inputs into single points, which have no entropy."
    return "It goes up and down, and E log|f′| is the change only where it is one-to-one." if steep > 1 else ""


def _root(square: float) -> float:
    return math.nan if math.isnan(square) else math.sqrt(max(square, 0.0))


def _mean(curve: Function, density: Density, seams: list[float]) -> float:
    return mean_of(curve, density, -math.inf, math.inf, seams)[0]


def _share(density: Density, stretch: Stretch) -> float:
    return min(mean_of(torch.zeros_like, density, stretch.low, stretch.high)[1], 1.0)


def _grid(density: Density) -> Tensor:
    """Where these inputs are."""
    reach = _SPREADS * density.spread
    low, high = max(density.reach[0], density.centre - reach), min(density.reach[1], density.centre + reach)
    return torch.linspace(low, high, _GRID, dtype=torch.float64)[1:-1]


def stretches(slope: Function, density: Density, seams: list[float]) -> list[Stretch]:
    """The line cut where the sign of the slope changes, as far as these inputs see it.

    >>> import softknee as sk
    >>> from softknee.design.entropic.densities import normal
    >>> parts = stretches(sk.get("relu").derivative(1), normal(), [0.0])
    >>> [(part.low, part.high, part.sign) for part in parts]
    [(-inf, 0.0, 0), (0.0, inf, 1)]
    """
    grid = _grid(density)
    low, high = grid[0].item(), grid[-1].item()
    near = [seam + side * 1e-9 * (high - low) for seam in seams if low < seam < high for side in (-1, 1)]
    x = torch.cat([grid, torch.tensor(near, dtype=torch.float64)]).sort()[0]
    signs = slope(x).nan_to_num(0.0).sign()
    ends: list[float] = [-math.inf]
    kinds: list[int] = [int(signs[0])]
    for place in torch.nonzero(signs.diff()).flatten().tolist():
        ends.append(_change(slope, x[place], x[place + 1], seams))
        kinds.append(int(signs[place + 1]))
    ends.append(math.inf)
    return [Stretch(a, b, kind) for a, b, kind in zip(ends[:-1], ends[1:], kinds, strict=True) if b > a]


def _change(slope: Function, left: Tensor, right: Tensor, seams: list[float]) -> float:
    """The place between two points at which the sign of the slope changes; a seam where one lies between."""
    for seam in seams:
        if float(left) < seam < float(right):
            return seam
    before = slope(left.reshape(1)).sign()
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        if bool(slope(middle.reshape(1)).sign() == before):
            left = middle
        else:
            right = middle
    return float((left + right) / 2)


def depth(query: dict[str, Any]) -> dict[str, Any]:
    """Two inputs through a wide random network of {"function"}, begun at the second moment of {"density"}.

    On the edge of chaos where there is one at that variance; otherwise with the weights that keep the variance.
    """
    function, density = read(query.get("function")), density_of(query.get("density"))
    q = _mean(lambda x: x * x, density, [])
    settings: dict[str, Any] = {"q": q, "params": function.given}
    reply: dict[str, Any] = {"q": q}
    try:
        gain = init_gain(function.act, q=q, params=function.given)
        run = propagation(function.act, DEPTH, **settings)
        on_edge = run.edge is not None
        if not on_edge:
            reply["why"] = run.why
            run = propagation(function.act, DEPTH, weight_variance=gain**2, **settings)
    except SoftkneeError as error:
        return {**reply, "why": str(error), "one_minus_c": []}
    return {
        **reply,
        "gain": gain,
        "on_edge": on_edge,
        "weights": run.weight_variance,
        "biases": run.bias_variance,
        "slope": run.slope,
        "one_minus_c": list(run.one_minus_c),
        "variance": list(run.variance),
    }

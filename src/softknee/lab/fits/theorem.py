r"""SQUAF's approximation theorem at work on a function that is continuous and nowhere smooth.

    g(x) = sum_n 2^-n d(2^n x),  d the distance to the nearest whole number      (Takagi 1903)

The theorem: for every continuous g on a closed interval and every eps > 0 some SQUAF is within eps of g. Its proof
gives one: z_i = g(i q) at points q apart, and a large h = alpha q^2. With the two nearest points of x in it,

    |phi(x) - g(x)| <= omega(q) + 4 Z e^-h/(1 - e^-h),   omega(q) = sup |g(x) - g(y)| over |x - y| <= q,  Z = max |z_i|

`sk.design.fit` finds a much smaller one, because it chooses z, q and alpha for the error itself.

Reference: Soft quantization activation functions, theorems 1 and 2 and appendix A.2, equation 42 (there with 2 omega).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...design import Fitted, fit
from ...registry import get
from ..chart import INK, by_name, footnote, lines_legend, marks, number, points, side_by_side, sized, ticks
from .page import COLOURS, Drawn

TOLERANCES = (0.4, 0.2, 0.1, 0.05, 0.025)
_SHARPNESS = 8.0  # h of the proof's SQUAF: what is not of the two nearest points weighs e^-8
_TERMS = 30  # the rest is below 1e-9
_LOOKS = 2**14  # places on [-1, 1] where errors are looked at


def takagi(x: Tensor) -> Tensor:
    """The function above.

    >>> takagi(torch.tensor([0.0, 0.25, 1 / 3, 0.5], dtype=torch.float64))
    tensor([0.0000, 0.5000, 0.6667, 0.5000], dtype=torch.float64)
    """
    far = x.double().unsqueeze(-1) * 2.0 ** torch.arange(_TERMS, dtype=torch.float64)
    return ((far - far.round()).abs() * 2.0 ** -torch.arange(_TERMS, dtype=torch.float64)).sum(dim=-1)


def modulus(q: float) -> float:
    """omega(q) of Takagi's function: its largest change over a distance of at most q.

    d is even and d(x + y) <= d(x) + d(y), hence so is g: |g(x + h) - g(x)| <= g(h), which is met at x = 0, and
    omega(q) is the largest g on [0, q]. That lies at a third of a dyadic number for q = 2^-m, and these are looked at.

    >>> round(modulus(1.0), 6), round(modulus(0.25), 6)
    (0.666667, 0.541667)
    """
    return float(takagi(torch.linspace(0.0, min(q, 1.0), 3 * 2**11 + 1, dtype=torch.float64)).max())


@dataclass(frozen=True)
class Constructed:
    """The SQUAF of the proof with 2k+1 points on [-1, 1]: its largest error as looked at, and the proof's bound."""

    k: int
    sup: float
    bound: float


def constructed(k: int) -> Constructed:
    """Take the table from the function itself, as the proof does.

    >>> found = constructed(16)
    >>> found.sup <= found.bound
    True
    """
    q = 1 / k
    z = takagi(torch.arange(-k, k + 1, dtype=torch.float64) * q)
    x = torch.linspace(-1.0, 1.0, _LOOKS + 1, dtype=torch.float64)
    values = get("squaf")(x, k=k, q=q, alpha=_SHARPNESS / q**2, z=z, window=None)
    rest = math.exp(-_SHARPNESS) / -math.expm1(-_SHARPNESS)
    return Constructed(k, float((values - takagi(x)).abs().max()), modulus(q) + 4 * float(z.abs().max()) * rest)


def fitted_to(tolerances: Sequence[float] = TOLERANCES) -> list[Fitted]:
    """The smallest SQUAF within each tolerance of Takagi's function on [-1, 1]; all points are summed, so that it is
    smooth."""
    return [fit(takagi, low=-1.0, high=1.0, tolerance=one, window=None) for one in tolerances]


def theorem_figure(fits: Sequence[Fitted] | None = None) -> Drawn:
    """The function with some of the fits (left out, those of TOLERANCES), and errors against the number of points."""
    found = fitted_to() if fits is None else fits
    proof = [constructed(2**power) for power in range(9)]
    shown = found[1::2] if len(found) > 3 else found
    x = torch.linspace(-1.0, 1.0, 1501, dtype=torch.float64)
    lines = [("g, continuous and nowhere smooth", "#b5b4ae", 3.0, takagi(x))]
    for near, colour in zip(shown, (COLOURS[1], COLOURS[0], COLOURS[2]), strict=False):
        lines.append((f"k = {near.k}, error {near.sup:.2g}", colour, 1.5, near(x)))
    across = number("x", domain=(-1, 1))
    colours = by_name([line[0] for line in lines], [line[1] for line in lines], legend=lines_legend(columns=2))
    left = [
        marks(
            "line",
            points(x.tolist(), y.tolist(), name=name),
            {"x": across, "y": number("y"), "color": colours},
            strokeWidth=wide,
        )
        for name, _, wide, y in lines
    ]
    counts = [2 * squaf.k + 1 for squaf in proof]
    series = {
        "bound of the proof": (INK, [5, 3], counts, [squaf.bound for squaf in proof]),
        "SQUAF of the proof": (COLOURS[0], [1, 0], counts, [squaf.sup for squaf in proof]),
        "sk.design.fit": (COLOURS[1], [1, 0], [2 * near.k + 1 for near in found], [near.sup for near in found]),
    }
    legend = lines_legend(columns=2)
    where = {
        "x": number("x", title="points of the grid, 2k + 1", axis=ticks((3, 10, 30, 100, 300)), scale={"type": "log"}),
        "y": number("y", axis=ticks((0.01, 0.03, 0.1, 0.3, 1), format="~g"), scale={"type": "log"}),
        "color": by_name([*series], [look[0] for look in series.values()], legend=legend),
        "strokeDash": by_name([*series], [look[1] for look in series.values()], legend=legend),
    }
    right = [
        marks("line", points(xs, ys, name=name), where, point={"size": 26} if dash == [1, 0] else False)
        for name, (_, dash, xs, ys) in series.items()
    ]
    note = "g is Takagi's function. Every fit is the smallest that reaches its tolerance, as found by sk.design.fit."
    figure = side_by_side(
        [
            sized({"title": "SQUAF near a function that has no slope anywhere", "layer": left}, 440, 235),
            sized({"title": "largest error on [−1, 1]", "layer": right}, 280, 235),
        ],
        columns=2,
    )
    figure["title"] = footnote(note)
    words = "Takagi's function and SQUAFs near it; the largest error against the number of points"
    return Drawn(figure, f"{words}, beside the SQUAF of the theorem's proof and its bound.")

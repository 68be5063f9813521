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
from .page import COLOURS, INK, Drawn, furnish, page

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
    with page(9.2, 3.5) as sheet:
        left = sheet.axes(0.4, 0.42, 4.85, 2.45)
        furnish(left)
        x = torch.linspace(-1.0, 1.0, 4001, dtype=torch.float64)
        left.plot(x, takagi(x), color="#b5b4ae", linewidth=2.4, label="g, continuous and nowhere smooth")
        for one, colour in zip(shown, (COLOURS[1], COLOURS[0], COLOURS[2]), strict=False):
            left.plot(x, one(x), color=colour, linewidth=1.1, label=f"k = {one.k}, error {one.sup:.2g}")
        left.set_xlim(-1, 1)
        left.legend(loc="lower center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False, fontsize=7)
        low, high = left.get_ylim()
        left.set_ylim(low - 0.24 * (high - low), high)
        left.set_yticks([0, 0.2, 0.4, 0.6])
        sheet.write(0.4, 0.12, "SQUAF near a function that has no slope anywhere", size=9.5, ha="left")
        right = sheet.axes(6.0, 0.42, 3.05, 2.45)
        furnish(right, across="points of the grid, 2k + 1")
        right.set(xscale="log", yscale="log")
        counts = [2 * one.k + 1 for one in proof]
        right.plot(
            counts,
            [one.bound for one in proof],
            color=INK,
            linewidth=1.0,
            linestyle=(0, (4, 2)),
            label="bound of the proof",
        )
        right.plot(
            counts,
            [one.sup for one in proof],
            color=COLOURS[0],
            marker="s",
            markersize=3.5,
            linewidth=1.2,
            label="SQUAF of the proof",
        )
        right.plot(
            [2 * one.k + 1 for one in found],
            [one.sup for one in found],
            color=COLOURS[1],
            marker="o",
            markersize=4,
            linewidth=1.4,
            label="sk.design.fit",
        )
        right.set_xticks([3, 10, 30, 100, 300], ["3", "10", "30", "100", "300"])
        right.set_yticks([0.01, 0.03, 0.1, 0.3, 1], ["0.01", "0.03", "0.1", "0.3", "1"])
        right.minorticks_off()
        right.legend(loc="lower left", frameon=False, fontsize=7)
        sheet.write(6.0, 0.12, "largest error on [−1, 1]", size=9.5, ha="left")
        sheet.footnote(
            "g is Takagi's function. Every fit is the smallest that reaches its tolerance, as found by sk.design.fit."
        )
    words = "Takagi's function and SQUAFs near it; the largest error against the number of points"
    return Drawn(sheet.figure, f"{words}, beside the SQUAF of the theorem's proof and its bound.")

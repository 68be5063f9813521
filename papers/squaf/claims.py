"""Claims of the SQUAF paper: the function, rates, and its tables."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Any

import torch
from torch import Tensor

from ..claim import F64, HOLDS, OURS, Finding, claims_of, get, line, mp

claim = claims_of("squaf")

# The paper's 1D function to fit (section 4.1), and its largest slope.
_WAVES = ((0.4, 19.0), (0.2, 23.0), (0.3, 29.0), (0.1, 31.0))


def _target(points: Tensor) -> Tensor:
    return torch.stack([size * torch.sin(rate * points) for size, rate in _WAVES]).sum(0)


def _table(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=F64)


def _probabilities(points: Tensor, grid: Tensor, alpha: Tensor | float) -> Tensor:
    """P(y_i | x) of equation 2, one row for each x, as the paper writes it."""
    return torch.softmax(-alpha * (points[:, None] - grid) ** 2, dim=1)


def _covariance(p: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return (p * left * right).sum(1) - (p * left).sum(1) * (p * right).sum(1)


def _agreement(pairs: dict[str, tuple[Tensor, Tensor]]) -> tuple[str, dict[str, bool]]:
    """How well computed and printed derivatives agree, in words, and which of them do."""
    gaps = {name: ((a - b).abs().max() / b.abs().max()).item() for name, (a, b) in pairs.items()}
    good = {name: gap < 1e-11 for name, gap in gaps.items()}
    worst = "to 11 digits and more" if all(good.values()) else f"with a relative error of {max(gaps.values()):.1e}"
    return worst, good


@claim(
    place="Appendix A.1, equations 13 to 19",
    says=r"$\partial\phi/\partial x = 2\alpha\,\mathrm{Cov}(z, y \mid x)$, on a general grid and on a uniform one.",
    expect="holds",
)
def slope_is_a_covariance() -> Finding:
    """The computed derivative against the printed covariance, on a uniform and on an irregular grid."""
    act, points = get("squaf"), line(-3, 3, 4001)
    heights, irregular = _table(9), torch.tensor([-1.9, -1.2, -0.9, -0.1, 0.3, 0.5, 1.1, 1.3, 2.2], dtype=F64)
    uniform = 0.4 * torch.arange(-4, 5, dtype=F64)
    pairs = {
        "uniform grid": (
            act.derivative(1)(points, q=0.4, alpha=3.0, z=heights, window=None),
            2 * 3.0 * _covariance(_probabilities(points, uniform, 3.0), heights, uniform),
        ),
        "general grid": (
            act.derivative(1)(points, grid=irregular, alpha=3.0, z=heights),
            2 * 3.0 * _covariance(_probabilities(points, irregular, 3.0), heights, irregular),
        ),
    }
    worst, good = _agreement(pairs)
    return Finding(f"both agree with the computed derivative {worst}", parts=good)


@claim(
    place="Appendix A.1, equations 20 to 28",
    says=r"$\partial\phi/\partial z_i = P(y_i\mid x)$, $\partial\phi/\partial y_j = 2\alpha(x - y_j)P(y_j\mid x)(z_j - "
    r"\phi)$, and $\partial\phi/\partial q$ by the chain rule.",
    expect="holds",
)
def slopes_by_table_and_grid() -> Finding:
    """Automatic differentiation through the definition against the printed sums, each summed over 400 points."""
    act, points = get("squaf"), line(-3, 3, 400)
    heights, signal = _table(9), torch.cos(7 * points)
    free = torch.tensor([-1.9, -1.2, -0.9, -0.1, 0.3, 0.5, 1.1, 1.3, 2.2], dtype=F64, requires_grad=True)
    z, q = heights.clone().requires_grad_(), torch.tensor([0.4], dtype=F64, requires_grad=True)
    (by_y,) = torch.autograd.grad((act(points, grid=free, alpha=3.0, z=heights) * signal).sum(), free)
    by_z, by_q = torch.autograd.grad((act(points, q=q, alpha=3.0, z=z, window=None) * signal).sum(), (z, q))

    grid = free.detach()
    p = _probabilities(points, grid, 3.0)
    terms = 6.0 * (points[:, None] - grid) * p * (heights - (p * heights).sum(1, keepdim=True))
    steps = torch.arange(-4, 5, dtype=F64)
    even = _probabilities(points, 0.4 * steps, 3.0)
    chain = 6.0 * steps * (points[:, None] - 0.4 * steps) * even * (heights - (even * heights).sum(1, keepdim=True))
    pairs = {
        "by y": (by_y, (signal[:, None] * terms).sum(0)),
        "by z": (by_z, (signal[:, None] * even).sum(0)),
        "by q": (by_q, (signal[:, None] * chain).sum().reshape(1)),
    }
    worst, good = _agreement(pairs)
    return Finding(f"all three agree with automatic differentiation {worst}", parts=good)


@claim(
    place="Appendix A.1, equations 29 to 34",
    says=r"$\partial\phi/\partial\alpha = -\mathrm{Cov}(z, (x - y)^2 \mid x)$.",
    expect="holds",
)
def slope_by_alpha() -> Finding:
    """Automatic differentiation through the definition against the printed covariance, point by point."""
    act, points, heights = get("squaf"), line(-3, 3, 400), _table(9)
    alpha = torch.full((400,), 3.0, dtype=F64, requires_grad=True)
    (computed,) = torch.autograd.grad(act(points, q=0.4, alpha=alpha, z=heights, window=None).sum(), alpha)
    grid = 0.4 * torch.arange(-4, 5, dtype=F64)
    p = _probabilities(points, grid, 3.0)
    worst, good = _agreement({"by alpha": (computed, -_covariance(p, heights, (points[:, None] - grid) ** 2))})
    return Finding(f"agrees with automatic differentiation {worst}", parts=good)


def _off_the_axis(half: int, h: float, share: float) -> float:
    """|mean of phi over a circle about q/4 - phi(q/4)|, the radius being that share of the way to the nearest pole.

    The sum of the weights is a theta function (up to its ends) with zeros pi q/(2h) above the midpoints; where phi is
    analytic inside the circle, the mean is the value at the centre.
    """
    with mp.workdps(30):
        heights = [mp.mpf(v) for v in _table(2 * half + 1).tolist()]

        def phi(at: Any) -> Any:
            weights = [mp.exp(-h * (at - i) ** 2) for i in range(-half, half + 1)]
            return mp.fdot(heights, weights) / mp.fsum(weights)

        centre, reach = mp.mpf("0.25"), mp.sqrt(mp.mpf("0.0625") + (mp.pi / (2 * h)) ** 2)
        circle = [phi(centre + share * reach * mp.expjpi(2 * mp.mpf(i) / 300)) for i in range(300)]
        return float(abs(mp.fsum(circle) / 300 - phi(centre)))


@claim(place="Sections 1, 3.1 and 5", says="A SQUAF with Gaussian weights is analytic.", expect="holds")
def full_sum_is_analytic() -> Finding:
    """The mean over a circle about q/4, smaller and larger than the distance to the nearest pole; k = 6, h = 1.5."""
    inside, outside = _off_the_axis(6, 1.5, 0.85), _off_the_axis(6, 1.5, 1.1)
    return Finding(
        rf"the full sum is: a quotient of entire functions whose denominator is positive on the line. Its mean over a "
        rf"complex circle is its value at the centre (off by less than "
        rf"{'1e-15' if inside < 1e-15 else f'{inside:.0e}'}) up to the nearest pole, $\pi q/(2h)$ above a "
        f"midpoint; beyond, it is {outside:.2f} off",
        parts={"full sum": inside < 1e-15 and outside > 1e-3},
        numbers={"off_beyond_the_pole": outside},
    )


def _jump(h: float, z: Any, *, q: float = 0.25, k: int = 16) -> float:
    """The largest jump at the midpoints of the grid with a window of five, less what the full sum does there."""
    act = get("squaf")
    middle = (torch.arange(-k + 3, k - 3, dtype=F64) + 0.5) * q
    step = []
    for window in (5, None):
        left, right = (act(middle + side * 1e-13, k=k, q=q, alpha=h / q**2, z=z, window=window) for side in (-1, 1))
        step.append(right - left)
    return (step[0] - step[1]).abs().max().item()


@claim(
    place="Appendix A.4, with sections 1, 3.1 and 5",
    says="SQUAF is called analytic and differentiable; the version that is run is cut to the 5 nearest points.",
    expect="partly",
)
def five_points_jump() -> Finding:
    """The full sum by the claim on sections 1, 3.1 and 5; cut, the computed function just left and right of the points
    where the window slides, for the h of the experiments."""
    heights = _table(33)
    jumps = {h: _jump(h, heights) for h in (0.5, 1.0, 1.5, 2.0)}
    starts = {"GELU, q = 0.25": _jump(1.5, "gelu"), "ReLU, q = 1": _jump(1.5, "relu", q=1.0)}
    text = "; ".join(f"h = {h:g}: weight {math.exp(-6 * h):.2g}, jump {size:.2g}" for h, size in jumps.items())
    return Finding(
        "the full sum is; cut to 5 points it is not even continuous. Where the window slides, a point leaves with "
        rf"relative weight $e^{{-6h}}$, $h = \alpha q^2$, and the value jumps (k = 16, q = 0.25, normal heights; "
        f"{text}). At the start of the networks with k = 16 (h = 1.5) the jump is "
        f"{', '.join(f'{size:.0e} ({name})' for name, size in starts.items())}; with k = 2 the five nearest points are "
        "the whole grid and nothing jumps",
        parts={
            "the full sum is analytic": full_sum_is_analytic.check().verdict == HOLDS,
            "cut, it is continuous": all(size < 1e-9 for size in jumps.values()),
        },
        numbers={f"jump_at_h_{h:g}": size for h, size in jumps.items()} | {f"jump, {n}": v for n, v in starts.items()},
    )


def _departure(weights: str, sharpness: float) -> float:
    """How far phi leaves the segment between the heights at its two nearest points; k = 6, q = 1."""
    heights = _table(13)
    points = line(-9, 9, 18001) + 1e-7
    values = get("squaf")(points, q=1.0, alpha=sharpness, z=heights, window=None, weights=weights)
    low = points.floor().clamp(-6, 5).long() + 6
    ends = torch.stack([heights[low], heights[low + 1]])
    return (values - values.clamp(ends.amin(0), ends.amax(0))).abs().max().item()


@claim(
    place="Theorem 2 with equations 41 and 42, property P2",
    says=r"With Gaussian or Laplacian weights, $\phi$ tends uniformly to a mix of the two nearest heights: it departs "
    r"by at most $4Z e^{-\alpha s^2}/(1 - e^{-\alpha s^2})$ (with $\alpha s$ for Laplacian weights).",
    expect="holds",
)
def localisation() -> Finding:
    """The departure on a fine grid reaching beyond the ends, against the bound, for four sharpnesses and both kinds."""
    peak = _table(13).abs().max().item()
    shares, departures = {}, {}
    for weights in ("gaussian", "laplacian"):
        for sharpness in (1.0, 2.0, 4.0, 8.0):
            departure = _departure(weights, sharpness)
            bound = 4 * peak * math.exp(-sharpness) / -math.expm1(-sharpness)
            shares[weights, sharpness], departures[weights, sharpness] = departure / bound, departure
    by_kind = {
        kind: all(shares[kind, s] <= 1 for s in (1.0, 2.0, 4.0, 8.0))
        and departures[kind, 8.0] < 0.01 * departures[kind, 1.0]
        for kind in ("gaussian", "laplacian")
    }
    worst = {kind: max(share for (weights, _), share in shares.items() if weights == kind) for kind in by_kind}
    return Finding(
        f"at most {worst['gaussian']:.2f} of the bound with Gaussian and {worst['laplacian']:.2f} with Laplacian "
        f"weights; from α = 1 to 8 (q = 1) the departure falls from {departures['gaussian', 1.0]:.3f} to "
        f"{departures['gaussian', 8.0]:.2g} and from {departures['laplacian', 1.0]:.3f} to "
        f"{departures['laplacian', 8.0]:.2g}",
        parts=by_kind,
        numbers={f"{kind}_at_alpha_{s:g}": value for (kind, s), value in departures.items()},
    )


@claim(
    place="Theorem 1",
    says=r"For every continuous $g$ on a closed interval and every $\varepsilon$ there is a SQUAF within $\varepsilon$ "
    r"of it.",
    expect="holds",
)
def universal_approximation() -> Finding:
    r"""The proof's construction for the paper's 1D function and epsilon = 0.05, measured between grid points too.

    q = epsilon/(3 L) with L the Lipschitz constant of g, k = floor(1/q), z_i = g(i q), and alpha so large that equation
    42 is below epsilon/3. The largest gap on a grid becomes a bound for all x with the Lipschitz constants of both.
    """
    epsilon, steepest = 0.05, sum(size * rate for size, rate in _WAVES)
    q = epsilon / (3 * steepest)
    k = math.floor(1 / q)
    heights = _target(q * torch.arange(-k, k + 1, dtype=F64))
    h = math.log1p(4 * heights.abs().max().item() / (epsilon / 3))
    points, worst = line(-1, 1, 10001), 0.0
    for part in points.split(2000):
        values = get("squaf")(part, q=q, alpha=h / q**2, z=heights, window=None)
        worst = max(worst, (values - _target(part)).abs().max().item())
    own = heights.diff().abs().max().item() / q * h / -math.expm1(-h)
    bound = worst + (own + steepest) * 2e-4 / 2
    return Finding(
        rf"for the paper's 1D target and $\varepsilon = 0.05$ the proof's construction has k = {k:,}, $\alpha q^2 = "
        f"{h:.2f}$; its error is {worst:.4f} on 10,001 points and provably below {bound:.4f} between them",
        parts={"within epsilon": bound <= epsilon},
        numbers={"k": k, "error": worst, "bound": bound},
    )


@claim(
    place="Abstract and section 1",
    says="A SQUAF can approximate any continuous function of one variable with arbitrary precision.",
    expect="partly",
)
def only_on_an_interval() -> Finding:
    """A SQUAF lies between two of its heights: its distance to gelu outside the grid, and its largest value."""
    act, settings = get("squaf"), {"k": 16, "q": 0.25, "z": "gelu", "window": None}
    far = torch.tensor([4.0, 8.0, 100.0], dtype=F64)
    away = (get("gelu")(far) - act(far, **settings)).abs().tolist()
    near = (get("gelu")(line(-3, 3)) - act(line(-3, 3), **settings)).abs().max().item()
    bounded = act(line(-1e6, 1e6), **settings)
    inside = bool(bounded.max() <= get("gelu")(torch.tensor([4.0], dtype=F64)) + 1e-12)
    return Finding(
        "on a closed interval, as theorem 1 has it; on the line no SQUAF comes near ReLU or GELU, because it stays "
        f"between two of its heights. Started as GELU with k = 16, q = 0.25 (CIFAR-100) it is within {near:.3f} of it "
        f"on $[-3, 3]$, {away[1]:.2f} off at x = 8 and {away[2]:.2f} at x = 100",
        parts={"on an interval": near < 0.05, "on the line": not inside and away[2] < 1},
        numbers={"off_within_3": near, "off_at_8": away[1], "off_at_100": away[2]},
    )


@claim(
    place="Section 3.1, remark 2, and appendix A.1, below equation 18",
    says="With proper choices of its parameters SQUAF does not have vanishing gradients: its slope is a covariance, "
    "nonzero unless z and y are uncorrelated.",
    expect="partly",
)
def slope_vanishes_outside_the_grid() -> Finding:
    """The least slope on the grid with z = y, and the slope at and beyond the last point with z from gelu; k = 16, q =
    0.25, alpha = 1.5/q^2."""
    act = get("squaf").derivative(1)
    settings = {"k": 16, "q": 0.25, "alpha": 24.0, "window": None}
    least = act(line(-4, 4), z=0.25 * torch.arange(-16, 17, dtype=F64), **settings).min().item()
    at = torch.tensor([3.0, 4.0, 5.0, 6.0, 8.0], dtype=F64)
    slopes = act(at, z="gelu", **settings).tolist()
    text = ", ".join(f"{slope:.2g} at {place:g}" for slope, place in zip(slopes, at.tolist(), strict=True))
    return Finding(
        rf"on the grid there are such choices: with z = y the slope is {least:.2f} or more. Beyond it there are none: "
        rf"P is one point there and the covariance dies as $e^{{-2\alpha q(x - kq)}}$; started as GELU with k = 16, "
        f"q = 0.25 (grid to 4) the slope is {text}",
        parts={"on the grid": least > 0.1, "beyond it": min(abs(slope) for slope in slopes) > 1e-6},
        numbers={"least_slope": least}
        | {f"slope_at_{place:g}": slope for slope, place in zip(slopes, at.tolist(), strict=True)},
    )


def _sides(points: Tensor, weights: str) -> tuple[Tensor, Tensor]:
    """The slopes just left and right of these points; k = 4, q = 0.5, alpha = 3."""
    slope, settings = get("squaf").derivative(1), {"q": 0.5, "alpha": 3.0, "z": _table(9), "window": None}
    left, right = (slope(points + side * 1e-9, weights=weights, **settings) for side in (-1, 1))
    return left, right


@claim(
    place="Section 3.2, property P1, and theorem 2",
    says="With Gaussian and with Laplacian weights P, and with it SQUAF, is differentiable almost everywhere.",
    expect="holds",
)
def laplacian_has_kinks() -> Finding:
    """The slopes on both sides of every grid point and of 997 points between them, for both kinds of weights, and the
    Laplacian beyond the last point."""
    grid = 0.5 * torch.arange(-4, 5, dtype=F64)
    between = line(-2.6, 2.6, 997)
    between = between[(between[:, None] - grid).abs().amin(1) > 1e-3]
    smooth = {}
    for weights in ("gaussian", "laplacian"):
        points = torch.cat([between, grid]) if weights == "gaussian" else between
        left, right = _sides(points, weights)
        smooth[weights] = (right - left).abs().max().item() < 1e-6
    before, after = (side[5].item() for side in _sides(grid, "laplacian"))
    kinks = int((torch.stack(_sides(grid, "laplacian")).diff(dim=0).abs() > 1e-6).sum())
    beyond = get("squaf")(
        torch.tensor([2.0, 3.0, 50.0], dtype=F64), q=0.5, alpha=3.0, z=_table(9), window=None, weights="laplacian"
    )
    flat = (beyond - beyond[0]).abs().max().item() < 1e-12
    return Finding(
        f"with Gaussian weights SQUAF is, everywhere; with Laplacian ones everywhere but at {kinks} points, those of "
        f"the grid (slopes {before:.3f} and {after:.3f} on the two sides of y = 0.5, k = 4, α = 3), and it is "
        f"{'constant' if flat else 'not constant'} outside the grid",
        parts=smooth,
        numbers={"slope_left": before, "slope_right": after, "kinks": kinks},
    )


@claim(
    place=f"{OURS} remark on appendix A.4, equations 43 and 44",
    says=r"As $\alpha$ grows, SQUAF hardens into SQUAF-S, the height at the nearest point, in the mean over x and not "
    "uniformly.",
    expect="holds",
)
def staircase() -> Finding:
    """The distance of SQUAF from the staircase as alpha grows: its mean over x falls, its supremum does not."""
    heights, points = _table(9), line(-2.4, 2.4, 96001) + 1e-7
    stairs = heights[(points / 0.5).round().clamp(-4, 4).long() + 4]
    mean, sup = {}, {}
    for h in (4.0, 40.0, 400.0):
        gap = (get("squaf")(points, q=0.5, alpha=h / 0.25, z=heights, window=None) - stairs).abs()
        side = torch.tensor([0.25 + 1e-9], dtype=F64)
        middle = get("squaf")(side, q=0.5, alpha=h / 0.25, z=heights, window=None).item()
        mean[h], sup[h] = gap.mean().item(), abs(middle - heights[5].item())
    half = abs(heights[5] - heights[4]).item() / 2
    text = ", ".join(f"{value:.4f} at αq² = {h:g}" for h, value in mean.items())
    return Finding(
        f"the mean distance is {text}; halfway between two points SQUAF is their mean for every α, so the distance "
        f"there stays half the step ({half:.3f} here)",
        parts={"in the mean": mean[400.0] < 0.02 * mean[4.0], "not uniformly": sup[400.0] > 0.5 * half},
        numbers={f"mean_at_h_{h:g}": value for h, value in mean.items()} | {"half_step": half},
    )


@claim(place="Section 3.1, remark 4", says=r"$\alpha$ can be regarded as a horizontal scaling factor.", expect="partly")
def alpha_scales_with_q() -> Finding:
    """phi(c x) with q times c and alpha over c^2 is phi(x); with alpha alone no stretch of x does it."""
    act, heights, points = get("squaf"), _table(9), line(-3, 3, 4001)
    base = act(points, q=0.5, alpha=6.0, z=heights, window=None)
    both = (act(3 * points, q=1.5, alpha=6.0 / 9, z=heights, window=None) - base).abs().max().item()
    alone = min(
        (act(c * points, q=0.5, alpha=6.0 / 9, z=heights, window=None) - base).abs().max().item()
        for c in torch.linspace(0.2, 5, 97).tolist()
    )
    return Finding(
        rf"together with the grid: $q \to c q$, $\alpha \to\alpha/c^2$ stretches $\phi$ by $c$ (off by less than "
        rf"1e-12), so only $\alpha q^2$ and "
        f"z give it its shape. Alone it is no stretch: α/9 differs from every stretched copy by {alone:.2f} or more",
        parts={"with q": both < 1e-12, "alone": alone < 1e-6},
        numbers={"least_difference_alone": alone},
    )


# -- Claims of the SQUAF paper about rates and about the numbers of parameters in its tables.


def _huffman(probabilities: list[float]) -> float:
    """The mean length of a Huffman code, in bits: the sum of all the merged weights."""
    order = itertools.count()
    heap = [(p, next(order)) for p in probabilities if p > 0]
    heapq.heapify(heap)
    total = 0.0
    while len(heap) > 1:
        weight = heapq.heappop(heap)[0] + heapq.heappop(heap)[0]
        total += weight
        heapq.heappush(heap, (weight, next(order)))
    return total


@claim(
    place="Equation 12",
    says="The entropy of the mean conditional distribution is a close proxy of the rate of a Huffman code.",
    expect="holds",
)
def entropy_is_nearly_the_huffman_rate() -> Finding:
    """The marginal of a SQUAF-P with k = 16 over normal pre-activations, its entropy, and the code built for it."""
    inputs = torch.special.ndtri((torch.arange(20000, dtype=F64) + 0.5) / 20000)
    grid = torch.arange(-16, 17, dtype=F64)
    rows = {}
    for q in (0.125, 0.25, 1.0):
        p = torch.softmax(-1.5 * (inputs[:, None] / q - grid) ** 2, dim=1).mean(0)
        entropy = -(p * p.clamp(min=1e-300).log2()).sum().item()
        rows[q] = (entropy, _huffman(p.tolist()))
    text = ", ".join(f"{h:.3f} and {length:.3f} bits at q = {q:g}" for q, (h, length) in rows.items())
    return Finding(
        rf"over $N(0, 1)$ with $k = 16$, $\alpha q^2 = 1.5$: {text} (entropy and code); a code is never shorter and "
        f"less than 1 bit longer. 3.4 bits of 32 are a factor {32 / 3.4:.2f}, as printed",
        parts={
            "close": all(h <= length < h + 0.1 for h, length in rows.values()),
            "factor 9.4": round(32 / 3.4, 1) == 9.4,
        },
        numbers={f"entropy_at_{q:g}": h for q, (h, _) in rows.items()}
        | {f"huffman_at_{q:g}": length for q, (_, length) in rows.items()},
    )


def _mlp(*widths: int) -> int:
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


def _own(k: int, *, spacing: bool = True) -> int:
    """The parameters of one SQUAF: 2k+1 heights, alpha, and q where it is trained."""
    return 2 * k + 2 + spacing


@claim(
    place="Tables 2, 3 and 7",
    says="The numbers of trainable parameters with SQUAF: 200 and 208 in function fitting, 192 and 28 for SQUAF alone, "
    "4561 and 4626 in toy classification, 35 more in distillation.",
    expect="holds",
)
def parameters_of_the_small_models() -> Finding:
    """Counted from the layers' widths and k; q is frozen where SQUAF stands alone."""
    counts = {
        "1D": (_mlp(1, 64, 1) + _own(2), 200),
        "2D": (_mlp(2, 50, 1) + _own(2), 208),
        "alone, k = 95": (_own(95, spacing=False), 192),
        "alone, k = 13": (_own(13, spacing=False), 28),
        "3 classes": (_mlp(2, 64, 64, 3) + 2 * _own(2), 4561),
        "4 classes": (_mlp(2, 64, 64, 4) + 2 * _own(2), 4626),
        "VGG-8": (3965028 + _own(16), 3965063),
        "WRN-16-2": (703284 + _own(16), 703319),
    }
    compression = 2255156 / 703319
    return Finding(
        f"all eight, and the ratios drawn from them: {202 / 28:.1f} to DiTAC, {compression:.1f} from teacher to "
        f"student",
        parts={name: count == printed for name, (count, printed) in counts.items()}
        | {"ratios": round(202 / 28, 1) == 7.2 and round(compression, 1) == 3.2},
        numbers={name: count for name, (count, _) in counts.items()},
    )


def _vit_tiny(classes: int) -> int:
    """ViT-T for 224 pixels and patches of 16: width 192, 12 blocks."""
    width, places = 192, 197
    block = (
        4 * width + (width + 1) * 3 * width + (width + 1) * width + (width + 1) * 4 * width + (4 * width + 1) * width
    )
    return (3 * 16 * 16 + 1) * width + width + places * width + 12 * block + 2 * width + (width + 1) * classes


def _resnet56(classes: int) -> int:
    """ResNet-56 for CIFAR: 9 blocks each of 16, 32 and 64 channels, with projections where the width changes."""
    total = 3 * 9 * 16 + 2 * 16
    before = 16
    for width in (16, 32, 64):
        for _ in range(9):
            total += before * 9 * width + width * 9 * width + 4 * width
            total += before * width + 2 * width if before != width else 0
            before = width
    return total + (64 + 1) * classes


@claim(
    place="Table 13",
    says="ViT-T has 5,543,716 parameters on CIFAR-100 and on ImageNet-1K; ResNet-56 has 856,420 on CIFAR-100.",
    expect="partly",
)
def parameters_of_the_networks() -> Finding:
    """Counted from the layers' shapes, for the number of classes that each data set has."""
    vit = {classes: _vit_tiny(classes) for classes in (100, 1000)}
    resnet = {classes: _resnet56(classes) for classes in (20, 100)}
    return Finding(
        f"ViT-T: {vit[100]:,} with 100 classes, right; with 1000 it has {vit[1000]:,}. ResNet-56 with 100 classes has "
        f"{resnet[100]:,}; the printed number is that of 20 classes ({resnet[20]:,})",
        parts={
            "ViT-T, 100 classes": vit[100] == 5543716,
            "ViT-T, 1000 classes": vit[1000] == 5543716,
            "ResNet-56, 100 classes": resnet[100] == 856420,
        },
        numbers={f"vit_t_{c}": n for c, n in vit.items()} | {f"resnet56_{c}": n for c, n in resnet.items()},
    )


@claim(
    place="Tables 13 and 15, appendix A.7",
    says="SQUAF adds 35 parameters per trained activation: 455, 945, 420, 350 and 420 in the larger models, at most "
    "0.0076%; MobileNet with SQUAF has 4,232,781.",
    expect="holds",
)
def parameters_added() -> Finding:
    """Sites times 2k+3 with k = 16, less those of the last stage, which is frozen in networks with stages (A.3.2)."""
    sites = {"ResNet-18": 17 - 4, "ResNet-34": 33 - 6, "ViT-T": 12, "Swin-T": 12 - 2, "GPT-2": 12, "MobileNet": 27 - 4}
    printed = {
        "ResNet-18": 455,
        "ResNet-34": 945,
        "ViT-T": 420,
        "Swin-T": 350,
        "GPT-2": 420,
        "MobileNet": 4232781 - 4231976,
    }
    each = _own(16)
    rate = 100 * 420 / 5543716
    true_rate = 100 * 420 / _vit_tiny(1000)
    return Finding(
        f"{each} each; with the last stage frozen (appendix A.3.2; in MobileNet 4 of 27 activations) all six follow: "
        f"4,232,781 for MobileNet, {printed['MobileNet']} above our count without SQUAF. "
        f"{rate:.4f}% is of the printed ViT-T; of one with 1000 classes 420 are {true_rate:.4f}%",
        parts={
            "counts": all(sites[name] * each == printed[name] for name in sites),
            "largest share": math.isclose(rate, 0.0076, abs_tol=5e-5),
        },
        numbers={"per_activation": each} | {name: count * each for name, count in sites.items()},
    )

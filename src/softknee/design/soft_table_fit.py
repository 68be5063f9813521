r"""A SQUAF that stands for another function: its table by least squares instead of by sampling.

SQUAF is linear in its table, squaf(x) = sum_i P(y_i|x) z_i, so the z nearest to a target f,

    minimise  integral over [low, high] of (sum_i P(y_i|x) z_i - f(x))^2 dx,

is a linear least squares problem. A sampled table z_i = f(y_i) gives the target smoothed by the weights, which for a
convex knee lies above it everywhere; the fitted one undoes the smoothing as far as the grid allows.

The integral is a Gauss-Legendre sum over panels that end wherever the integrand can bend or jump (grid points, the
midpoints at which a window slides, the seams of the target). Solved is the correction to the sampled table, of least
norm: where the weights overlap so widely (alpha q^2 below 0.35 or so) that large tables of alternating sign differ by
nothing on the line, those directions keep their samples instead of blowing up.

Reference: the SQUAF paper starts its tables "fitted to ReLU" and "fitted to GELU" (see zoo/squaf.py for the formula).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ParameterError, SoftkneeError
from ..spec import Activation, Rowwise, SoftTable
from .concrete import concrete
from .quadrature import legendre_rule

# Directions of z that move the function by less than this share of what the strongest direction does are left alone:
# a table may then be ten thousand times its own effect, which float32 still computes to 1e-3 of it.
_WEAKEST = 1e-4
_NODES = 12
_LOOKS = 16  # places per panel at which the error is looked at


@dataclass(frozen=True, eq=False)
class TableFit:
    """A fitted table.

    z:       the values at the points i q, i = -k..k, in float64.
    error:   the largest |SQUAF - target| seen on [low, high].
    rms:     its root mean square there.
    sampled: the largest error of the sampled table, for comparison.
    low, high: where the two were compared.
    """

    z: Tensor
    error: float
    rms: float
    sampled: float
    low: float
    high: float


def fit_table(
    target: Any,
    *,
    k: int,
    q: float,
    alpha: float,
    weights: str = "gaussian",
    window: int | None = None,
    low: float | None = None,
    high: float | None = None,
) -> TableFit:
    """The table z that brings SQUAF nearest to a function in the mean square, in closed form.

    Args:
        target: a name, a definition, or any function, of a float64 tensor (to one of the same shape) or of a number.
        k, q, alpha, weights: of the SQUAF, as in `sk.nn.Squaf`.
        window: how many of the nearest points it keeps; None for all.
        low, high: where it is to be near; by default the grid and half a step more, up to where its ends are still the
            points nearest to x. SQUAF is constant beyond, and no table changes that.

    >>> import softknee as sk
    >>> fit = sk.design.fit_table("gelu", k=16, q=0.25, alpha=24.0)
    >>> fit.z.shape, fit.error < fit.sampled / 2
    (torch.Size([33]), True)
    """
    _check(k, q, alpha, weights, window)
    reach = (k + 0.5) * q
    low = -reach if low is None else float(low)
    high = reach if high is None else float(high)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(
            f"fit_table: low must be below high, both finite numbers, and {low!r}, {high!r} were given."
        )
    curve, seams = curve_of(target)
    halves = [q * i / 2 for i in range(-2 * k - 1, 2 * k + 2)]
    edges = sorted({low, high, *(edge for edge in [*halves, *seams] if low < edge < high)})
    nodes, node_weights = on_panels(edges, *legendre_rule(_NODES))
    points = q * torch.arange(-k, k + 1, dtype=torch.float64)
    sampled = values_of(curve, points)
    design = shares_of(nodes, k=k, q=q, alpha=alpha, weights=weights, window=window)
    root = node_weights.sqrt()[:, None]
    missing = values_of(curve, nodes) - design @ sampled
    correction = torch.linalg.lstsq(root * design, root * missing[:, None], rcond=_WEAKEST, driver="gelsd").solution
    z = sampled + correction[:, 0]
    looks, _ = on_panels(edges, *even(_LOOKS))
    shares = shares_of(looks, k=k, q=q, alpha=alpha, weights=weights, window=window)
    truth = values_of(curve, looks)
    rms = ((missing - design @ correction[:, 0]).square() @ node_weights / (high - low)).sqrt()
    return TableFit(
        z=z,
        error=float((shares @ z - truth).abs().max()),
        rms=float(rms),
        sampled=float((shares @ sampled - truth).abs().max()),
        low=low,
        high=high,
    )


def _check(k: Any, q: Any, alpha: Any, weights: Any, window: Any) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ParameterError(f"fit_table: k must be a whole number of at least 1, and {k!r} was given.")
    for name, value in (("q", q), ("alpha", alpha)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ParameterError(f"fit_table: {name} must be a finite number above 0, and {value!r} was given.")
    if weights not in ("gaussian", "laplacian"):
        raise ParameterError(f"fit_table: weights must be 'gaussian' or 'laplacian', and {weights!r} was given.")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 3 or not window % 2):
        raise ParameterError(
            f"fit_table: window must be an odd number of points (3, 5, ...) or None, and {window!r} was given."
        )


def curve_of(target: Any, *, title: str = "fit_table") -> tuple[Callable[[Any], Any], tuple[float, ...]]:
    """The target as a function, and where its pieces meet as far as that is known. title: what the user called."""
    if isinstance(target, str | Activation | SoftTable | Rowwise):
        found = concrete(target)
        return found.value, found.seams
    if not callable(target):
        raise ParameterError(
            f"{title}: the target must be a name, a definition or a function of a tensor or a number, and "
            f"{type(target).__name__} was given."
        )
    function: Callable[[Any], Any] = target
    return function, (0.0,)


def values_of(curve: Callable[[Any], Any], at: Tensor, *, title: str = "fit_table") -> Tensor:
    """The target at these places: asked for all at once, or one by one if it is a function of a number."""
    with torch.no_grad():
        values = _values_at(curve, at, title)
    if values.shape != at.shape:
        raise InputError(f"{title}: the target must give one value for each number of the tensor it is called with.")
    if not bool(values.isfinite().all()):
        place = int((~values.isfinite()).nonzero()[0])
        raise InputError(
            f"{title}: the target is not finite everywhere: at {float(at[place]):g} it is {float(values[place]):g}. "
            "Choose low, high and q so that the grid and what it is compared on lie where it is."
        )
    return values.detach().double().cpu()


def _values_at(curve: Callable[[Any], Any], at: Tensor, title: str) -> Tensor:
    try:
        result = curve(at)
    except SoftkneeError:
        raise
    except Exception as error:  # of whatever kind: it is the user's function, and may be one of a number
        why = f"{type(error).__name__}: {error}"
    else:
        if isinstance(result, Tensor):
            return result
        why = f"it gave {type(result).__name__}"
    values: list[float] = []
    for x in at.tolist():
        try:
            values.append(float(curve(x)))
        except Exception as error:
            raise InputError(
                f"{title}: the target can be called neither with a tensor ({why}) nor with the number {x:g} "
                f"({type(error).__name__}: {error}). It must be a function of a float64 tensor or of a number, with a "
                "value everywhere on the grid and between low and high."
            ) from error
    return torch.tensor(values, dtype=torch.float64)


def shares_of(x: Tensor, *, k: int, q: float, alpha: float, weights: str, window: int | None) -> Tensor:
    """P(y_i|x), one row for each x."""
    steps = torch.arange(-k, k + 1, dtype=torch.float64)
    centre = (x / q).round().clamp(-k, k)[:, None]
    rest = x[:, None] - centre * q
    j = steps - centre
    if weights == "gaussian":
        exponents = alpha * q * j * (2 * rest - j * q)  # relative to the nearest point, so that none overflows
    else:
        exponents = alpha * (rest.abs() - (rest - j * q).abs())
    if window is not None:
        exponents = exponents.masked_fill(j.abs() > window // 2, -math.inf)
    return torch.softmax(exponents, dim=1)


def on_panels(edges: list[float], nodes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """A rule on (-1, 1) repeated between all edges."""
    ends = torch.tensor(list(itertools.pairwise(edges)), dtype=torch.float64)
    middle, half = ends.mean(1, keepdim=True), (ends[:, 1:] - ends[:, :1]) / 2
    return (middle + half * nodes).reshape(-1), (half * weights).reshape(-1)


def even(count: int) -> tuple[Tensor, Tensor]:
    """Places spread evenly up to a hair from both ends: at an end itself a window may be the left or the right one."""
    nodes = torch.linspace(-1 + 1e-9, 1 - 1e-9, count, dtype=torch.float64)
    return nodes, torch.full_like(nodes, 2 / count)

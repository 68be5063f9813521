"""The function `squaf`: checks its arguments, then hands them to the operator or to the plain form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import InputError, ParameterError, did_you_mean
from ...spec.soft_table import read_window
from ..dispatch import inside_transform, must_differentiate_through
from .eager import squaf_on_grid_in_pieces
from .op import SquafFunction, nth_derivative, squaf_derivative
from .plain import compute_dtype, squaf_on_grid, squaf_plain

# -- how many points a window must keep -------------------------------------------------------------------
#
# A window of 2m+1 points slides when x passes a midpoint, x/q = c + 1/2; there one point leaves and another
# enters. Relative to the nearest point both have the same weight, the size of the jump:
#
#     Gaussian    r = 1/2, j = m+1:  e^{h(2rj - j^2)} = e^{-h m (m+1)},   h = alpha q^2
#     Laplacian   |(m+1) - 1/2| - |1/2| = m points further away:  e^{-alpha q m}
#
# so the tolerance asks for m (m+1) >= ln(1/tolerance)/h, and for m >= ln(1/tolerance)/(alpha q).


def auto_window(
    q: Tensor | float, *, alpha: Tensor | float, k: int, tolerance: float = 1e-4, weights: str = "gaussian"
) -> int | None:
    """The smallest odd window whose jump is at most `tolerance`; None, the full sum, when no window is
    smaller.

    With q or alpha per channel or neuron the window serves the softest of them. Reading a tensor on a GPU
    waits for it, so call this when a module is built or checked, not in every step.

    >>> auto_window(1.0, alpha=1.5, k=16, tolerance=2e-4)
    5
    >>> auto_window(0.1, alpha=0.01, k=2) is None
    True
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 < tolerance < 1:
        raise ParameterError(
            f"tolerance={tolerance!r} is not between 0 and 1; give the largest jump allowed, relative to the "
            "weight of the nearest point, for example 1e-4."
        )
    if k < 1:
        raise ParameterError(f"k={k!r} leaves no neighbours to keep; use k >= 1 (a grid of 2k+1 points).")
    check_weights(weights)
    scale = alpha * q if weights == "laplacian" else alpha * q * q
    softness = float(scale.detach().double().min()) if isinstance(scale, Tensor) else float(scale)
    if not softness > 0:
        raise ParameterError(f"q and alpha must be positive, but their product is {softness!r}; check both values.")
    needed = -math.log(tolerance) / softness
    half = 1
    while half < k and (half if weights == "laplacian" else half * (half + 1)) < needed:
        half += 1
    return 2 * half + 1 if half < k else None


def check_weights(weights: str) -> None:
    """Refuse a kind of weight that does not exist."""
    if weights not in ("gaussian", "laplacian"):
        raise ParameterError(
            f"weights={weights!r} is not known; use 'gaussian' for e^(-alpha (x-y)^2) or 'laplacian' for "
            "e^(-alpha |x-y|)."
        )


# -- SQUAF that goes on in a straight line beyond the ends of its grid, instead of coming to rest ---------
#
#     phi(x)                             low <= x <= high,   low = -k q and high = k q, or the ends of a general grid
#     phi(high) + s_high (x - high)      x > high
#     phi(low)  + s_low  (x - low)       x < low
#
# s_high and s_low are the slopes at the ends, from within: the function and its slope are continuous. With Gaussian
# weights and P_i = P(y_i | end) they are 2 alpha sum_i P_i (z_i - phi) (y_i - end); with Laplacian ones, which have a
# kink at every point, +-2 alpha P_end (z_end - phi). They are numbers of the parameters alone, one for each group.
#
# At +-inf the value is that of the largest finite number: a slope of 0 times infinity would be NaN.


TAILS = ("flat", "linear")


def check_tails(tails: str) -> str:
    """The name of the tails, or a sentence that says which there are."""
    if not isinstance(tails, str) or tails not in TAILS:
        near = did_you_mean(tails, list(TAILS)) if isinstance(tails, str) else ""
        raise ParameterError(f"squaf: tails must be 'flat' or 'linear', and {tails!r} was given.{near}")
    return tails


def ends_of(*, q: Tensor | None, grid: Tensor | None, points: int) -> tuple[Tensor, Tensor]:
    """The first and the last point of the grid."""
    if grid is not None:
        return grid[..., 0], grid[..., -1]
    assert q is not None
    high = (points // 2) * q
    return -high, high


def within(x: Tensor, *, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """x brought to the nearer end where it lies beyond one, and how far beyond it lies (0 inside); no narrower than
    the compute type."""
    kind = compute_dtype(x)
    x, low, high = x.to(kind), low.to(kind), high.to(kind)
    # Not x.clamp: at the ends themselves, where the slope is the inner one, torch 2.15 gives half of its gradient.
    inner = torch.where(x > high, high, torch.where(x < low, low, x))
    largest = torch.finfo(kind).max
    return inner, (x - inner).clamp(-largest, largest)


def end_slopes(
    *, q: Tensor | None, grid: Tensor | None, alpha: Tensor, z: Tensor, window: int | None, laplacian: bool
) -> tuple[Tensor, Tensor]:
    """phi' at the first and at the last point, from within; differentiable by every parameter."""
    points = z.shape[-1]
    kept = points if window is None else min(window // 2 + 1, points)
    if grid is not None:
        below, above = grid - grid[..., :1], grid - grid[..., -1:]
    else:
        assert q is not None
        steps = torch.arange(kept, dtype=q.dtype, device=q.device) * q.unsqueeze(-1)
        below, above = steps, -steps.flip(-1)
    alpha = alpha.unsqueeze(-1)
    return (
        _slope_at(below, alpha, z[..., :kept], end=0, laplacian=laplacian),
        _slope_at(above, alpha, z[..., -kept:], end=-1, laplacian=laplacian),
    )


def _slope_at(away: Tensor, alpha: Tensor, z: Tensor, *, end: int, laplacian: bool) -> Tensor:
    """The slope where `away` (the points less the end) is 0; with Laplacian weights the one on the inner side."""
    p = torch.softmax(-alpha * (away.abs() if laplacian else away.square()), -1)
    centred = p * (z - (p * z).sum(-1, keepdim=True))
    if laplacian:
        return (2.0 if end else -2.0) * alpha.squeeze(-1) * centred[..., end]
    return 2 * alpha.squeeze(-1) * (centred * away).sum(-1)


def beyond(value: Tensor, excess: Tensor, slopes: tuple[Tensor, Tensor]) -> Tensor:
    """The value at the ends continued by the excess."""
    low, high = (slope.to(value.dtype) for slope in slopes)
    return value + torch.where(excess > 0, high, low) * excess


# -- the function squaf -----------------------------------------------------------------------------------
#
# Checks its arguments, then hands them to the operator or to the plain form.


def squaf(
    x: Tensor,
    *,
    alpha: Tensor,
    z: Tensor,
    q: Tensor | None = None,
    k: int | None = None,
    window: int | None = 5,
    weights: str = "gaussian",
    grid: Tensor | None = None,
    order: int = 0,
    tails: str = "flat",
) -> Tensor:
    """Soft quantisation: phi(x) = sum_i z_i P(y_i | x), P proportional to e^(-alpha (x-y_i)^2).

    Uniform grid: y_i = i q for i = -k..k. Give `q` and `alpha` of one shape S that broadcasts against x
    without changing its shape, and `z` of shape S + (2k+1,). S = (1,) is one function for the whole tensor,
    (C, 1, 1) one for each channel of an image batch, (F,) one for each feature of a (batch, F) tensor. The
    three may differ where broadcasting allows it: a shared `q` of shape (1,) beside a `z` of shape (C, 1, 1,
    2k+1).

    window    how many of the nearest points are kept, an odd number; None keeps all of them. At the ends of
              the grid the window is shorter. See `auto_window` for the jump a window leaves.
    weights   "gaussian", or "laplacian" for P proportional to e^(-alpha |x-y_i|).
    grid      a general grid instead of `q`: points of shape S + (n,), trainable as well; needs window=None.
    order     the derivative of that order by x instead of the value.
    tails     "flat": beyond the grid the value comes to rest at that of the last point, and the slope at 0; "linear":
              it goes on with value and slope of the end. A few more tensor operations around the same kernel.

    Differentiable to every order by x and every parameter. The result has the dtype of x; parameters are read
    in float32 (float64 for a float64 x). At +-inf the value is the limit, for Gaussian
    weights z at that end; NaN comes from NaN alone.

    >>> z = torch.tensor([0.0, 0.0, 1.0])
    >>> squaf(torch.tensor([-9.0, 0.5, 9.0]), q=torch.ones(1), alpha=torch.full((1,), 16.0), z=z, window=3)
    tensor([0.0000, 0.5000, 1.0000])
    """
    check_weights(weights)
    laplacian = weights == "laplacian"
    if check_tails(tails) == "linear":
        return _with_linear_tails(x, q=q, k=k, alpha=alpha, z=z, window=window, weights=weights, grid=grid, order=order)
    if grid is not None:
        flat = check_grid(x, grid=grid, q=q, alpha=alpha, z=z, window=window)
        if not order:
            return squaf_on_grid_in_pieces(flat, grid, alpha, z, laplacian).reshape(x.shape)
        derivative = nth_derivative(lambda at: squaf_on_grid(at, grid, alpha, z, laplacian), flat, order=order)
        return derivative.reshape(x.shape)
    arguments = (*check_uniform(x, q=q, alpha=alpha, z=z, k=k, window=window), window or 0, laplacian)
    if order:
        out = squaf_derivative(*arguments, order=order)
    elif must_differentiate_through():
        out = squaf_plain(*arguments)
    elif inside_transform():
        out = SquafFunction.apply(*arguments)
    else:
        out = torch.ops.softknee.squaf(*arguments)
    return out.reshape(()) if x.dim() == 0 else out


def _with_linear_tails(
    x: Tensor,
    *,
    q: Tensor | None,
    k: int | None,
    alpha: Tensor,
    z: Tensor,
    window: int | None,
    weights: str,
    grid: Tensor | None,
    order: int,
) -> Tensor:
    if order:
        raise ParameterError("squaf: a derivative has no tails to continue; take that of the value with linear tails.")
    if grid is None:
        flat, q, alpha, z = check_uniform(x, q=q, alpha=alpha, z=z, k=k, window=window)
    else:
        flat = check_grid(x, grid=grid, q=q, alpha=alpha, z=z, window=window)
    # In the type they are computed in, so that the ends are the same numbers here and in the kernels.
    kind = compute_dtype(x)
    q, grid = (None if tensor is None else tensor.to(kind) for tensor in (q, grid))
    alpha, z = alpha.to(kind), z.to(kind)
    low, high = ends_of(q=q, grid=grid, points=z.shape[-1])
    inner, excess = within(flat, low=low, high=high)
    value = squaf(inner, q=q, alpha=alpha, z=z, window=window, weights=weights, grid=grid)
    ends = end_slopes(q=q, grid=grid, alpha=alpha, z=z, window=window, laplacian=weights == "laplacian")
    return beyond(value, excess, ends).to(x.dtype).reshape(x.shape)


def check_uniform(
    x: Tensor, *, q: Tensor | None, alpha: Tensor, z: Tensor, k: int | None, window: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x with at least one dimension, and q, alpha, z of one shape that broadcasts into it; or a sentence."""
    _check_floating(x)
    if q is None:
        raise ParameterError("squaf needs the spacing of its grid: give q for a uniform grid, or grid for any other.")
    n = z.shape[-1] if z.dim() else 0
    if n % 2 == 0 or n < 3:
        raise ParameterError(f"The last dimension of z has {n} values; a grid -k..k has 2k+1 of them, 3, 5, 7, ...")
    if k is not None and n != 2 * k + 1:
        raise ParameterError(f"k={k} asks for {2 * k + 1} values in the last dimension of z, but it has {n}.")
    read_window(window)
    own = _common_shape(x, q.shape, alpha.shape, z.shape[:-1])
    # 0-dim tensors keep their shape from the caller's side; inside there is always a dimension to work on.
    flat = x.reshape(1) if x.dim() == 0 else x
    return flat, q.expand(own), alpha.expand(own), z.expand(*own, n)


def check_grid(x: Tensor, *, grid: Tensor, q: Tensor | None, alpha: Tensor, z: Tensor, window: int | None) -> Tensor:
    """x with at least one dimension, where everything fits a general grid; or a sentence."""
    _check_floating(x)
    if q is not None:
        raise ParameterError(
            "squaf was given both q and grid; q spaces a uniform grid, grid names every point: keep one."
        )
    if window is not None:
        raise ParameterError(
            f"window={window!r} needs a uniform grid; on a general grid SQUAF is the full sum: pass window=None."
        )
    if not grid.numel() or grid.dim() == 0 or z.dim() == 0 or grid.shape[-1] != z.shape[-1]:
        raise ParameterError(
            f"grid has shape {tuple(grid.shape)} and z {tuple(z.shape)}; both need the same "
            "last dimension, one value of z for each point."
        )
    _common_shape(x, grid.shape[:-1], alpha.shape, z.shape[:-1])
    return x.reshape(1) if x.dim() == 0 else x


def _check_floating(x: Tensor) -> None:
    if not x.is_floating_point():
        raise InputError(f"squaf works on floating-point tensors, but x is {x.dtype}; convert it with x.float() first.")
    if x.layout != torch.strided:
        raise InputError(f"squaf works on dense tensors, but x is {x.layout}; convert it with x.to_dense() first.")


def _common_shape(x: Tensor, *shapes: torch.Size) -> tuple[int, ...]:
    """The shape the parameters share, at least one dimension, checked to broadcast into that of x."""
    target = x.shape or torch.Size([1])
    try:
        own = torch.broadcast_shapes((1,), *shapes)
        fits = torch.broadcast_shapes(own, target) == target
    except RuntimeError:
        own, fits = None, False
    if own is None or not fits:
        listed = ", ".join(str(tuple(shape)) for shape in shapes)
        raise ParameterError(
            f"The parameters of squaf have shapes {listed} (z and grid without their last dimension), "
            f"which do not broadcast into x of shape {tuple(x.shape)}; use (1,) for the whole tensor "
            "or, for channels in dimension 1 of an image batch, (C, 1, 1)."
        )
    return tuple(own)

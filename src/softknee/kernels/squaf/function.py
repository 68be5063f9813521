"""The function `squaf`: checks its arguments, then hands them to the operator or to the plain form."""

import torch
from torch import Tensor

from softknee.errors import InputError, ParameterError

from .derivatives import nth_derivative, squaf_derivative
from .dispatch import inside_transform, must_differentiate_through
from .on_grid import squaf_on_grid_in_pieces
from .plain import compute_dtype, squaf_on_grid, squaf_plain
from .tails import beyond, check_tails, end_slopes, ends_of, within
from .transforms import SquafFunction
from .windows import check_weights


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
        found = nth_derivative(lambda at: squaf_on_grid(at, grid, alpha, z, laplacian), flat, order=order)
        return found.reshape(x.shape)
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
    q, grid = (None if one is None else one.to(kind) for one in (q, grid))
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
    if window is not None and (window < 3 or window % 2 == 0):
        raise ParameterError(f"window={window!r} is not an odd number of points; use 3, 5, 7, ... or None for all.")
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

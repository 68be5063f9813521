r"""How often each point of SQUAF's grid is chosen, and how many bits that takes.

    marginal   p_i = mean_l P(y_i | x[l])                 over all elements x[l] of a layer
    rate       R = -sum_i p_i log2 p_i                    bits per activation, 0 log 0 being 0

SQUAF-P sends the point i with the probability P(y_i | x); R is what no code with one table for the layer can do better
than (Shannon 1948), and what Huffman's code misses by less than a bit. Reference: Soft quantization activation
functions, equation 12, where each layer has one alphabet.

Channels or neurons with grids of their own still send the number i of a point, and the layer has one table of code
words for it: p is then the mean of their marginals. (A table for each channel would need the mean of the channels'
entropies, which is never more.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import InputError, ParameterError
from ...spec.soft_table import read_window
from ..dispatch import inside_transform, must_differentiate_through
from .function import _common_shape, check_weights, squaf
from .layout import BY_ALPHA, BY_Q, BY_X, BY_Z, dense
from .op import gradient_rows
from .plain import compute_dtype, squaf_plain

# -- the operators softknee::squaf_marginal and softknee::squaf_marginal_backward -------------------------
#
# P(y_i | x) = d phi / d z_i, so the sums over x are SQUAF's gradient of z, and the gradient of a function of them is
# SQUAF's with that function's slopes in place of z. Forward keeps x and the parameters, nothing else. Each group of
# parameters (a channel with a grid of its own) has a marginal of its own here.


Three = tuple[Tensor, Tensor, Tensor]
_TAGS = (torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag)

torch.library.define(
    "softknee::squaf_marginal",
    "(Tensor x, Tensor q, Tensor alpha, int points, int window, bool laplacian) -> Tensor",
    tags=_TAGS,
)
torch.library.define(
    "softknee::squaf_marginal_backward",
    "(Tensor grad, Tensor x, Tensor q, Tensor alpha, int window, bool laplacian, bool parameters)"
    " -> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)


@torch.library.impl("softknee::squaf_marginal", "CompositeExplicitAutograd")
def _marginal(x: Tensor, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool) -> Tensor:
    z = x.new_zeros((*q.shape, points), dtype=compute_dtype(x))
    layout, (*_, sums) = gradient_rows(None, x, q, alpha, z, window, laplacian, BY_Z)
    assert sums is not None
    return layout.unfold_parameter(sums / max(1, layout.per_group), like=z, table=True)


@torch.library.impl("softknee::squaf_marginal_backward", "CompositeExplicitAutograd")
def _marginal_backward(
    grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, window: int, laplacian: bool, parameters: bool
) -> Three:
    wanted = BY_X | BY_Q | BY_ALPHA if parameters else BY_X
    slope = grad / max(1, x.numel() // q.numel())
    layout, (dx, dq, dalpha, _) = gradient_rows(None, x, q, alpha, slope, window, laplacian, wanted)
    assert dx is not None
    if dq is None or dalpha is None:
        return dx, q.new_zeros(q.shape), alpha.new_zeros(alpha.shape)
    return dx, layout.unfold_parameter(dq, like=q), layout.unfold_parameter(dalpha, like=alpha)


@torch.library.register_fake("softknee::squaf_marginal")
def _marginal_shape(x: Tensor, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool) -> Tensor:
    return x.new_empty((*q.shape, points), dtype=compute_dtype(x))


@torch.library.register_fake("softknee::squaf_marginal_backward")
def _marginal_backward_shapes(
    grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, window: int, laplacian: bool, parameters: bool
) -> Three:
    return torch.empty_like(dense(x)), q.new_empty(q.shape), alpha.new_empty(alpha.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, q, alpha, ctx.points, ctx.window, ctx.laplacian = inputs
    ctx.save_for_backward(x, q, alpha)


def _differentiate(ctx: Any, grad: Tensor) -> Any:
    by_x, by_q, by_alpha = ctx.needs_input_grad[:3]
    result = torch.ops.softknee.squaf_marginal_backward(
        grad, *ctx.saved_tensors, ctx.window, ctx.laplacian, by_q or by_alpha
    )
    needs = by_x, by_q, by_alpha
    return *(grad if need else None for grad, need in zip(result, needs, strict=True)), None, None, None


def _remember_again(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, x, q, alpha, ctx.window, ctx.laplacian, ctx.parameters = inputs
    ctx.save_for_backward(grad, x, q, alpha)


def _differentiate_again(ctx: Any, *outer: Tensor) -> Any:
    """Through the plain form: a gradient of a gradient is rare, and may cost a tensor of elements times points."""
    saved = ctx.saved_tensors  # once: activation checkpointing refuses a second look
    elements = max(1, saved[1].numel() // saved[2].numel())

    def first_order(grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor) -> tuple[Tensor, ...]:
        def value(x: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
            return squaf_plain(x, q, alpha, grad / elements, ctx.window, ctx.laplacian)

        pulled = torch.func.vjp(value, x, q, alpha)
        return pulled[1](torch.ones_like(pulled[0]))

    pull = torch.func.vjp(first_order, *saved)[1]
    along = outer if ctx.parameters else (outer[0], *(torch.zeros_like(g) for g in outer[1:]))
    return *pull(along), None, None, None


torch.library.register_autograd("softknee::squaf_marginal", _differentiate, setup_context=_remember)
torch.library.register_autograd(
    "softknee::squaf_marginal_backward", _differentiate_again, setup_context=_remember_again
)


# -- how often each point of SQUAF's grid is chosen, and how many bits that takes -------------------------


def squaf_marginal(
    x: Tensor,
    *,
    alpha: Tensor,
    points: int | None = None,
    q: Tensor | None = None,
    window: int | None = 5,
    weights: str = "gaussian",
    grid: Tensor | None = None,
    pooled: bool = True,
) -> Tensor:
    """The mean over x of P(y_i | x), one number for each point; differentiable by x, q, alpha (and grid).

    On a uniform grid of `points` = 2k+1 points it is computed in one pass that keeps no probabilities, and so is its
    gradient; the sums have a fixed order, so that results repeat to the bit. A general grid, and the transforms of
    torch.func, take plain tensor operations, which do keep them. `q`, `alpha`, `window`, `weights` and `grid` are as
    for `squaf`; with `pooled=False` parameters of shape S give S + (points,), a marginal for each of them.

    The result is float32, or float64 for a float64 x.

    >>> x = torch.tensor([0.0, 0.0, 1.0, 9.0])
    >>> p = squaf_marginal(x, q=torch.ones(1), alpha=torch.full((1,), 200.0), points=5)
    >>> p
    tensor([0.0000, 0.0000, 0.5000, 0.2500, 0.2500])
    >>> entropy_in_bits(p)
    tensor(1.5000)
    """
    if not x.is_floating_point():
        raise InputError(
            f"A marginal is taken of floating-point numbers, and x is {x.dtype}; convert it with x.float()."
        )
    if x.numel() == 0:
        raise InputError("x is empty, and the mean over nothing has no value; leave empty batches out.")
    check_weights(weights)
    flat = x.reshape(1) if x.dim() == 0 else x
    if grid is not None:
        if q is not None or window is not None:
            raise ParameterError("A general grid has no q and is summed in full: leave q out and pass window=None.")
        own = _common_shape(flat, grid.shape[:-1], alpha.shape)
        result = _by_slope(flat, own=own, points=grid.shape[-1], grid=grid, alpha=alpha, window=window, weights=weights)
    else:
        if q is None or points is None or points < 3 or points % 2 == 0:
            raise ParameterError(
                f"A uniform grid needs q and an odd number of points of at least 3, and points={points!r} was given"
                f"{'' if q is not None else ' without q'}."
            )
        read_window(window)
        own = _common_shape(flat, q.shape, alpha.shape)
        q, alpha = q.expand(own), alpha.expand(own)
        if inside_transform() or must_differentiate_through():
            result = _by_slope(flat, own=own, points=points, q=q, alpha=alpha, window=window, weights=weights)
        else:
            laplacian = weights == "laplacian"
            result = torch.ops.softknee.squaf_marginal(flat, q, alpha, points, window or 0, laplacian)
    return result.reshape(-1, result.shape[-1]).mean(0) if pooled else result


def entropy_in_bits(p: Tensor) -> Tensor:
    """-sum_i p_i log2 p_i along the last dimension; where p_i is 0 the term is 0, and so is its gradient.

    The derivative -(log2 p + 1/ln 2) has no bound as p goes to 0, but a point that no x comes near (p exactly 0) does
    not come nearer under a small change of x either: 0 times that slope is 0.
    """
    chosen = torch.where(p > 0, p, torch.ones_like(p))
    return -(p * chosen.log2()).sum(-1)


def _by_slope(x: Tensor, *, own: tuple[int, ...], points: int, **arguments: object) -> Tensor:
    """The marginal as the slope of SQUAF's outputs by their values z: P(y_i | x) = d phi / d z_i."""
    z = torch.zeros(*own, points, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32, device=x.device)
    pulled = torch.func.vjp(lambda z: squaf(x, z=z, **arguments), z)  # pyright: ignore[reportArgumentType]
    (sums,) = pulled[1](torch.ones_like(pulled[0]))
    return sums * (sums.shape[:-1].numel() / x.numel())

r"""PolyNorm: powers of the input, each brought to root mean square 1 along a row, and mixed.

    polynorm(x) = a_0 + a_1 n(x) + a_2 n(x^2) + a_3 n(x^3),   n(u) = u / sqrt(mean over the row of u^2 + eps)

A row lies along `row_dim`, by default the last dimension, as in the paper, which has transformers in mind; along which
one the SQUAF paper normalises in CNNs it does not say. Start: a_i = 1/3, as in the paper's experiments; a_0 = 0 and
eps = 1e-6 are our choice. Rows of zeros give a_0.

Hazard: x^6 is averaged under the root, which overflows float32 from |x| = 2.6e6 on; a row with values above 1 is
therefore divided by its largest |x| first, and eps along with it, which leaves the function as it is.

Reference: Zhuo, Wang, Zeng, Li, Zhou and Ma, Polynomial composition activations, ICLR 2025 (arXiv 2411.03884).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ...errors import InputError, ParameterError
from ...spec import VectorParam
from .vector import OneVector

# -- PolyReLU: a polynomial of ReLU -----------------------------------------------------------------------
#
#     polyrelu(x) = a_0 + a_1 relu(x) + a_2 relu(x)^2 + a_3 relu(x)^3
#
# Start: a_i = 1/3, as in the paper's experiments, and a_0 = 0, which is our choice. Four numbers per layer, which is
# also what the SQUAF paper counts for it. Its slope at 0 is that of ReLU from the left, 0.
#
# Reference: Zhuo, Wang, Zeng, Li, Zhou and Ma, Polynomial composition activations, ICLR 2025 (arXiv 2411.03884).


ORDER = 3
COEFFICIENTS = VectorParam("a", "", about="the coefficients a_0 (constant) to a_r")


class PolyReLU(OneVector):
    """sum_i a_i relu(x)^i, i = 0..order.

    Args:
        a: the coefficients at the start, a_0 first; left out, 0 and then 1/order each.
        order: the degree, 3 as in the paper; left out where a is given.
        learn: False for a buffer instead of a parameter.
        per, size, dim, device, dtype: as in `Pointwise`.

    >>> import softknee as sk, torch
    >>> sk.nn.PolyReLU()(torch.tensor([-1.0, 0.0, 3.0])).detach()
    tensor([ 0.,  0., 13.])
    """

    vector = COEFFICIENTS
    settings = ("order",)

    def __init__(
        self,
        a: Tensor | Sequence[float] | None = None,
        *,
        order: int | None = None,
        learn: bool | str | Iterable[str] = True,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        start = read_coefficients("polyrelu", a, order=order)
        self.order = start.shape[-1] - 1
        self._hold_vector(
            "polyrelu",
            start=start,
            points=self.order + 1,
            learn=learn,
            per=per,
            size=size,
            dim=dim,
            device=device,
            dtype=dtype,
        )

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        ramp = x.relu()
        parts = vector.unbind(-1)
        total = parts[-1] * ramp
        for one in parts[-2:0:-1]:
            total = (total + one) * ramp
        return total + parts[0]


def read_coefficients(title: str, a: Tensor | Sequence[float] | None, *, order: int | None) -> Tensor:
    """The start of the coefficients, or a sentence that says what they should be."""
    if order is not None and (isinstance(order, bool) or not isinstance(order, int) or order < 1):
        raise ParameterError(f"{title}: order must be a whole number of at least 1, and {order!r} was given.")
    if a is None:
        order = ORDER if order is None else order
        return torch.tensor([0.0] + [1 / order] * order, dtype=torch.float64)
    start = torch.as_tensor(a, dtype=torch.float64).detach()
    degree = start.shape[-1] - 1 if start.dim() else 0
    if degree < 1 or order not in (None, degree):
        count = "two or more" if order is None else f"order + 1 = {order + 1}"
        raise ParameterError(
            f"{title}: a must have {count} coefficients, a_0 first, and {max(degree + 1, 1)} were given."
        )
    return start


# -- PolyNorm: powers of the input, each brought to root mean square 1 along a row, and mixed -------------


class PolyNorm(OneVector):
    """a_0 + sum_i a_i n(x^i), i = 1..order, with n the normalisation of a row to root mean square 1.

    Args:
        a: the coefficients at the start, a_0 first; left out, 0 and then 1/order each.
        order: the degree, 3 as in the paper; left out where a is given.
        row_dim: the dimension along which rows lie.
        eps: added to the mean square, above 0.
        learn: False for a buffer instead of a parameter.
        per, size, dim: one vector of coefficients per layer, or per="channel" along a dimension other than the rows'.
        device, dtype: as in `Pointwise`.

    >>> import softknee as sk, torch
    >>> sk.nn.PolyNorm(eps=1e-12)(torch.tensor([[2.0, 2.0], [-3.0, 3.0]])).detach()
    tensor([[ 1.0000,  1.0000],
            [-0.3333,  1.0000]])
    """

    vector = COEFFICIENTS
    settings = ("order", "row_dim", "eps")

    def __init__(
        self,
        a: Tensor | Sequence[float] | None = None,
        *,
        order: int | None = None,
        row_dim: int = -1,
        eps: float = 1e-6,
        learn: bool | str | Iterable[str] = True,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 < eps < float("inf"):
            raise ParameterError(f"polynorm: eps must be a finite number above 0, and {eps!r} was given.")
        start = read_coefficients("polynorm", a, order=order)
        self.order, self.row_dim, self.eps = start.shape[-1] - 1, row_dim, float(eps)
        self._hold_vector(
            "polynorm",
            start=start,
            points=self.order + 1,
            learn=learn,
            per=per,
            size=size,
            dim=dim,
            device=device,
            dtype=dtype,
        )
        if per == "neuron" or (per == "channel" and dim == row_dim):
            raise ParameterError(
                f"polynorm: it works on rows along dimension {row_dim}, so a row has one vector of coefficients; use "
                f"per='layer', or per='channel' with dim= another dimension."
            )

    def _ready(self, input: Tensor) -> tuple[Tensor, Tensor]:
        if not -input.dim() <= self.row_dim < input.dim():
            raise InputError(
                f"polynorm: rows lie along dimension {self.row_dim}, which an input of shape {tuple(input.shape)} does "
                f"not have; pass row_dim=."
            )
        return super()._ready(input)

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        parts = vector.unbind(-1)
        along = self.row_dim if self.row_dim < 0 else self.row_dim + self.leading
        if x.shape[along] == 0:
            return x + parts[0]  # rows of no elements, which have no mean; the result is as empty as they are
        # Scaling a row and eps alike changes nothing, so the scale may be a constant: no gradient goes through it.
        largest = x.detach().abs().amax(along, keepdim=True)
        scale = torch.where(largest.isfinite(), largest.clamp(min=1.0), 1.0)
        small = x / scale
        total = parts[0]
        power, eps = small, self.eps / scale.square()
        for one in parts[1:]:
            mean = power.square().mean(along, keepdim=True)
            total = total + one * (power * torch.rsqrt(mean + eps))
            power, eps = power * small, eps / scale.square()
        return total

    def extra_repr(self) -> str:
        where = [] if self.row_dim == -1 else [f"row_dim={self.row_dim}"]
        return ", ".join([*self._shown(), *where, f"eps={self.eps:g}"])

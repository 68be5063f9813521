r"""PolyReLU: a polynomial of ReLU.

    polyrelu(x) = a_0 + a_1 relu(x) + a_2 relu(x)^2 + a_3 relu(x)^3

Start: a_i = 1/3, as in the paper's experiments, and a_0 = 0, which is our choice. Four numbers per layer, which is also
what the SQUAF paper counts for it. Its slope at 0 is that of ReLU from the left, 0.

Reference: Zhuo, Wang, Zeng, Li, Zhou and Ma, Polynomial composition activations, ICLR 2025 (arXiv 2411.03884).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ...errors import ParameterError
from ...spec import VectorParam
from .vector import OneVector

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

r"""DiTAC: GELU whose argument is bent by a learned diffeomorphism.

    ditac(x) = T(x) Phi(x),   T(x) = the CPAB flow of x on [low, high], and x outside

T is the position after the time 1 of a point that starts at x and moves with a velocity that is continuous, straight in
each of `cells` equal cells and 0 at both ends (see `bend`), so that T is increasing, maps [low, high] onto itself, and
-theta gives its inverse. theta has the velocities at the cells - 1 inner borders, in cells per unit of time; at
theta = 0 it is GELU. With `gate=None` it is T alone.

By the paper and its published code: the product with Phi, x outside the interval, 10 cells and so 9 numbers, which is
also what the SQUAF paper counts. Different here: the coordinates theta of the same space of velocities (theirs are
those of an orthonormal basis of slopes and offsets), the start (0; theirs is drawn from a smooth Gaussian process),
exact values where theirs come from a table of 2048 entries, and no regularisation term. Their variants Leaky-DiTAC and
GE-DiTAC are left out.

Reference: Chelly, Finder, Ifergane and Freifeld, Trainable highly-expressive activation functions, ECCV 2024 (arXiv
2407.07564); the flow: Freifeld, Hauberg, Batmanghelich and Fisher, Transformations based on continuous piecewise-affine
velocity fields, PAMI 2017.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ...errors import ParameterError
from ...kernels.flow import bend
from ...spec import VectorParam
from .vector import OneVector

_THETA = VectorParam("theta", "", about="the velocities at the inner borders of the cells, in cells per unit of time")


class DiTAC(OneVector):
    """T(x) Phi(x), with T a learned increasing map of [low, high] onto itself and x outside.

    Args:
        theta: the cells - 1 velocities at the start; left out, 0.
        cells: into how many equal parts the interval is cut.
        low, high: the interval; the published code has [-3, 3] for regression.
        gate: "gelu" for the product with Phi(x), None for T alone.
        learn: False for a buffer instead of a parameter.
        per, size, dim, device, dtype: as in `Pointwise`.

    >>> import softknee as sk, torch
    >>> x = torch.linspace(-4, 4, 9)
    >>> torch.allclose(sk.nn.DiTAC()(x), torch.nn.functional.gelu(x), atol=1e-6)
    True
    """

    vector = _THETA
    settings = ("cells", "low", "high", "gate")
    words = ("gate",)

    def __init__(
        self,
        theta: Tensor | Sequence[float] | None = None,
        *,
        cells: int = 10,
        low: float = -3.0,
        high: float = 3.0,
        gate: str | None = "gelu",
        learn: bool | str | Iterable[str] = True,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if isinstance(cells, bool) or not isinstance(cells, int) or cells < 2:
            raise ParameterError(f"ditac: cells must be a whole number of at least 2, and {cells!r} was given.")
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ParameterError(f"ditac: low must be below high, both finite, and {low!r}, {high!r} were given.")
        if gate not in ("gelu", None):
            raise ParameterError(f"ditac: gate must be 'gelu' or None, and {gate!r} was given.")
        given = torch.zeros(cells - 1, dtype=torch.float64, device="cpu")
        if theta is not None:
            given = torch.as_tensor(theta, dtype=torch.float64).detach()
        if not given.dim() or given.shape[-1] != cells - 1:
            raise ParameterError(
                f"ditac: theta must have cells - 1 = {cells - 1} numbers, and its shape is {tuple(given.shape)}."
            )
        self.cells, self.low, self.high, self.gate = cells, float(low), float(high), gate
        self._hold_vector(
            "ditac",
            start=given,
            points=cells - 1,
            learn=learn,
            per=per,
            size=size,
            dim=dim,
            device=device,
            dtype=dtype,
        )

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        return bend(x, vector, low=self.low, high=self.high, gated=self.gate is not None)

    def extra_repr(self) -> str:
        plain = [] if self.gate else ["gate=None"]
        return ", ".join([f"cells={self.cells}, low={self.low:g}, high={self.high:g}", *self._shown(), *plain])

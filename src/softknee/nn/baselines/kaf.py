r"""KAF, the kernel activation function: a sum of Gaussian bumps at fixed places.

    kaf(x) = sum_i a_i e^(-gamma (x - d_i)^2),   i = 1..D

The dictionary d is D points spread evenly over [-boundary, boundary], Delta apart. gamma = 1/(6 Delta^2) is the rule
of thumb that we use: at the middle between two neighbours each bump still has e^(-1/24) = 0.96 of its height, so that
their sum is smooth. Only a is learned. The start stands for a known function f by kernel ridge regression,
a = (K + ridge I)^-1 f(d) with K_ij = e^(-gamma (d_i - d_j)^2), or is random with standard deviation 0.3 (our choice as
well). Far outside the dictionary it is 0, whatever f does there.

The authors give every neuron an `a` of its own (per="neuron") and 20 points; the SQUAF paper shares one per layer, and
its parameter counts leave 7 numbers for it, which would be points=7; it does not say.

Reference: Scardapane, Van Vaerenbergh, Totaro and Uncini, Kafnets: kernel-based non-parametric activation functions for
neural networks, Neural Networks 2019 (arXiv 1707.04035).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ParameterError
from ...kernels import find
from ...spec import VectorParam
from .vector import OneVector

_MIXING = VectorParam("a", "", about="the weights of the bumps")
_SPREAD = 0.3  # of a random start


class KAF(OneVector):
    """sum_i a_i e^(-gamma (x - d_i)^2) over a fixed dictionary d.

    Args:
        start: a name, a definition or a function of a tensor to begin as; a tensor or list of D numbers for a itself;
            or "random".
        points: D, the size of the dictionary.
        boundary: the dictionary covers [-boundary, boundary].
        gamma: left out, 1/(6 Delta^2).
        ridge: of the kernel ridge regression.
        learn: False for a buffer instead of a parameter.
        per, size, dim, device, dtype: as in `Pointwise`.

    >>> import softknee as sk, torch
    >>> act = sk.nn.KAF("tanh")
    >>> x = torch.linspace(-3, 3, 61)
    >>> bool((act(x) - x.tanh()).abs().max() < 0.01)
    True
    """

    vector = _MIXING
    settings = ("points", "boundary", "gamma")
    words = ("start",)

    def __init__(
        self,
        start: str | Callable[[Tensor], Tensor] | Tensor | Sequence[float] = "elu",
        *,
        points: int = 20,
        boundary: float = 3.0,
        gamma: float | None = None,
        ridge: float = 1e-5,
        learn: bool | str | Iterable[str] = True,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if isinstance(points, bool) or not isinstance(points, int) or points < 2:
            raise ParameterError(f"kaf: points must be a whole number of at least 2, and {points!r} was given.")
        for name, value in (("boundary", boundary), ("gamma", 1.0 if gamma is None else gamma), ("ridge", ridge)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise ParameterError(f"kaf: {name} must be a finite number above 0, and {value!r} was given.")
        dictionary = torch.linspace(-boundary, boundary, points, dtype=torch.float64, device="cpu")
        apart = 2 * boundary / (points - 1)
        self.points, self.boundary = points, float(boundary)
        self.gamma = 1 / (6 * apart**2) if gamma is None else float(gamma)
        self._hold_vector(
            "kaf",
            start=_mixing(start, dictionary, gamma=self.gamma, ridge=ridge),
            points=points,
            learn=learn,
            per=per,
            size=size,
            dim=dim,
            device=device,
            dtype=dtype,
        )

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        # Made anew: as a buffer it would be lost where a model is built on the meta device.
        d = torch.linspace(-self.boundary, self.boundary, self.points, dtype=x.dtype, device=x.device)
        away = x.unsqueeze(-1) - d
        return (torch.exp(-self.gamma * away.square()) * vector).sum(-1)

    def extra_repr(self) -> str:
        return ", ".join([f"points={self.points}, boundary={self.boundary:g}, gamma={self.gamma:.4g}", *self._shown()])


def _mixing(start: Any, dictionary: Tensor, *, gamma: float, ridge: float) -> Tensor:
    """The weights of the bumps at the start."""
    if isinstance(start, (Tensor, list, tuple)):
        given = torch.as_tensor(start, dtype=torch.float64).detach()
        if not given.dim() or given.shape[-1] != len(dictionary):
            raise ParameterError(
                f"kaf: a must have {len(dictionary)} numbers, one for each point of the dictionary, and its shape is "
                f"{tuple(given.shape)}."
            )
        return given
    if isinstance(start, str) and start == "random":
        return _SPREAD * torch.randn(len(dictionary), dtype=torch.float64, device="cpu")
    function = find(start) if isinstance(start, str) else start
    if not callable(function):
        raise ParameterError(
            f"kaf: the start must be a name, a function of a tensor, {len(dictionary)} numbers or 'random', and "
            f"{type(start).__name__} was given."
        )
    with torch.no_grad():
        wanted = function(dictionary)
    if not isinstance(wanted, Tensor) or wanted.shape != dictionary.shape or not bool(wanted.isfinite().all()):
        raise ParameterError(
            "kaf: the function to begin as must give one finite number for each point it is called with."
        )
    kernel = torch.exp(-gamma * (dictionary[:, None] - dictionary).square())
    return torch.linalg.solve(kernel + ridge * torch.eye(len(dictionary), dtype=torch.float64), wanted.double())

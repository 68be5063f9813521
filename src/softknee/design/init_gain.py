r"""The gain of initial weights that keeps the size of the signal.

With weights of variance g^2/n (n inputs per neuron), no bias and pre-activations of variance q,

    q'  =  g^2 E f(sqrt(q) Z)^2,        so  g = sqrt( q / E f(sqrt(q) Z)^2 )  gives q' = q.

For two straight lines from the origin this is sqrt(2/(left^2 + right^2)) at every q: sqrt(2) for ReLU (He et al.
2015). Other functions have a gain for each q. `torch.nn.init.calculate_gain` has numbers of its own: 5/3 for tanh,
which keeps q at 1.178 where q = 1 takes 1.5925; and 3/4 for SELU, which is made to keep q = 1 with gain 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import ParameterError
from .concrete import concrete
from .gaussian import resolve


def init_gain(f: Any, *, q: float = 1.0, params: Mapping[str, Any] | None = None, **more: Any) -> float:
    """The gain g for which weights of variance g^2/fan_in keep pre-activations at variance q.

    f:      a name, a formula or a definition; its parameters follow by name (or in `params`, for one that is called q).
    q:      the variance to keep.

    Good to 1e-14; multiply it into an initialiser that keeps the variance of a linear layer:

    >>> import softknee as sk, torch
    >>> sk.design.init_gain("relu"), round(sk.design.init_gain("srelu", delta=0.5), 6)
    (1.4142135623730951, 1.41201)
    >>> layer = torch.nn.Linear(512, 512)
    >>> _ = torch.nn.init.normal_(layer.weight, std=sk.design.init_gain("gelu") / 512**0.5)
    """
    if isinstance(q, bool) or not (isinstance(q, int | float) and 0 < q < math.inf):
        raise ParameterError(f"q is the variance to keep, a finite number above 0, and {q!r} was given.")
    function = concrete(f, {**(params or {}), **more})
    if function.two_lines is not None and any(function.two_lines):
        left, right = function.two_lines
        return math.sqrt(2 / (left**2 + right**2))
    square = resolve(function, float(q)).mean_square
    if square == 0:
        raise ParameterError(f"{function.name} is 0 wherever N(0, {q:g}) is, and no gain brings its signal back.")
    return math.sqrt(q / square)

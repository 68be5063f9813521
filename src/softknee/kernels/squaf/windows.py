"""How many points a window must keep.

A window of 2m+1 points slides when x passes a midpoint, x/q = c + 1/2; there one point leaves and another
enters. Relative to the nearest point both have the same weight, the size of the jump:

    Gaussian    r = 1/2, j = m+1:  e^{h(2rj - j^2)} = e^{-h m (m+1)},   h = alpha q^2
    Laplacian   |(m+1) - 1/2| - |1/2| = m points further away:  e^{-alpha q m}

so the tolerance asks for m (m+1) >= ln(1/tolerance)/h, and for m >= ln(1/tolerance)/(alpha q).
"""

import math

from torch import Tensor

from softknee.errors import ParameterError


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

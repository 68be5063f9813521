r"""S-ReLU: ReLU mollified with the Epanechnikov kernel of half-width delta.

    with t = x/delta:   0 for t <= -1;   delta (1 + t)^3 (3 - t)/16 for |t| < 1;   x for t >= 1

The middle is delta (-t^4 + 6 t^2 + 8 t + 3)/16, written in factors so that it does not cancel at t = -1. Value
3 delta/16 at 0, which is also its distance to ReLU. Twice continuously differentiable.

>>> import softknee as sk, torch
>>> sk.get("srelu")(torch.tensor([-1.0, 0.0, 1.0]), delta=0.1)
tensor([0.0000, 0.0188, 1.0000])
"""

from ..spec import Activation, Claims, Inner, positive, u, x
from ..spec.algebra import Interval, Piecewise, oo

_delta = positive("delta", 1.0, "half-width of the smooth knee")
delta = _delta.symbol
_middle = delta * (1 + u) ** 3 * (3 - u) / 16

srelu = Activation(
    "srelu",
    Piecewise((0, x <= -delta), (x, x >= delta), (_middle, True)),
    params=(_delta,),
    inner=Inner(x / delta, low=-1.0, high=1.0),
    # Clipped at the seams, the middle's slopes are the whole function's (they end at 0 and 1 exactly), and its value is
    # exactly 0 on the left.
    stable={
        (): Piecewise((x, x >= delta), (_middle, True)),
        ("x",): (1 + u) ** 2 * (2 - u) / 4,
        ("delta",): 3 * (1 - u**2) ** 2 / 16,
    },
    claims=Claims(2, True, 1, Interval(-oo, -delta), distance=3 * delta / 16),
    knob="delta",
    limit="relu",
    presets={"paper": {"delta": 0.01}},  # its pseudocode; its experiments have 0.001
    about="ReLU mollified with the Epanechnikov kernel (the mollification paper's S-ReLU).",
)

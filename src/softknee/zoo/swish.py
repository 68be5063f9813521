r"""Swish, called SiLU at beta = 1: x gated by a logistic sigmoid.

    swish(x) = x sigmoid(beta x)                      -0 at -infinity, 0 at 0, x at +infinity
    quick_gelu(x) is swish with beta = 1.702, where it is near GELU

Not monotone: it dips to -0.2785/beta. Hazard: x times a vanished gate at -infinity; `FiniteLeft` makes it 0.

>>> import softknee as sk, torch
>>> sk.get("silu")(torch.tensor([-torch.inf, 0.0, 1.0]))
tensor([-0.0000, 0.0000, 0.7311])
"""

from ..spec import Activation, Claims, FiniteLeft, Inner, Sigmoid, positive, u, x
from ..spec.algebra import FiniteSet, Float

_beta = positive("beta", 1.0, "hardness of the gate")
_FARTHEST = Float("0.27846454276107379511", 20)  # sup |x| sigmoid(-|x|), the solution of w e^w = 1/e

swish = Activation(
    "swish",
    FiniteLeft(x) * Sigmoid(u),
    params=(_beta,),
    inner=Inner(_beta.symbol * x, low=-800.0, high=800.0),
    claims=Claims(
        float("inf"),
        False,
        Float("1.0998393201288669170", 20),
        FiniteSet(0),
        distance=_FARTHEST / _beta.symbol,
        one_minimum=True,
    ),
    knob="beta",
    toward=float("inf"),
    limit="relu",
    about="Sigmoid-gated linear unit (Elfwing et al. 2017; Ramachandran et al. 2017).",
)
quick_gelu = swish.with_(
    name="quick_gelu",
    params=(positive("beta", 1.702, "hardness of the gate"),),
    about="Swish at the beta where it is nearest to GELU (Hendrycks and Gimpel 2016).",
)

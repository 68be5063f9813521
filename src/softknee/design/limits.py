"""with_limit: a function whose knob makes it hard, by its own homogeneity.

A function f(x; b) with f(s x; b/s) = s f(x; b) for every s > 0 is F(b x)/b for one F, and ReLU is relu(b x)/b: the
distance between the two at b is the one at 1 divided by b. So what a certificate proves at one b, a finite distance, it
proves for every b, and the limit for b -> infinity is ReLU. The same holds of knobs that scale with x, such as the ends
of a join, and of 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import DefinitionError, ParameterError, require_choice
from ..registry import get
from ..spec import Activation, elementary, x
from ..spec.algebra import Expr, Symbol, sympy
from ..spec.pieces import split
from ..spec.precision import compiled, context
from .evaluate import definition_of
from .joining import proved_zero

HOMOGENEOUS = ("relu",)
_FAR = 10**6  # where f(x)/x has to be that of the limit, to one part in a thousand
_NEAR = 1e-3


def with_limit(f: str | Activation, limit: str = "relu", *, knob: str | Sequence[str]) -> Activation:
    """The definition f with ReLU as the hard limit that its knob leads to, so that it can be hardened and replaced.

    Args:
        f: a definition, its name, or a text.
        limit: "relu".
        knob: the parameter, or several that go together. It grows without end where f(s x; knob/s) = s f(x; knob), and
            goes to 0 where f(s x; s knob) = s f(x; knob); algebra decides which, and a function that is neither is
            refused.

    >>> import softknee as sk
    >>> gate = sk.design.definition("x * sigmoid(b * x + c)", params={"b": 1.0, "c": "0.3:real"})
    >>> hard = sk.design.with_limit(gate, knob="b")
    >>> hard.limit, hard.toward, hard.recipe
    ('relu', inf, 'with_limit(x * sigmoid(b * x + c), relu, knob=b)')
    >>> at_1, at_10 = (sk.design.certify(hard, b=b).distance.upper for b in (1, 10))
    >>> round(float(at_1 / at_10), 9)
    10.0
    """
    act = definition_of(f, needed_by="with_limit")
    knobs = (knob,) if isinstance(knob, str) else tuple(knob)
    require_choice("with_limit", "the limit", limit, HOMOGENEOUS)
    if act.index or act.implicit is not None:
        raise DefinitionError(f"with_limit takes a function with a formula in x, and {act.name} is none.")
    if not knobs:
        raise ParameterError("with_limit: knob names at least one parameter.")
    symbols = [act.param(name).symbol for name in knobs]
    toward = next((end for end in (math.inf, 0.0) if _is_homogeneous(act.formula, symbols, end)), None)
    if toward is None:
        raise DefinitionError(
            f"with_limit: {act.name} is not shown to be the same function of x times (or over) {' and '.join(knobs)} "
            f"at every scale, so that its limit is not known. Write it in {knobs[0]} * x, or leave the limit out."
        )
    _refuse_other_slopes(act, limit)
    first, *others = knobs
    written = f"({', '.join(knobs)})" if others else first
    recipe = f"with_limit({act.recipe}, {limit}, knob={written})" if act.recipe else ""
    own = knobs if others else first
    return act.with_(knob=own, toward=toward, limit=limit, limit_params={}, recipe=recipe)


def _is_homogeneous(formula: Expr, knobs: Sequence[Symbol], toward: float) -> bool:
    """Whether algebra shows that x and the softness of the knobs, both s times as large, make f s times as large."""
    s = sympy.Symbol("s", positive=True)
    scaled = {x: s * x} | {knob: knob / s if toward == math.inf else s * knob for knob in knobs}
    try:
        pieces = split(formula)
    except DefinitionError:
        return False
    softer = {knob: value for knob, value in scaled.items() if knob != x}
    seams = (seam.xreplace(softer) - s * seam for seam in pieces.seams)
    parts = (part.xreplace(scaled) - s * part for part in pieces.parts)
    return all(proved_zero(difference) for difference in (*seams, *parts))


def _refuse_other_slopes(act: Activation, limit: str) -> None:
    """Refuse a function that is another line than its limit far out, which no scale would change."""
    hard, mp = get(limit), context(50)
    assert isinstance(hard, Activation)
    names = [p.symbol for p in act.params]
    values = [mp.mpf(repr(p.default)) for p in act.params]
    for far in (-_FAR, _FAR):
        slopes = [
            mp.convert(compiled([x, *names], elementary(each.formula), mp)(mp.mpf(far), *values)) / far
            for each in (act, hard)
        ]
        if not abs(slopes[0] - slopes[1]) < _NEAR:
            raise DefinitionError(
                f"with_limit: far from 0 {act.name} is {mp.nstr(slopes[0], 4)} x and {limit} is "
                f"{mp.nstr(slopes[1], 4)} x, so that it never comes near to it."
            )

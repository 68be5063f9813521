"""Where the pieces of a function meet, fast enough for a slider: solved once for all parameters, then numbers put in.

`lab.curves.seams_of` puts the numbers in first and lets SymPy order the pieces again, which takes 30 to 130 ms. Here a
place too many does no harm: a curve is cut there and joined again.
"""

from __future__ import annotations

from functools import lru_cache

from sympy.core.relational import Relational

from ...errors import DefinitionError
from ...lab.curves import seams_of
from ...spec import Activation, SoftTable, x
from ...spec.algebra import Abs, Expr, sympy
from ...spec.pieces import split
from ...spec.primitives import Clip, FiniteLeft, Ramp, Unit
from .reading import Asked

_CORNERS = (Ramp, Clip, Unit, Abs, FiniteLeft, sympy.sign, sympy.Max, sympy.Min)


def seams(function: Asked) -> list[float] | None:
    """The places for the page's numbers; None where they are not known and have to be looked for.

    >>> from softknee.app.workbench.reading import read
    >>> seams(read({"text": "mollify(hardtanh, box, width=delta)", "values": {"delta": 0.25}}))
    [-1.25, -0.75, 0.75, 1.25]
    """
    act = function.act
    if isinstance(act, SoftTable):
        return []  # the page shows the full sum, which is smooth
    found = _places(act)
    if found is None:
        return seams_of(act, function.given)
    numbers = {p.symbol: sympy.Float(function.values[p.name]) for p in act.params}
    return sorted({float(one.xreplace(numbers)) for one in found})


@lru_cache(maxsize=128)
def _places(act: Activation) -> tuple[Expr, ...] | None:
    """The places as expressions in the parameters."""
    formula = sympy.sympify(act.formula)
    try:
        return split(formula).seams
    except DefinitionError:
        pass  # their order hangs on the numbers
    if formula.has(*_CORNERS):
        return None
    found = []
    for relation in formula.atoms(Relational):
        gap = sympy.expand(relation.lhs - relation.rhs)
        slope = gap.coeff(x, 1)
        if slope == 0 or slope.has(x) or sympy.expand(gap - slope * x).has(x):
            return None
        found.append(-sympy.expand(gap - slope * x) / slope)
    return tuple(dict.fromkeys(found))

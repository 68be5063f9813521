"""The definition that an engine starts from, given as a name, a definition, a text or a formula."""

from __future__ import annotations

from .. import zoo  # noqa: F401 - importing the zoo announces its names
from ..errors import DefinitionError
from ..registry import get
from ..spec import Activation, x
from ..spec.algebra import Expr, sympy


def definition_of(f: str | Activation | Expr) -> Activation:
    """The element-wise definition that is meant; a formula of its own has x alone in it."""
    if isinstance(f, str):
        f = get(f)
    if isinstance(f, Activation):
        return f
    if isinstance(f, sympy.Expr | int | float):
        formula = sympy.sympify(f)
        if strange := formula.free_symbols - {x}:
            names = ", ".join(sorted(map(str, strange)))
            raise DefinitionError(
                f"The formula {f} uses {names} without saying what values it may take; make a definition of it first: "
                f"softknee.Activation('mine', formula, params=(softknee.spec.positive('a', 1.0),))."
            )
        return Activation("formula", formula)
    raise DefinitionError(
        f"A function is given by name, as an element-wise definition or as a formula in softknee.spec.x, and "
        f"{getattr(f, 'name', None) or type(f).__name__} was given."
    )

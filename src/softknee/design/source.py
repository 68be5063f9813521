"""The definition that an engine starts from, given as a name, a file, a text, a definition or a formula."""

from __future__ import annotations

from typing import Any

from .. import zoo  # noqa: F401 - importing the zoo announces its names
from ..errors import DefinitionError
from ..registry import get
from ..spec import Activation, x
from ..spec.algebra import sympy


def definition_of(f: Any, *, needed_by: str) -> Activation:
    """The element-wise definition that is meant; a formula that comes alone has x alone in it."""
    if isinstance(f, str):
        f = _named(f)
    if isinstance(f, Activation):
        return f
    if isinstance(f, sympy.Expr | int | float) and not isinstance(f, bool):
        formula = sympy.sympify(f)
        formula = formula.xreplace({s: x for s in formula.free_symbols if s.name == "x"})
        if strange := formula.free_symbols - {x}:
            names = ", ".join(sorted(map(str, strange)))
            raise DefinitionError(
                f"The formula {f} uses {names} without saying what values it may take; make a definition of it first: "
                f"softknee.Activation('mine', formula, params=(softknee.spec.positive('a', 1.0),))."
            )
        return Activation("formula", formula)
    what = getattr(f, "name", None) or type(f).__name__
    raise DefinitionError(
        f"{needed_by} takes an element-wise function with a formula, by name, as a definition or as a formula in "
        f"softknee.spec.x, and {what} was given; functions of whole rows and tables have no such formula."
    )


def _named(text: str) -> Any:
    if text.isidentifier() or text.endswith(".json"):
        return get(text)
    from .texts.language import read  # the language knows every engine, and so also the one that asks

    return read(text)

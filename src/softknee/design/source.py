"""The definition that an engine starts from, given as a name, a file, a text, a definition or a formula."""

from __future__ import annotations

import os
from typing import Any

from .. import zoo  # noqa: F401 - importing the zoo announces its names
from ..errors import DefinitionError
from ..registry import FILE_ENDING, get
from ..spec import Activation, x
from ..spec.algebra import sympy
from .texts.given import exact, is_finite_real


def definition_of(f: Any, *, needed_by: str) -> Activation:
    """The element-wise definition that is meant; a formula that comes alone has x alone in it."""
    definition = resolved(f)
    if isinstance(definition, Activation):
        return definition
    what = getattr(definition, "name", None) or type(definition).__name__
    raise DefinitionError(
        f"{needed_by} takes an element-wise function with a formula, by name, as a definition or as a formula in "
        f"softknee.spec.x, and {what} was given; functions of whole rows and tables have no such formula."
    )


def resolved(f: Any) -> Any:
    """The definition of any kind that a name, a file, a text or a formula stands for; whatever else comes as it is."""
    if isinstance(f, os.PathLike):
        return get(f)
    if isinstance(f, str):
        return _named(f)
    if isinstance(f, sympy.Expr | int | float) and not isinstance(f, bool):
        return _formula(f)
    return f


def _formula(f: Any) -> Activation:
    formula = exact(sympy.sympify(f))
    formula = formula.xreplace({s: x for s in formula.free_symbols if s.name == "x"})
    if strange := formula.free_symbols - {x}:
        names = ", ".join(sorted(map(str, strange)))
        raise DefinitionError(
            f"The formula {f} uses {names} without saying what values it may take; make a definition of it first: "
            f"softknee.Activation('mine', formula, params=(softknee.spec.positive('a', 1.0),))."
        )
    if not is_finite_real(formula):
        raise DefinitionError(f"The formula {f} is not a finite real number everywhere; an activation has to be.")
    return Activation("formula", formula)


def _named(text: str) -> Any:
    if text.endswith(FILE_ENDING) or (text.isidentifier() and text not in ("x", "pi", "e")):
        return get(text)
    from .texts.language import read  # the language knows every engine, and so also the one that asks

    return read(text)

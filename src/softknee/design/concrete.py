"""A definition with numbers for its parameters: plain functions of float64 tensors, and where they bend.

What the integrals of `gaussian` and the measurements of `propagation` work on. `seams` are the places where pieces of
the formula meet, and where a value or a slope may jump; `landmarks` are those and the centres of narrow features, such
as 0 for x s(1000 x): an integral that does not look there can miss them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import DefinitionError, ParameterError
from ..registry import resolve
from ..spec import Activation, SoftTable, x
from ..spec.algebra import Expr, sympy
from ..spec.pieces import Pieces, split

Curve = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Concrete:
    """A function of one number, with its first two derivatives.

    name:      what it is called.
    params:    its parameters' numbers.
    value, slope, bend: the function and its derivatives, on float64 tensors.
    seams:     where its pieces meet, in order.
    landmarks: the seams and the centres of what may be narrow, in order.
    two_lines: the slopes left and right of 0 if it is two straight lines from the origin, such as ReLU; else None.
    costly:    whether each value takes the solution of an equation, so that a table of it pays.
    """

    name: str
    params: Mapping[str, Any]
    value: Curve
    slope: Curve
    bend: Curve
    seams: tuple[float, ...]
    landmarks: tuple[float, ...]
    two_lines: tuple[float, float] | None = None
    costly: bool = False

    def slope_jumps(self) -> dict[float, float]:
        """How far the slope jumps at each seam where it does."""
        return _jumps(self.slope, self.seams)

    def value_jumps(self) -> dict[float, float]:
        """How far the function itself jumps at each seam where it does: a continuous one nowhere."""
        return _jumps(self.value, self.seams)


def concrete(f: Any, params: Mapping[str, Any] | None = None) -> Concrete:
    """The function that a name, a text or a definition stands for, with these parameters and defaults for the others.

    >>> from softknee.design.concrete import concrete
    >>> f = concrete("smelu", {"beta": 0.5})
    >>> f.seams, f.two_lines, concrete("leaky_relu").two_lines
    ((-0.5, 0.5), None, (0.01, 1.0))
    """
    definition, values, _ = resolve(f)
    arguments = {**values, **(params or {})}
    if isinstance(definition, SoftTable):
        return _of_table(definition, arguments)
    if isinstance(definition, Activation):
        return _of_formula(definition, arguments)
    raise ParameterError(
        f"An element-wise definition is needed here, by name, as a formula in x or as an Activation, and "
        f"{type(definition).__name__} was given. Of a module take its definition; a function of whole rows has no "
        f"graph over one number."
    )


def _of_formula(act: Activation, arguments: dict[str, Any]) -> Concrete:
    act, arguments = act.choose_variant(arguments)
    arguments = act.configured(arguments)[1]
    numbers = {name: _number(act.name, name, value) for name, value in arguments.items()}
    act.check(numbers)
    numbers = {p.name: numbers.get(p.name, p.default) for p in act.params}
    # Exact fractions: SymPy then decides the order of seams exactly.
    exact = {act.param(name).symbol: sympy.Rational(value) for name, value in numbers.items()}
    formula = sympy.sympify(act.formula).subs(exact)
    pieces = _pieces(formula)
    seams = sorted({float(seam) for seam in pieces.seams})
    return Concrete(
        act.name,
        numbers,
        *_curves(act, numbers),
        seams=tuple(seams),
        landmarks=tuple(sorted({0.0, *seams, *_centres(formula)})),
        two_lines=_two_lines(pieces),
        costly=act.implicit is not None,
    )


def _of_table(table: SoftTable, arguments: dict[str, Any]) -> Concrete:
    table.check(arguments)
    if "weights" in arguments:
        table = table.with_weights(arguments["weights"])
    points = _grid(table, arguments)
    # Laplacian weights have their kinks at the points; a window slides, and a sharp table turns, half way between.
    seams = sorted({*points, *((a + b) / 2 for a, b in itertools.pairwise(points))})
    return Concrete(table.name, arguments, *_curves(table, arguments), seams=tuple(seams), landmarks=tuple(seams))


def _curves(definition: Any, values: Mapping[str, Any]) -> tuple[Curve, Curve, Curve]:
    def curve(order: int) -> Curve:
        def compute(at: Tensor) -> Tensor:
            with torch.no_grad():
                return definition.derivative(order)(at, **values)

        return compute

    return curve(0), curve(1), curve(2)


def _number(title: str, name: str, value: Any) -> float:
    try:
        result = float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError(f"{title}: {name} must be one number here, and {value!r} was given.") from error
    if not math.isfinite(result):
        raise ParameterError(f"{title}: {name} must be a finite number, and {value!r} was given.")
    return result


def _pieces(formula: Expr) -> Pieces:
    try:
        return split(formula)
    except DefinitionError:
        # Seams that cannot be written down are found by halving, as everything narrow is (see `gaussian.resolve`).
        return Pieces((), (formula,))


def _centres(formula: Expr) -> list[float]:
    """Where the argument of some function inside the formula is 0: its step, gate or bump is there."""
    centres = set()
    for node in sympy.preorder_traversal(formula):
        if not isinstance(node, sympy.Function):
            continue
        for arg in node.args:
            if getattr(arg, "is_polynomial", None) and arg.is_polynomial(x) and sympy.degree(arg, x) == 1:
                slope, offset = sympy.Poly(arg, x).all_coeffs()
                place = -offset / slope
                if place.is_number and place.is_real:
                    centres.add(float(place))
    return sorted(centres)


def _two_lines(pieces: Pieces) -> tuple[float, float] | None:
    if len(pieces.seams) > 1 or any(seam != 0 for seam in pieces.seams):
        return None
    slopes = [sympy.simplify(part / x) for part in pieces.parts]
    if not all(slope.is_number for slope in slopes):
        return None
    return float(slopes[0]), float(slopes[-1])


def _grid(table: SoftTable, arguments: Mapping[str, Any]) -> list[float]:
    if arguments.get("grid") is not None:
        return sorted(torch.as_tensor(arguments["grid"], dtype=torch.float64).reshape(-1).tolist())
    z, k = arguments.get("z"), arguments.get("k")
    if k is None:
        k = len(z) // 2 if isinstance(z, list | tuple | Tensor) else table.options["k"]
    spacing = arguments.get("q")
    step = float(table.param("q").default if spacing is None else spacing)
    return [step * i for i in range(-k, k + 1)]


def _jumps(curve: Curve, seams: tuple[float, ...]) -> dict[float, float]:
    jumps = {}
    for seam in seams:
        # A few units in the last place to either side: nearer, rounding could put both on one side.
        off = max(abs(seam) * 1e-15, 1e-30)
        left, right = curve(torch.tensor([seam - off, seam + off], dtype=torch.float64)).tolist()
        if abs(right - left) > 1e-9 * max(1.0, abs(left), abs(right)):
            jumps[seam] = right - left
    return jumps

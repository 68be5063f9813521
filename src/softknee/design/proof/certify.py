"""sk.design.certify: constants of a function between ends that provably contain them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ...errors import DefinitionError, ParameterError, need_package
from ...registry import resolve
from ...spec import Activation, SoftTable
from ...spec.algebra import sympy
from .certificate import SECONDS, Certificate, Extremum


def certify(f: Any, *, seconds: float = SECONDS, **params: Any) -> Certificate:
    """Prove the constants of a function for exactly these parameters.

    Smallest and largest slope, Lipschitz constant, monotone or not, smoothness, distance to the hard limit and where,
    exact zeros. Each number is an interval that provably contains the truth: the formula is evaluated on intervals
    with outward rounding (python-flint), the line is searched by branch and bound, and its two ends by bounds on how
    fast the function settles there. What cannot be settled is said in `Certificate.open`, never guessed.

    f:       a name, a file, a text or a formula in x, or an element-wise definition; squaf takes its arguments too, z
             as a list of numbers.
    seconds: how long the search may take before what is left stays open.
    params:  as numbers, taken exactly: 0.1 is the binary number next to a tenth, "0.1" or Fraction(1, 10) a tenth.
             Those left out have their defaults.

    >>> from softknee.design import certify
    >>> print(certify("gelu").lipschitz)
    1.12890414518515478634...
    >>> print(certify("srelu", delta=0.5))
    certificate of srelu(delta=0.5)
      smallest slope    0, at -inf to -0.5
      largest slope     1, at 0.5 to inf
      Lipschitz         1
      monotone          yes
      smoothness        C2
      distance to relu  0.09375, at 0
      exactly 0 at      -inf to -0.5

    Reference: F. Johansson, Arb: efficient arbitrary-precision midpoint-radius interval arithmetic (2017).
    """
    _need_flint()
    act = resolve(f).as_definition()
    from .ball_pieces import hard_limit, of_activation, of_table
    from .ball_proof import prove

    if isinstance(act, SoftTable):
        table = of_table(act, params, _exact)
        return prove(lambda: table, act.name, table.params, seconds=seconds)
    if not isinstance(act, Activation):
        name = getattr(act, "name", type(act).__name__)
        raise DefinitionError(
            f"A certificate is made of an element-wise function, by name, as a definition or as a formula in "
            f"softknee.spec.x, and {name!r} is none."
        )
    values = exact_params(act, params)
    return prove(lambda: of_activation(act, values), act.name, values, lambda: hard_limit(act, values), seconds=seconds)


def range_of(
    expr: Any, low: int | float | Fraction | str = -math.inf, high: int | float | Fraction | str = math.inf
) -> tuple[Extremum, Extremum]:
    """(smallest, largest) value of a formula in x, without parameters, on [low, high]: each between proven ends.

    >>> from softknee.design.proof.certify import range_of
    >>> from softknee.spec import Sigmoid, x
    >>> smallest, largest = range_of(x * Sigmoid(x))
    >>> print(smallest, smallest.places[0], largest)
    -0.278464542761073795109... -1.27846454276107379510... inf
    """
    _need_flint()
    from .ball_pieces import Unsettled
    from .ball_proof import prove_range

    ends = [value if value in (math.inf, -math.inf) else _exact("range_of", "an end", value) for value in (low, high)]
    if not ends[0] <= ends[1]:
        raise ParameterError(f"range_of takes low <= high, and {low!r} and {high!r} were given.")
    try:
        return prove_range(sympy.sympify(expr), ends[0], ends[1])
    except Unsettled as reason:
        raise DefinitionError(f"The range is not settled. {reason}") from None


def prove_shape(act: Activation, values: dict[str, float], minimum: float | None = None) -> str:
    """Prove that a definition with these parameters never falls, or falls to one minimum and rises from there.

    `minimum` is about where that is, None for a function without one. An empty string is a proof, else it says why not.

    >>> import softknee as sk
    >>> prove_shape(sk.get("gelu"), {"beta": 1.0}, -0.7518), prove_shape(sk.get("relu6"), {})
    ('', '')
    """
    _need_flint()
    if minimum is None:
        proof = certify(act, **values)
        return "" if proof.monotone else " ".join(["it is not proved never to fall.", *proof.open])
    exact = {p.symbol: sympy.Rational(Fraction(values[p.name])) for p in act.params}
    slope, bend = (act.derivative(order).formula.subs(exact) for order in (1, 2))
    place = Fraction(minimum).limit_denominator(10**9)
    for near in (Fraction(0), Fraction(1, 100)):
        try:
            falls = range_of(slope, high=place - near)[1].upper <= _NEGLIGIBLE
            rises = range_of(slope, low=place + near)[0].lower >= -_NEGLIGIBLE
            bends = near == 0 or range_of(bend, place - near, place + near)[0].lower > 0
        except DefinitionError as reason:
            return str(reason)
        if falls and rises and bends:
            return ""
    return "it is not proved to have one minimum"


_NEGLIGIBLE = Fraction(1, 10**20)  # of a slope that tends to 0 from one side


def _need_flint() -> None:
    need_package("flint", "Certificates need the package 'python-flint'", "design")


def exact_params(act: Activation, params: dict[str, Any]) -> dict[str, Fraction]:
    """Every parameter of a definition as an exact number, checked against its constraint."""
    numbers = {name: _exact(act.name, name, value) for name, value in params.items()}
    for name, value in numbers.items():
        act.check({name: float(value)})
    return {p.name: numbers.get(p.name, Fraction(p.default)) for p in act.params}


def _exact(title: str, name: str, value: Any) -> Fraction:
    try:
        if isinstance(value, bool):
            raise TypeError
        return Fraction(value)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise ParameterError(
            f'{title}: {name} must be one finite number (an int, a float, a Fraction or a text such as "0.1"), and '
            f"{value!r} was given."
        ) from None

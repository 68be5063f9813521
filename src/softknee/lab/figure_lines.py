"""Which lines a figure has: one for each setting, in a colour that says how hard it is, and the hard limit dotted.

The limit is the named one (`Activation.limit`), or, where that has no name, the definition itself with its knob all but
at the end (SmeLU moved to the right becomes relu(x - shift), SQUAF its staircase).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ParameterError
from ..registry import get
from ..spec import Activation, Param, SoftTable
from .chart import INK
from .curves import Curve, Function, orders_of, sample, seams_of, view

Definition = Activation | SoftTable
Settings = Sequence[Mapping[str, Any]]

# From soft to hard along one ramp whose lightness falls all the way, so that the order is seen without its hues too.
RAMP = ("#f2a13c", "#e0654f", "#b23a7f", "#6b2c91", "#1f2a7a")
# For lines that have no order: hues of Okabe and Ito's palette, told apart with any colour vision.
DISTINCT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
_SIGNS: dict[str, str] = dict(zip(_GREEK.split(), "αβγδεζηθικλμνξπρστφχψω", strict=True))
_SIGNS |= {"eps": "ε", "lam": "λ", "slope": "a", "shift": "s"}
_LOWERED = {"minus": "₋", "plus": "₊", "n": "ₙ", "p": "ₚ"}
_ALL_BUT_ZERO = 1e-18  # a knob at its end, as far as float64 and a drawing can tell
_FARTHEST_SEAM = 20.0  # a seam beyond guards against overflow and is nothing to see


@dataclass(frozen=True)
class Line:
    """One line of a figure: what it is called, what it computes, and how it is drawn.

    shown: how many of f, f', f'' are drawn; the point masses of f'' follow from f'.
    """

    label: str
    orders: Sequence[Function]
    seams: Sequence[float] | None = None
    colour: str = INK
    dotted: bool = False
    shown: int = 3

    def between(self, low: float, high: float) -> Curve:
        return sample(self.orders[: self.shown], low=low, high=high, seams=self.seams)


def settings_of(act: Definition, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings to draw when none are asked for: the knob at its default and at multiples, most of them harder."""
    if not act.knobs or any(name in params for name in act.knobs):
        return [dict(params)]
    found = []
    for factor in (0.25, 0.5, 1.0, 2.0) if act.toward == 0 else (0.5, 1.0, 2.0, 4.0):
        numbers = {name: factor * _default(act, name) for name in act.knobs}
        if all(act.param(name).constraint.allows(value) for name, value in numbers.items()):
            found.append({**params, **numbers})
    return found


def _default(act: Definition, name: str) -> float:
    p = act.param(name)
    assert isinstance(p, Param), "a knob is a number"
    return p.default


def lines_of(act: Definition, settings: Settings) -> list[Line]:
    """A line for each setting, and the hard limits dotted; a limit that several settings share is drawn once."""
    if not 1 <= len(settings) <= len(DISTINCT):
        raise ParameterError(f"A figure has 1 to {len(DISTINCT)} lines, and {len(settings)} were asked for.")
    for one in settings:
        act.check(one)
    lines = [
        Line(label(act, one, settings), orders_of(act, one), seams_of(act, one), colour)
        for one, colour in zip(settings, colours(act, settings), strict=True)
    ]
    limits = {str(one): one for one in (limit_of(act, one) for one in settings) if one is not None}
    for index, (name, hard, values) in enumerate(limits.values()):
        seams, shown = seams_of(hard, values), 3
        if hard is act:
            # Joined pieces have shrunk to a kink, whose slope can be drawn; of anything else only its jumps are left.
            seams, shown = (seams, 2) if seams else (None, 1)
        lines.append(Line("" if index else name, orders_of(hard, values), seams, dotted=True, shown=shown))
    return lines


def limit_of(act: Definition, values: Mapping[str, Any]) -> tuple[str, Definition, dict[str, Any]] | None:
    """What the hard limit is called, its definition and its parameters."""
    if not act.knobs:
        return None
    if isinstance(act, Activation) and act.limit is not None:
        given = {p.name: p.default for p in act.params} | dict(values)
        return act.limit, get(act.limit), {theirs: given[ours] for theirs, ours in act.limit_params.items()}
    letters = ", ".join(map(sign, act.knobs))
    if act.toward == 0:
        end, words = _ALL_BUT_ZERO, f"{letters} → 0"
    elif act.toward == math.inf:
        end, words = 1 / _ALL_BUT_ZERO, f"{letters} → ∞"
    else:
        return None
    return words, act, {**values, **dict.fromkeys(act.knobs, end)}


def bounds(lines: Sequence[Line], low: float | None, high: float | None) -> tuple[float, float]:
    """The stretch of x to draw."""
    if low is None or high is None:
        soft = [line for line in lines if not line.dotted]
        seams = [seam for line in soft for seam in line.seams or () if abs(seam) <= _FARTHEST_SEAM]
        seen = view([line.orders[2] for line in soft], seams)
        low, high = seen[0] if low is None else low, seen[1] if high is None else high
    if not -math.inf < low < high < math.inf:
        raise ParameterError(f"A figure goes from low to high, and {low:g} is not below {high:g}.")
    return float(low), float(high)


# -- colours and words ------------------------------------------------------------------------------------


def colours(act: Definition, settings: Settings) -> list[str]:
    """Darker as the function hardens, where the lines have that order; hues that have no order otherwise."""
    place = _hardness(act, settings)
    if place is None:
        return [*DISTINCT[: len(settings)]]
    shades = {2: (1, 4), 3: (0, 2, 4), 4: (0, 1, 3, 4), 5: (0, 1, 2, 3, 4)}[len(settings)]
    return [RAMP[shades[one]] for one in place]


def _hardness(act: Definition, settings: Settings) -> list[int] | None:
    """The place of each line from soft to hard, if what varies rises and falls together, on one side of 0."""
    varying = _varying(settings)
    if not varying or not 2 <= len(settings) <= len(RAMP):
        return None
    orders: list[list[int]] = []
    for name in varying:
        numbers: list[Any] = [one.get(name) for one in settings]
        if not all(isinstance(one, int | float) for one in numbers) or min(numbers) * max(numbers) <= 0:
            return None
        orders.append(sorted(range(len(numbers)), key=lambda i, n=numbers: abs(n[i])))
        if len(set(numbers)) < len(numbers) or orders[-1] != orders[0]:
            return None
    hardens_at_zero = act.toward == 0 and set(varying) <= set(act.knobs)
    order = orders[0][::-1] if hardens_at_zero else orders[0]
    return [order.index(i) for i in range(len(settings))]


def _varying(settings: Settings) -> list[str]:
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({str(one.get(name)) for one in settings}) > 1]


def label(act: Definition, values: Mapping[str, Any], settings: Settings) -> str:
    """What tells a line from the others: the parameters that vary."""
    names = [name for name in values if len(settings) == 1 or name in _varying(settings)]
    words = ", ".join(equation(name, values[name]) for name in names)
    return words or (act.name if len(settings) == 1 else "default")


def shared(act: Definition, settings: Settings) -> str:
    """The parameters that are given and the same for all lines."""
    if len(settings) == 1:
        return ""
    same = {name: value for one in settings for name, value in one.items() if name not in _varying(settings)}
    return ", ".join(equation(name, value) for name, value in same.items() if value is not None)


def equation(name: str, value: Any) -> str:
    number = f"{value:.4g}".replace("-", "−") if isinstance(value, int | float) else value
    return f"{sign(name)} = {number}"


def sign(name: str) -> str:
    """A parameter as it is written in a figure.

    >>> sign("beta"), sign("g_minus"), sign("lam"), sign("scale")
    ('β', 'g₋', 'λ', 'scale')
    """
    stem, _, low = name.partition("_")
    return _SIGNS.get(name) or _SIGNS.get(stem, stem) + (_LOWERED.get(low, f"_{low}") if low else "")


def letter(act: Definition, name: str) -> str:
    """A parameter as mathematics."""
    return next((p.letter for p in act.params if p.name == name and isinstance(p, Param)), name)

"""The closed form as mathematics for a browser (MathML), and the certificate in rows."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from html import escape
from typing import Any

import torch
from torch import Tensor

from ...design.proof.certificate import SECONDS, Certificate, Enclosure, Extremum, Region
from ...design.proof.certify import certify
from ...errors import MissingToolError, ParameterError, SoftkneeError, need_package
from ...lab.figures import Curve, Function, Line, bounds, limit_of, orders_of, sample, seams_of
from ...lab.gallery import exhibit, formula_of
from ...lab.typeset import Formula, closed_form
from ...registry import get
from ...spec import Activation, Param, SoftTable
from .bend import handles, pulled, travel
from .inputs import seam_places, seams, sympy_numbers
from .reading import ChosenFunction, read, slider_for_width

POINTS = 560  # a panel is hardly wider, and seams have points of their own
WIDEST = 1e9
_LIMIT_POINTS = 120  # most limits are straight lines
_REACH, _BEYOND = 1e4, 1e6  # how far the two are compared, and where their growth apart is checked
_USUAL = (-4.0, 4.0)  # where a function gives no scale of its own
_GROWS = 1.01
_FLAT_TOP = 1e-9  # of the largest distance: nearer than that is the same height


def curve(query: dict[str, Any]) -> dict[str, Any]:
    """f, f' and f'' between two places, with what the page needs to know of the function.

    query: {"function": {"text", "values", "real"}, "low", "high"}; without the last two, a stretch that suits it, which
           the answer holds also where "natural" is set, with the travel of each slider. "pull" drags the curve, see
           `bend.pulled`; the answer then holds the parameter that follows, and its value.
    """
    function, follows = read(query.get("function")), None
    if query.get("pull") is not None:
        function, follows = pulled(function, query["pull"])
    act, values = function.act, function.given
    orders, places = orders_of(act, values), seams(function)
    ends = _ends(query)
    natural = _view(function, orders, places) if ends is None or query.get("natural") else None
    low, high = ends or natural or _USUAL
    drawn = sample(orders, low=low, high=high, seams=places, points=POINTS)
    reply = {**describe(function), "low": low, "high": high, "curve": _plain(drawn)}
    reply["handles"] = handles(function, places)
    if follows is not None:
        reply["pulled"] = {"param": follows, "value": function.values[follows]}
    if natural is not None:
        reply["natural"] = list(natural)
        for row, p in zip(reply["params"], function.params, strict=True):
            row["travel"] = travel(function, p, low, high)
    if (hard := limit_line(function)) is not None:
        part = sample(hard.orders[: hard.shown], low=low, high=high, seams=hard.seams, points=_LIMIT_POINTS)
        reply["limit"] = {"name": hard.label, "curve": _plain(part)}
        reply["distance"] = distance(orders[0], hard.orders[0])
    return reply


def describe(function: ChosenFunction) -> dict[str, Any]:
    """Its name, its parameters, and where it comes from."""
    act = function.act
    description = {
        "name": act.name,
        "about": act.about,
        "named": function.is_named,
        "params": [_param(p, function) for p in function.params],
    }
    more = None if function.is_named else slider_for_width(function.text)
    return description | ({"slider": more} if more else {})


def _param(p: Param, function: ChosenFunction) -> dict[str, Any]:
    return {
        "name": p.name,
        "value": function.values[p.name],
        "words": p.constraint.words,
        "about": p.about,
        "own": p.name in function.declared,
    }


def _ends(query: dict[str, Any]) -> tuple[float, float] | None:
    low, high = query.get("low"), query.get("high")
    if low is None or high is None:
        return None
    for end in (low, high):
        if isinstance(end, bool) or not isinstance(end, int | float) or not abs(end) <= WIDEST:
            raise ParameterError(f"The picture goes from one number to another, at most {WIDEST:g} from 0.")
    if not high - low > 1e-9 * max(1.0, abs(low), abs(high)):
        raise ParameterError("The picture goes from a lower to a higher number; zoom out a little.")
    return float(low), float(high)


def _view(function: ChosenFunction, orders: Sequence[Function], places: list[float] | None) -> tuple[float, float]:
    shown = exhibit(function.act.name)
    if function.is_named and shown.span is not None:
        return float(shown.span[0]), float(shown.span[1])
    low, high = bounds([Line("", orders, places)], None, None)
    return (low, high) if 0.02 < high - low < 1e3 else _USUAL


def limit_line(function: ChosenFunction) -> Line | None:
    """The hard limit with its name, and how many of its orders can be drawn; None where there is none."""
    act = function.act
    limit = limit_of(act, function.given)
    if limit is None and isinstance(act, Activation) and act.limit is not None:
        # A width that is a number in the text is no knob, and the limit is still what it was smoothed from.
        hard = get(act.limit)
        values = {theirs: function.values[ours] for theirs, ours in act.limit_params.items()}
        limit = act.limit, hard, values
    if limit is None:
        return None
    name, hard, values = limit
    places, shown = _hard_seams(hard, tuple(values.items())), 2
    if hard is act:
        name = "hard limit"
        # Joined pieces have shrunk to a kink, whose slope can be drawn; of anything else only its jumps are left.
        places, shown = (places, 2) if places else (None, 1)
        if isinstance(act, SoftTable):
            k, q = int(function.options["k"]), function.values["q"]
            places = [(i + 0.5) * q for i in range(-k, k)]  # the steps of the staircase
    return Line(name, orders_of(hard, values), places, dotted=True, shown=shown)


@lru_cache(maxsize=256)
def _hard_seams(hard: Any, values: tuple[tuple[str, Any], ...]) -> list[float] | None:
    return None if isinstance(hard, SoftTable) else seams_of(hard, dict(values))


def distance(value: Function, limit: Function) -> dict[str, Any]:
    """sup |f - limit| and where: a place, an end of the line that it is approached at, or without bound.

    >>> import softknee as sk
    >>> largest = distance(lambda x: sk.get("smelu")(x, beta=2.0), sk.get("relu"))
    >>> round(largest["value"], 9), largest["x"]
    (0.5, 0.0)
    """

    def both(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ours, hard = value(x), limit(x)
        return ours, hard, (ours - hard).abs().nan_to_num(0.0)

    steps = torch.logspace(-6, math.log10(_REACH), 1200, dtype=torch.float64)
    far = torch.tensor([_BEYOND], dtype=torch.float64)
    x = torch.cat([-far, -steps.flip(0), torch.zeros(1, dtype=torch.float64), steps, far])
    ours, hard, heights = both(x)
    if float(heights[[0, -1]].max()) > _GROWS * float(heights[1:-1].max()) + 1e-9:
        return {"value": None, "x": None, "words": "grows without bound"}
    for _ in range(2):  # each round looks between the neighbours of the best point, and keeps that point and 0
        best = int(heights.argmax())
        left, right = float(x[max(best - 1, 0)]), float(x[min(best + 1, len(x) - 1)])
        best_and_zero = torch.cat([x[best : best + 1], torch.zeros(1, dtype=torch.float64)])
        x = torch.cat([torch.linspace(left, right, 1001, dtype=torch.float64), best_and_zero]).sort()[0]
        ours, hard, heights = both(x)
    best = int(heights.argmax())
    top, zero = float(heights[best]), int((x == 0).nonzero()[0])
    if float(heights[zero]) >= top * (1 - _FLAT_TOP):
        best = zero
    where = round(float(x[best]), 9)
    if abs(where) > 0.5 * _REACH:
        return {"value": top, "x": None, "words": f"approached as x → {'−' if where < 0 else ''}∞"}
    return {"value": top, "x": where, "from": float(hard[best]), "to": float(ours[best]), "words": ""}


def _plain(drawn: Curve) -> dict[str, Any]:
    """The points of each order as float64 in base64, with NaN between runs; and the point masses of f''."""
    gap = (math.nan,)
    lines = []
    for runs in drawn.runs:
        xs = [x for run in runs for x in (*run.xs, *gap)]
        ys = [y for run in runs for y in (*run.ys, *gap)]
        lines.append({"x": _packed(xs), "y": _packed(ys)})
    return {"lines": lines, "masses": [list(pair) for pair in drawn.masses[2] if len(drawn.runs) > 1]}


def _packed(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}d", *numbers)).decode()


_DIGITS = 8
_MOST_PLACES = 3
_MOST_MADE = 64
_made: dict[Any, list[Formula]] = {}
_PRIMES = ("", "'", "''")
_PRIME = re.compile(r"<msup><mi>f</mi><mi>(&#x0?203[23];)</mi></msup>")


def formulas(query: dict[str, Any]) -> dict[str, Any]:
    """f, f' and f'' of {"function": ...}: MathML, LaTeX, and a line of text; and whether they hang on its numbers."""
    function = read(query.get("function"))
    made = equations(function)
    rows = [_formula(function, order, equation) for order, equation in enumerate(made)]
    return {"formulas": rows, "at_numbers": any(equation.at_numbers for equation in made)}


def equations(function: ChosenFunction) -> list[Formula]:
    """Made once for each order of the pieces on the line, which is all that numbers change in them."""
    places = None if isinstance(function.act, SoftTable) else seam_places(function.act)
    numbers = sympy_numbers(function)
    order = None if places is None else tuple(sorted(range(len(places)), key=lambda i: places[i].xreplace(numbers)))
    key = function.act, order, tuple(function.values.items()) if order is None else ()
    if key not in _made:
        if len(_made) > _MOST_MADE:
            _made.clear()
        _made[key] = [formula_of(function.act, order, function.values) for order in range(3)]
    return _made[key]


def _formula(function: ChosenFunction, order: int, equation: Formula) -> dict[str, Any]:
    act = function.act
    text = closed_form(act, order) if isinstance(act, Activation) else ""
    return {
        "mathml": mathml(rf"f{_PRIMES[order]}(x) = {equation.latex}", display=True),
        "where": [mathml(words, display=False) for words in equation.where],
        "latex": latex_of(equation, order),
        "text": text,
    }


def latex_of(equation: Formula, order: int) -> str:
    """The equation and what its letters stand for, to be copied into a paper."""
    where = "".join(rf",\quad {words}" for words in equation.where)
    return rf"f{_PRIMES[order]}(x) = {equation.latex}{where}"


def mathml(latex: str, *, display: bool) -> str:
    """LaTeX as MathML, which a browser typesets by itself.

    >>> mathml(r"\\beta x", display=False).startswith("<math")
    True
    """
    converter = need_package("latex2mathml.converter", "Formulas on the page are made by latex2mathml", "web")
    # The bars with a side are not in the converter's part of LaTeX, and mean the same.
    plain = latex.replace(r"\lvert", "|").replace(r"\rvert", "|").replace(r"\!", "")
    made = converter.convert(plain, display="block" if display else "inline")
    # A raised prime is raised again by fonts that have it high already; beside f it stands right in all of them.
    made = _PRIME.sub(r"<mrow><mi>f</mi><mo lspace='0' rspace='0'>\1</mo></mrow>", made)
    return made.replace(">", f' alttext="{escape(latex, quote=True)}">', 1)


# -- certificate ------------------------------------------------------------------------------------------


def certificate(query: dict[str, Any]) -> dict[str, Any]:
    """What is proved of {"function": ...} for exactly its numbers, taken as the decimals that are shown.

    With "longer" the search may take ten times as long; "out_of_time" in the answer says that this may settle more.
    """
    function = read(query.get("function"))
    act = function.act
    values: dict[str, Any] = {name: repr(value) for name, value in function.values.items()}
    if isinstance(act, SoftTable):
        values |= {**function.options, "z": [repr(z) for z in function.points]}
    try:
        proved = certify(act, seconds=SECONDS * (LONGER if query.get("longer") else 1), **values)
    except MissingToolError as error:
        return {"rows": [], "open": [str(error)]}
    except SoftkneeError as error:
        return {"rows": [], "open": [f"Nothing was proved: {error}"]}
    reply = {"open": list(proved.open), "out_of_time": proved.out_of_time, "exact": str(proved)}
    if proved.domain:
        words = proved.domain.replace("!=", "≠").replace("<=", "≤").replace(">=", "≥").replace("-", "−")
        return {**reply, "rows": [], "domain": words}
    rows = _rows(proved)
    return {**reply, "rows": rows if any(value != "not settled" for _, value, _ in rows) else []}


LONGER = 10


def _rows(proved: Certificate) -> list[list[str]]:
    """The proved properties: name, value, where."""
    order, zeros = proved.smoothness, proved.zeros
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    smooth = "not settled" if order is None else "C∞" if order == math.inf else "jumps"
    if order is not None and 0 <= order < math.inf:
        smooth = f"C{int(order)}".translate(raised)
    nothing = "not settled"
    if zeros is not None:
        nothing = ", ".join(map(_region, zeros[:_MOST_PLACES])) + (" …" if len(zeros) > _MOST_PLACES else "")
    rows = [
        ["Lipschitz constant", _number(proved.lipschitz), _places(proved.lipschitz)],
        ["smallest slope", _number(proved.smallest_slope), _places(proved.smallest_slope)],
        ["largest slope", _number(proved.largest_slope), _places(proved.largest_slope)],
        ["monotone", {True: "yes", False: "no", None: "not settled"}[proved.monotone], ""],
        ["smoothness", smooth, ""],
    ]
    if proved.limit is not None:
        title = f"distance to {proved.limit}"
        distance = proved.distance
        rows.append([title, "not settled", ""] if distance is None else [title, _number(distance), _places(distance)])
    rows.append(["exactly 0", nothing or "nowhere", ""])
    return rows


def _places(value: Extremum) -> str:
    if not value.places:
        return ""
    verb = {True: "at x =", False: "towards x =", None: "near x ="}[value.attained]
    more = " …" if len(value.places) > _MOST_PLACES else ""
    return f"{verb} {', '.join(map(_region, value.places[:_MOST_PLACES]))}{more}"


def _region(region: Region) -> str:
    return _number(region.begin) if region.is_point else f"{_number(region.begin)} … {_number(region.end)}"


def _number(value: Enclosure) -> str:
    """Digits that are proved; dots where the number goes on. (0.025 is often proved give or take 5e-60.)"""
    near = float(value)
    if math.isnan(near):
        if math.isinf(value.lower) == math.isinf(value.upper):
            return "not settled"
        is_least = math.isinf(value.upper)
        end = _outward(value.lower, ROUND_FLOOR) if is_least else _outward(value.upper, ROUND_CEILING)
        return f"at {'least' if is_least else 'most'} {end}"
    if math.isinf(near):
        return "−∞" if near < 0 else "∞"
    if float(value.width) > 10.0**-_DIGITS * max(1.0, abs(near)):
        return f"{_outward(value.lower, ROUND_FLOOR)} to {_outward(value.upper, ROUND_CEILING)}"
    short = f"{near:.{_DIGITS}g}"
    return short.replace("-", "−") + ("" if Fraction(short) in value else "…")


def _outward(end: Any, rounding: str) -> str:
    """An end of an interval to a few digits, rounded away from what lies inside."""
    number = Context(prec=30, rounding=rounding).divide(Decimal(end.numerator), Decimal(end.denominator))
    return str(Context(prec=_DIGITS - 2, rounding=rounding).plus(number).normalize()).replace("-", "−")

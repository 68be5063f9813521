"""The closed form as mathematics for a browser (MathML), and the certificate in rows."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from html import escape
from typing import Any

from ...design.proof.certificate import Certificate, Enclosure, Extremum, Region
from ...design.proof.certify import certify
from ...errors import MissingToolError, SoftkneeError
from ...lab.exhibits import exhibit
from ...lab.typeset import Formula, closed_form, formula
from ...spec import Activation, SoftTable
from .reading import Asked, read

_DIGITS = 8
_MOST_PLACES = 3
_PRIMES = ("", "'", "''")
_PRIME = re.compile(r"<msup><mi>f</mi><mi>(&#x0?203[23];)</mi></msup>")


def formulas(asked: dict[str, Any]) -> dict[str, Any]:
    """f, f' and f'' of {"function": ...}: MathML, LaTeX, and a line of text."""
    function = read(asked.get("function"))
    return {"formulas": [_formula(function, order) for order in range(3)]}


def _formula(function: Asked, order: int) -> dict[str, Any]:
    act = function.act
    if isinstance(act, Activation):
        found, text = formula(act, order), closed_form(act, order)
    else:
        found, text = exhibit(act.name).formulas[order], ""
    return {
        "mathml": mathml(rf"f{_PRIMES[order]}(x) = {found.latex}", display=True),
        "where": [mathml(one, display=False) for one in found.where],
        "latex": latex_of(found, order),
        "text": text,
    }


def latex_of(found: Formula, order: int) -> str:
    """The equation and what its letters stand for, to be copied into a paper."""
    where = "".join(rf",\quad {words}" for words in found.where)
    return rf"f{_PRIMES[order]}(x) = {found.latex}{where}"


def mathml(latex: str, *, display: bool) -> str:
    """LaTeX as MathML, which a browser typesets by itself.

    >>> mathml(r"\\beta x", display=False).startswith("<math")
    True
    """
    try:
        from latex2mathml.converter import convert
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "Formulas on the page are made by latex2mathml, which is not installed. Install it with: pip install "
            "'softknee[web]'"
        ) from error
    # The bars with a side are not in the converter's part of LaTeX, and mean the same.
    plain = latex.replace(r"\lvert", "|").replace(r"\rvert", "|").replace(r"\!", "")
    made = convert(plain, display="block" if display else "inline")
    # A raised prime is raised again by fonts that have it high already; beside f it stands right in all of them.
    made = _PRIME.sub(r"<mrow><mi>f</mi><mo lspace='0' rspace='0'>\1</mo></mrow>", made)
    return made.replace(">", f' alttext="{escape(latex, quote=True)}">', 1)


# -- certificate ------------------------------------------------------------------------------------------


def certificate(asked: dict[str, Any]) -> dict[str, Any]:
    """What is proved of {"function": ...} for exactly its numbers, taken as the decimals that are shown."""
    function = read(asked.get("function"))
    act = function.act
    given: dict[str, Any] = {name: _decimal(value) for name, value in function.values.items()}
    if isinstance(act, SoftTable):
        return {"rows": [], "open": ["Of a table the page proves nothing; sk.design.certify takes its points z."]}
    try:
        proved = certify(act, **given)
    except MissingToolError as error:
        return {"rows": [], "open": [str(error)]}
    except SoftkneeError as error:
        return {"rows": [], "open": [f"Nothing was proved: {error}"]}
    return {"rows": _rows(proved), "open": list(proved.open), "exact": str(proved)}


def _decimal(value: float) -> str:
    return repr(value)


def _rows(proved: Certificate) -> list[list[str]]:
    """What is asked of an activation: name, answer, where."""
    rows = [
        ["Lipschitz constant", _number(proved.lipschitz), _places(proved.lipschitz)],
        ["smallest slope", _number(proved.smallest_slope), _places(proved.smallest_slope)],
        ["largest slope", _number(proved.largest_slope), _places(proved.largest_slope)],
        ["monotone", {True: "yes", False: "no", None: "not settled"}[proved.monotone], ""],
        ["smoothness", _smoothness(proved.smoothness), ""],
    ]
    if proved.limit is not None:
        title = f"distance to {proved.limit}"
        found = proved.distance
        rows.append([title, "not settled", ""] if found is None else [title, _number(found), _places(found)])
    rows.append(["exactly 0", _zeros(proved.zeros), ""])
    return rows


def _smoothness(order: float | None) -> str:
    if order is None:
        return "not settled"
    if order == math.inf:
        return "C∞"
    return "jumps" if order < 0 else f"C{str(int(order)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _zeros(zeros: tuple[Region, ...] | None) -> str:
    if zeros is None:
        return "not settled"
    return ", ".join(map(_region, zeros[:_MOST_PLACES])) + (" …" if len(zeros) > _MOST_PLACES else "") or "nowhere"


def _places(value: Extremum) -> str:
    if not value.places:
        return ""
    verb = {True: "at x =", False: "towards x =", None: "near x ="}[value.attained]
    more = " …" if len(value.places) > _MOST_PLACES else ""
    return f"{verb} {', '.join(map(_region, value.places[:_MOST_PLACES]))}{more}"


def _region(one: Region) -> str:
    return _number(one.begin) if one.is_point else f"{_number(one.begin)} … {_number(one.end)}"


def _number(value: Enclosure) -> str:
    """Digits that are proved; dots where the number goes on. (0.025 is often proved give or take 5e-60.)"""
    near = float(value)
    if math.isnan(near):
        return "not settled"
    if math.isinf(near):
        return "−∞" if near < 0 else "∞"
    short = f"{near:.{_DIGITS}g}"
    return short.replace("-", "−") + ("" if Fraction(short) in value else "…")

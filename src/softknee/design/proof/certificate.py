"""What a certificate says: numbers between two proven ends, where they are reached, and what stayed open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, TypeAlias

Number: TypeAlias = Fraction | float  # a float only where it is infinite
SHOWN = 21
"""Digits that are printed at most."""
SECONDS = 20.0
"""How long a certificate may take before what is left stays open; functions of the zoo need a second or two."""


@dataclass(frozen=True)
class Enclosure:
    """A number that provably lies between `lower` and `upper`: exact fractions, or infinite floats.

    >>> from fractions import Fraction
    >>> third = Enclosure(Fraction(333333, 10**6), Fraction(333334, 10**6))
    >>> print(third, float(third.width) < 2e-6, Fraction(1, 3) in third)
    0.33333... True True
    """

    lower: Number
    upper: Number

    @property
    def width(self) -> Number:
        """How far the two ends are apart; 0 for a number that is known exactly, an infinite one included."""
        return Fraction(0) if self.lower == self.upper else self.upper - self.lower

    @property
    def is_exact(self) -> bool:
        return self.lower == self.upper

    def __contains__(self, value: Any) -> bool:
        return bool(self.lower <= value <= self.upper)

    def __float__(self) -> float:
        if math.isinf(self.lower) or math.isinf(self.upper):
            return float(self.lower) if self.is_exact else math.nan
        return float((self.lower + self.upper) / 2)

    def __str__(self) -> str:
        return _digits(self.lower, self.upper)

    def to_dict(self) -> dict[str, Any]:
        """Both ends as decimal texts, rounded outward."""
        return {"lower": _decimal(self.lower, ROUND_FLOOR), "upper": _decimal(self.upper, ROUND_CEILING)}


@dataclass(frozen=True)
class Region:
    """A point, or everything from `begin` to `end`; an end that a jump takes away is not included."""

    begin: Enclosure
    end: Enclosure
    begin_included: bool = True
    end_included: bool = True

    @property
    def is_point(self) -> bool:
        return self.begin == self.end

    def touches(self, later: Region) -> bool:
        """Whether a region that does not begin before this one belongs to it or goes on from it."""
        if later.begin.lower < self.end.upper:
            return True
        return later.begin.lower == self.end.upper and (self.end_included or later.begin_included)

    def joined(self, later: Region) -> Region:
        """Both as one."""
        if self.is_point and later.is_point:
            hull = Enclosure(self.begin.lower, max(self.end.upper, later.end.upper))
            return Region(hull, hull)
        last = later if later.end.upper > self.end.upper else self
        return Region(self.begin, last.end, self.begin_included, last.end_included)

    def __str__(self) -> str:
        if self.is_point:
            return str(self.begin)
        out = [
            str(end)
            for end, included in ((self.begin, self.begin_included), (self.end, self.end_included))
            if not included
        ]
        return f"{self.begin} to {self.end}" + (f" without {' and '.join(out)}" if out else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "begin": self.begin.to_dict(),
            "end": self.end.to_dict(),
            "begin_included": self.begin_included,
            "end_included": self.end_included,
        }


@dataclass(frozen=True)
class Extremum(Enclosure):
    """A largest or smallest value, with the places where it is reached.

    `attained` is False where it is only approached (a slope that tends to 1), None where that is not settled. Each
    place holds such a point; with several of the same height it is possible that not all are listed.
    """

    places: tuple[Region, ...] = ()
    attained: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        places = [place.to_dict() for place in self.places]
        return {**super().to_dict(), "places": places, "attained": self.attained}


@dataclass(frozen=True)
class Certificate:
    """What was proved of a function for exactly these parameters.

    smallest_slope, largest_slope: infimum and supremum of the slope, one-sided slopes at kinks included.
    lipschitz:  the least Lipschitz constant; infinite where the function jumps or its slope has no bound.
    monotone:   whether it never decreases; None where that is not settled.
    smoothness: the number of continuous derivatives (-1 where it jumps, `math.inf` where there is no end to them).
    limit:      the hard limit that `distance` is taken to, in words; None where the definition has none.
    distance:   sup |f - limit|, and where.
    zeros:      everywhere it is exactly 0, as points and intervals.
    open:       a sentence for each question that was not settled; what was not settled is never guessed.
    domain:     where it has a value, such as "x > 0"; empty where that is every x, or not known.
    out_of_time: whether a longer search (`seconds`) may settle more.

    The settled intervals are at most 1e-12 wide, relative to the number where that is above 1.
    """

    name: str
    params: Mapping[str, Any]
    smallest_slope: Extremum
    largest_slope: Extremum
    lipschitz: Extremum
    monotone: bool | None
    smoothness: float | None
    zeros: tuple[Region, ...] | None
    limit: str | None = None
    distance: Extremum | None = None
    open: tuple[str, ...] = field(default=())
    domain: str = ""
    out_of_time: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether every question was settled."""
        return not self.open

    def to_dict(self) -> dict[str, Any]:
        """The certificate as texts, numbers and lists that JSON can hold."""
        smoothness = self.smoothness
        return {
            "name": self.name,
            "params": {name: _exactly(value) for name, value in self.params.items()},
            "smallest_slope": self.smallest_slope.to_dict(),
            "largest_slope": self.largest_slope.to_dict(),
            "lipschitz": self.lipschitz.to_dict(),
            "monotone": self.monotone,
            "smoothness": "inf" if smoothness == math.inf else smoothness,
            "limit": self.limit,
            "distance": None if self.distance is None else self.distance.to_dict(),
            "zeros": None if self.zeros is None else [region.to_dict() for region in self.zeros],
            "open": list(self.open),
            **({"domain": self.domain} if self.domain else {}),
        }

    def __str__(self) -> str:
        values = ", ".join(f"{name}={_exactly(value)}" for name, value in self.params.items())
        rows = [
            ("smallest slope", _with_place(self.smallest_slope)),
            ("largest slope", _with_place(self.largest_slope)),
            ("Lipschitz", str(self.lipschitz)),
            ("monotone", {True: "yes", False: "no", None: "not settled"}[self.monotone]),
            ("smoothness", _smoothness(self.smoothness)),
        ]
        if self.limit is not None:
            shown = "not settled" if self.distance is None else _with_place(self.distance)
            rows.append((f"distance to {self.limit}", shown))
        zeros = "not settled" if self.zeros is None else ", ".join(map(str, self.zeros)) or "nowhere"
        rows.append(("exactly 0 at", zeros))
        if self.domain:
            rows = [("defined for", self.domain)]
        rows += [("open", sentence) for sentence in self.open]
        if self.out_of_time:
            rows.append(("open", "The search ended at its limit; certify(..., seconds=200) goes on for longer."))
        wide = max(len(label) for label, _ in rows)
        lines = [f"certificate of {self.name}({values})", *(f"  {label:<{wide}}  {text}" for label, text in rows)]
        return "\n".join(lines)


def _with_place(extremum: Extremum) -> str:
    if not extremum.is_exact and math.isinf(extremum.width):
        return f"{extremum} (not settled)"
    verb = {True: "at", False: "approached at", None: "near"}[extremum.attained]
    shown = [str(place) for place in extremum.places[:3]] + ["..."] * (len(extremum.places) > 3)
    return f"{extremum}, {verb} {', '.join(shown)}" if shown else str(extremum)


def _smoothness(order: float | None) -> str:
    if order is None:
        return "not settled"
    if order == math.inf:
        return "C-infinity"
    return f"C{int(order)}" if order >= 0 else "none, it jumps"


def _exactly(value: Any) -> str:
    """A parameter: as Python writes the float that it is, or as the fraction that no float is."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_exactly, value))})"
    if not isinstance(value, Fraction):
        return str(value)
    near = float(value)
    if near != value:
        return str(value)
    return repr(int(near)) if near == int(near) and abs(near) < 2**53 else repr(near)


# -- digits -----------------------------------------------------------------------------------------------


def _rounded(value: Fraction, digits: int, rounding: str) -> Decimal:
    """A fraction as a decimal number of at most that many digits."""
    return Context(prec=digits, rounding=rounding).divide(Decimal(value.numerator), Decimal(value.denominator))


def _text(value: Decimal) -> str:
    if value == 0 or -6 <= value.adjusted() < SHOWN:
        return f"{value:f}"
    body, exponent = f"{value:e}".split("e")
    return f"{_without_zeros(body)}e{int(exponent):+03d}"


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def _decimal(value: Number, rounding: str, digits: int = 30) -> str:
    """A decimal text that is not above (or below) the number."""
    return (
        str(value) if isinstance(value, float) else _without_zeros(_text(_rounded(Fraction(value), digits, rounding)))
    )


def _digits(lower: Number, upper: Number) -> str:
    """The digits that both ends share, or both ends."""
    if isinstance(lower, float) or isinstance(upper, float):
        return str(lower) if lower == upper else f"[{_short(lower)}, {_short(upper)}]"
    near, far = sorted((Fraction(lower), Fraction(upper)), key=abs)
    if near == far:
        shown = _rounded(near, SHOWN, ROUND_DOWN)
        return _without_zeros(_text(shown)) if shown == near else f"{_text(shown)}..."
    if near * far > 0:
        # Towards 0 both ways: the digits of the number itself begin so.
        for digits in range(SHOWN, 4, -1):
            shown = _rounded(far, digits, ROUND_DOWN)
            if shown == _rounded(near, digits, ROUND_DOWN):
                return f"{_text(shown)}..."
    half = abs(far - near) / 2
    if half < Fraction(1, 10**12) * max(abs(far), 1):
        # To eighteen places, for a number on either side of a short decimal.
        nearest = Fraction(round((near + far) / 2 * 10**18), 10**18)
        return f"{_decimal(nearest, ROUND_FLOOR, SHOWN)} +- {float(half):.1g}"
    return f"[{_short(lower)}, {_short(upper)}]"


def _short(value: Number) -> str:
    return f"{float(value):.6g}"

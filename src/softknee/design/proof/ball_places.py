"""Places of a patch in x, as the certificate writes them: exact where they can be."""

from __future__ import annotations

from collections.abc import Sequence

from ...spec.algebra import Expr, oo, sympy
from .ball_pieces import Patch
from .ball_programs import Program, rational
from .balls import Arb, Span, as_fraction
from .branch_and_bound import Peak
from .certificate import Enclosure, Extremum, Region

NARROW = 1e-6  # a place that is no wider than this is written as one point


def enclosure(span: Span) -> Enclosure:
    return Enclosure(as_fraction(span.lo), as_fraction(span.hi))


def seam_enclosure(seam: Expr) -> Enclosure:
    """A seam: exact where it is a fraction or infinite."""
    if seam in (oo, -oo):
        end = float("inf") if seam == oo else float("-inf")
        return Enclosure(end, end)
    exact = rational(seam)
    return enclosure(Program(seam)()) if exact is None else Enclosure(exact, exact)


def _end(patch: Patch, end: Arb) -> Enclosure:
    """Where in x an exact number of t is."""
    if end == patch.lo:
        return seam_enclosure(patch.start)
    if end == patch.hi:
        return seam_enclosure(patch.end)
    if patch.place == patch.symbol:
        return enclosure(Span(end, end))
    exact = end.fmpq()
    return seam_enclosure(patch.place.xreplace({patch.symbol: sympy.Rational(int(exact.p), int(exact.q))}))


def region(patch: Patch, place: Span) -> Region:
    """A place in t as a point in x where it is narrow, and as a stretch where it is not."""
    begin = _end(patch, place.lo)
    if place.is_point:
        return Region(begin, begin)
    end = _end(patch, place.hi)
    if place.is_finite and float(place.width) < NARROW * max(1.0, abs(float(place.lo))):
        where = Enclosure(begin.lower, end.upper)
        return Region(where, where)
    return Region(begin, end)


def placed(patch: Patch, peak: Peak) -> Peak:
    """The same peak with its places in x."""
    return Peak(peak.lower, peak.upper, tuple(region(patch, place) for place in peak.places), peak.attained)


def extremum(peak: Peak) -> Extremum:
    """A peak, its places already in x, as the certificate writes it."""
    found = sorted(dict.fromkeys(peak.places), key=lambda one: (one.begin.lower, one.end.upper))
    return Extremum(as_fraction(peak.lower), as_fraction(peak.upper), tidied(found), peak.attained)


def tidied(regions: Sequence[Region]) -> tuple[Region, ...]:
    """Regions in order, those that touch as one."""
    found: list[Region] = []
    for one in regions:
        if found and found[-1].touches(one):
            found[-1] = found[-1].joined(one)
        else:
            found.append(one)
    return tuple(found)

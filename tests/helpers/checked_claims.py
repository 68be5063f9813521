"""The claims of a definition held against its certificate."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import sympy
from mpmath.libmp import prec_to_dps

from softknee.design.proof.balls import Program, Span, Step, arb, as_fraction, constant, working_precision
from softknee.design.proof.certificate import Certificate, Enclosure, Region
from softknee.spec import Activation, Claims
from softknee.spec.algebra import Expr

AGREEMENT = Fraction(1, 10**12)


@dataclass(frozen=True)
class CheckedClaim:
    """One claim and what the certificate says of it.

    verdict: "holds", "more" (it holds, and for these parameters more is true: smoother, further zeros), "fails", or
             "open" where the certificate leaves it open.
    """

    claim: str
    verdict: str
    words: str


def check_claims(act: Activation, certificate: Certificate) -> tuple[CheckedClaim, ...]:
    """Each claim of a definition against its certificate."""
    claims = act.claims
    if claims is None:
        return ()
    numbers = {p.symbol: sympy.Rational(str(certificate.params[p.name])) for p in act.params}
    with working_precision():
        return (
            _smoothness(claims, certificate),
            _monotone(claims, certificate, numbers),
            _lipschitz(claims, certificate, numbers),
            _zeros(claims, certificate, numbers),
        )


def _smoothness(claims: Claims, certificate: Certificate) -> CheckedClaim:
    claimed, order = claims.smoothness, certificate.smoothness
    words = f"claimed {claimed}, proved {order}"
    if order is None:
        return CheckedClaim("smoothness", "open", words)
    return CheckedClaim("smoothness", "holds" if order == claimed else "more" if order > claimed else "fails", words)


def _monotone(claims: Claims, certificate: Certificate, numbers: dict[Expr, Expr]) -> CheckedClaim:
    condition = sympy.sympify(claims.monotone)
    claimed = condition.xreplace(numbers) if hasattr(condition, "xreplace") else condition
    if claimed not in (sympy.true, sympy.false):
        claimed = sympy.simplify(claimed)
    words = f"claimed {claimed}, proved {certificate.monotone}"
    if claimed not in (sympy.true, sympy.false) or certificate.monotone is None:
        return CheckedClaim("monotone", "open", words)
    return CheckedClaim("monotone", "holds" if bool(claimed) == certificate.monotone else "fails", words)


def _lipschitz(claims: Claims, certificate: Certificate, numbers: dict[Expr, Expr]) -> CheckedClaim:
    claimed, proved = claimed_number(claims.lipschitz, numbers), certificate.lipschitz
    words = f"claimed {claimed}, proved {proved}"
    if claimed.upper < proved.lower or claimed.lower > proved.upper:
        return CheckedClaim("lipschitz", "fails", words)
    if proved.lower == math.inf:
        return CheckedClaim("lipschitz", "holds", words)  # both are infinite
    apart = max(claimed.upper, proved.upper) - min(claimed.lower, proved.lower)
    near = math.isfinite(apart) and apart <= AGREEMENT * max(1, abs(proved.lower))
    return CheckedClaim("lipschitz", "holds" if near else "open", words)


class _Rounded(Program):
    """A claim as a number: a Float in it is known to its last digit and no further."""

    def _step(self, expr: Expr) -> Step:
        if not expr.is_Float:
            return super()._step(expr)
        digits = prec_to_dps(expr._prec)
        span = constant(sympy.Rational(expr)) * Span.ball(arb(1, arb(10) ** (1 - digits)))
        return (lambda at: span), ()


def claimed_number(expr: Expr, numbers: dict[Expr, Expr]) -> Enclosure:
    """The number that a claimed expression is for these parameters."""
    span = _Rounded(expr.xreplace(numbers))()
    return Enclosure(as_fraction(span.lo, -1), as_fraction(span.hi, 1))


def _zeros(claims: Claims, certificate: Certificate, numbers: dict[Expr, Expr]) -> CheckedClaim:
    claimed = list(_parts(claims.zeros.subs(numbers)))
    words = f"claimed {claims.zeros}, proved {', '.join(map(str, certificate.zeros or ())) or 'none'}"
    if certificate.zeros is None:
        return CheckedClaim("zeros", "open", words)
    if not all(any(_inside(item, region) for region in certificate.zeros) for item in claimed):
        return CheckedClaim("zeros", "fails", words)
    same = len(claimed) == len(certificate.zeros) and all(
        any(_inside(region, item) for item in claimed) for region in certificate.zeros
    )
    return CheckedClaim("zeros", "holds" if same else "more", words)


def _parts(region: Expr) -> Iterator[Region]:
    for part in region.args if isinstance(region, sympy.Union) else [region]:
        if isinstance(part, sympy.FiniteSet):
            for point in part:
                where = _claimed_end(point)
                yield Region(where, where)
        elif isinstance(part, sympy.Interval):
            yield Region(_claimed_end(part.start), _claimed_end(part.end), not part.left_open, not part.right_open)


def _claimed_end(value: Expr) -> Enclosure:
    if value.is_Rational:
        exact = Fraction(int(value.p), int(value.q))
        return Enclosure(exact, exact)
    span = constant(value)
    return Enclosure(as_fraction(span.lo, -1), as_fraction(span.hi, 1))


def _inside(part: Region, whole: Region) -> bool:
    """Whether a region lies in another; an infinite end is open by nature."""
    before = part.begin.upper > whole.begin.lower or (
        part.begin.upper == whole.begin.lower and (whole.begin_included or not part.begin_included or _far(part.begin))
    )
    after = part.end.lower < whole.end.upper or (
        part.end.lower == whole.end.upper and (whole.end_included or not part.end_included or _far(part.end))
    )
    return before and after


def _far(end: Enclosure) -> bool:
    return isinstance(end.lower, float) and math.isinf(end.lower)

"""Everything that is proved of a definition for exact parameters, put together as a certificate."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

from sympy.polys.polyerrors import PolynomialError

from ...spec import elementary
from ...spec.algebra import Expr, Mul, Pow, Symbol, oo, sympy
from ...spec.pieces import Pieces
from .ball_pieces import (
    HIGHEST_ORDER,
    Meeting,
    Patch,
    Subject,
    Unsettled,
    domain,
    keeps_sign,
    meet,
    merged,
    patches,
    smooth_patch,
    smoothness,
    split_exact,
    with_exact_numbers,
)
from .balls import (
    INFINITY,
    LONGEST_FACTORED,
    ODD_LIKE,
    POSITIVE,
    ZERO,
    Arb,
    OutOfRange,
    Program,
    Span,
    UnknownFunction,
    as_fraction,
    as_rational,
    as_sympy,
    constant,
    factored,
    proves_zero,
    rational,
    stable,
    working_precision,
)
from .branch_and_bound import Budget, Curve, Peak, halves, highest, search
from .certificate import SECONDS, Certificate, Enclosure, Extremum, Region

# -- places of a patch in x, as the certificate writes them: exact where they can be ----------------------


NARROW = 1e-6  # a place that is no wider than this is written as one point


def enclosure(span: Span) -> Enclosure:
    return Enclosure(as_fraction(span.lo, -1), as_fraction(span.hi, 1))


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
    return seam_enclosure(patch.place.xreplace({patch.symbol: as_sympy(end)}))


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
    ordered = sorted(dict.fromkeys(peak.places), key=lambda place: (place.begin.lower, place.end.upper))
    return Extremum(as_fraction(peak.lower, -1), as_fraction(peak.upper, 1), tidied(ordered), peak.attained)


def tidied(regions: Sequence[Region]) -> tuple[Region, ...]:
    """Regions in order, those that touch as one."""
    disjoint: list[Region] = []
    for region in regions:
        if disjoint and disjoint[-1].touches(region):
            disjoint[-1] = disjoint[-1].joined(region)
        else:
            disjoint.append(region)
    return tuple(disjoint)


# -- where a smooth patch is 0: every zero isolated between two proven ends, and none missed --------------


_FINE = sympy.Rational(1, 2**150)
MOST_ZEROS = 32
SIMPLE = 1000  # a zero is tried to be a fraction with a denominator up to this


def is_zero(expr: Expr) -> bool:
    """Whether an expression is 0 wherever it is, as algebra shows it."""
    return expr == 0 or (expr.count_ops() < 300 and sympy.expand(expr) == 0)


def zeros(patch: Patch, budget: Budget) -> list[Span]:
    """The places in t where the patch is 0, in order; its ends belong to it."""
    roots = [
        root
        for factor in _factors(patch.value, patch.symbol)
        for root in _roots(factor, patch.symbol, patch.lo, patch.hi, budget)
    ]
    disjoint: list[Span] = []
    for root in sorted(roots, key=lambda span: as_rational(span.lo)):
        if disjoint and root.lo <= disjoint[-1].hi:
            disjoint[-1] = disjoint[-1].join(root)
        else:
            disjoint.append(root)
    return disjoint


def _factors(expr: Expr, symbol: Symbol) -> Iterator[Expr]:
    """Expressions of which one is 0 wherever the given one is."""
    whole = factored(expr) if expr.count_ops() <= LONGEST_FACTORED else expr
    for term in Mul.make_args(whole):
        if symbol not in term.free_symbols or isinstance(term, POSITIVE):
            continue
        if isinstance(term, Pow):
            power = rational(term.exp)
            if power is None or power < 0:
                continue  # what has a power of this kind is not 0, or the patch would not be smooth
            yield from _factors(term.base, symbol)
        elif isinstance(term, sympy.log):
            yield from _factors(term.args[0] - 1, symbol)
        elif isinstance(term, ODD_LIKE):
            yield from _factors(term.args[0], symbol)
        else:
            yield term


def _roots(expr: Expr, symbol: Symbol, lo: Arb, hi: Arb, budget: Budget) -> Iterator[Span]:
    if expr.is_polynomial(symbol) and sympy.Poly(expr, symbol).domain in (sympy.ZZ, sympy.QQ):
        yield from _polynomial_roots(sympy.Poly(expr, symbol), lo, hi)
        return
    curve = Curve(expr, symbol)
    boxes = [Span(lo, hi)]
    count = 0
    while boxes:
        box = boxes.pop()
        if curve.sign_on(box) in (1, -1):
            continue
        if count > MOST_ZEROS or not budget.spend():
            raise Unsettled("There may be more zeros than can be listed.")
        if curve.sign_on(box, 1) in (1, -1) or _one_way(curve, box):
            roots = _single(curve, box)
            if roots is not None:
                count += len(roots)
                yield from roots
                continue
        cut = halves(box)
        if cut is None and not box.is_finite:
            raise Unsettled("There may be more zeros than can be listed.")
        if cut is None:
            raise Unsettled(f"It is not settled whether the function is 0 near {float(box.lo):.6g}.")
        boxes += cut


def _polynomial_roots(poly: Expr, lo: Arb, hi: Arb) -> Iterator[Span]:
    """The real roots of a polynomial with rational coefficients, isolated exactly."""
    for (low, high), _ in poly.intervals(eps=_FINE):
        ends = [Span.exact(Fraction(int(end.p), int(end.q))) for end in (low, high)]
        root = ends[0].join(ends[1])
        if root.hi < lo or root.lo > hi:
            continue
        if not (root.lo >= lo and root.hi <= hi):
            raise Unsettled(f"It is not settled on which side of a seam the zero near {float(root.lo):.6g} lies.")
        yield root


def _one_way(curve: Curve, box: Span) -> bool:
    """Whether it rises or falls all along: a smooth function that is not constant is then strictly monotone."""
    slope = curve.at(box, 1)
    if not (slope.lo >= 0 or slope.hi <= 0):
        return False
    somewhere = box.middle if box.is_finite else box.lo if box.lo.is_finite() else box.hi
    return somewhere.is_finite() and curve.at(Span(somewhere, somewhere), 1).sign in (1, -1)


def _single(curve: Curve, box: Span) -> list[Span] | None:
    """The zero of a strictly monotone function on a box, if there is one; None where its ends do not tell."""
    signs = []
    for end in (box.lo, box.hi):
        if end.is_finite():
            if exact_zero(curve.expr, curve.symbol, end):
                return [Span(end, end)]
            sign = curve.at(Span(end, end)).sign
        else:
            limit = curve.limit(box)
            # A limit of 0 is not reached: the other end's sign is that of the whole box.
            sign = None if limit is None else 0 if limit.lo == 0 == limit.hi else limit.sign
        if sign is None:
            return None
        signs.append(sign)
    if signs[0] * signs[1] >= 0:
        return [] if any(signs) else None
    return [_refined(curve, box)] if box.is_finite else None


def _refined(curve: Curve, box: Span) -> Span:
    lo, hi = box.lo, box.hi
    rising = curve.at(Span(hi, hi)).lo > 0
    for _ in range(180):
        middle = Span(lo, hi).middle
        if not lo < middle < hi:
            break
        value = curve.at(Span(middle, middle))
        if exact_zero(curve.expr, curve.symbol, middle):
            return Span(middle, middle)
        if value.sign is None:
            break
        lo, hi = (middle, hi) if (value.lo < 0) == rising else (lo, middle)
    return _simple(curve, Span(lo, hi))


def _simple(curve: Curve, root: Span) -> Span:
    """A zero that is a simple fraction, as that fraction."""
    near = as_fraction(root.middle, -1)
    if not isinstance(near, Fraction):
        return root
    guess = near.limit_denominator(SIMPLE)
    exact = Span.exact(guess)
    inside = root.lo <= exact.lo and exact.hi <= root.hi
    place = sympy.Rational(guess.numerator, guess.denominator)
    return exact if inside and proves_zero(elementary(curve.expr).xreplace({curve.symbol: place})) else root


def exact_zero(expr: Expr, symbol: Symbol, point: Arb) -> bool:
    """Whether it is proved to be 0 at a binary number."""
    value = Program(expr, symbol)(Span(point, point))
    if value.sign is not None:
        return value.sign == 0
    return proves_zero(elementary(expr).xreplace({symbol: as_sympy(point)}))


# -- everything that is proved of a definition for exact parameters, put together as a certificate --------


Result = TypeVar("Result")
Limit: TypeAlias = Callable[[], tuple[str, Pieces] | None]


def prove(
    make: Callable[[], Subject],
    name: str,
    params: Mapping[str, Any],
    limit: Limit = lambda: None,
    seconds: float = SECONDS,
) -> Certificate:
    """The certificate of a subject; `limit` gives (words, pieces) of its hard limit, or None where it has none."""
    with working_precision():
        return _Proof(seconds).certificate(make, name, params, limit)


class _Proof:
    def __init__(self, seconds: float) -> None:
        self.notes: list[str] = []
        self.seconds, self.until = seconds, time.monotonic() + seconds
        self.budgets: list[Budget] = []
        self.patches: list[Patch] = []
        self.meetings: list[Meeting] = []
        self.crossings: list[Meeting] = []  # at seams where nothing happens

    def budget(self) -> Budget:
        self.budgets.append(Budget(round(1000 * max(1.0, self.seconds / SECONDS)), self.until))
        return self.budgets[-1]

    def ask(self, question: Callable[[], Result], otherwise: Result) -> Result:
        """An answer, or a note of why there is none."""
        try:
            return question()
        except (Unsettled, UnknownFunction, OutOfRange) as reason:
            sentence = str(reason)
        except (NotImplementedError, PolynomialError, RecursionError) as reason:
            sentence = f"The algebra of the formula could not be worked out ({type(reason).__name__})."
        if sentence not in self.notes:
            self.notes.append(sentence)
        return otherwise

    def certificate(
        self, make: Callable[[], Subject], name: str, params: Mapping[str, Any], limit: Limit
    ) -> Certificate:
        subject = self.ask(make, None)
        hard = self.ask(limit, None)
        smallest = largest = lipschitz = Extremum(-math.inf, math.inf)
        order: float | None = None
        monotone: bool | None = None
        roots: tuple[Region, ...] | None = None
        distance: Extremum | None = None
        defined = ""
        if subject is not None:
            self.patches = self.ask(lambda: self._patches(subject), [])
            defined = "" if self.patches else domain(subject.pieces)
        if defined:
            self.notes = [
                f"A certificate is of a function that has a value for every x; this one is defined for {defined} only."
            ]
        if subject is not None and self.patches:
            self.meetings = self.ask(lambda: self._meetings(subject), [])
            met = len(self.meetings) == len(subject.pieces.seams) - len(subject.invisible)
            slopes = self.ask(self._slopes, None)
            order = self._smoothness() if met else None
            if slopes is not None:
                smallest, largest = (
                    self._extremum(slopes[0], "smallest slope"),
                    self._extremum(slopes[1], "largest slope"),
                )
                lipschitz = self._lipschitz(slopes, met)
                monotone = self._monotone(slopes[0], met)
            roots = self.ask(self._zeros, None) if met else None
            if hard is not None:
                distance = self.ask(lambda: self._distance(subject, hard[1]), None)
        return Certificate(
            name=name,
            params=dict(params),
            smallest_slope=smallest,
            largest_slope=largest,
            lipschitz=lipschitz,
            monotone=monotone,
            smoothness=order,
            zeros=roots,
            limit=None if hard is None else hard[0],
            distance=distance,
            open=tuple(self.notes),
            domain=defined,
            out_of_time=bool(self.notes) and any(not budget.spend() for budget in self.budgets),
        )

    def _patches(self, subject: Subject) -> list[Patch]:
        pieces = subject.pieces
        return patches(pieces.seams, pieces.parts, subject.implicit, self.budget(), subject.slopes)

    def _meetings(self, subject: Subject) -> list[Meeting]:
        meetings = []
        for left, right in itertools.pairwise(self.patches):
            if left.end in subject.invisible:
                self.crossings.append(Meeting(left.end, left.at_end(1, 0), HIGHEST_ORDER, True))
            else:
                meetings.append(meet(left, right, subject.value_at(left, right)))
        return meetings

    # -- slopes -----------------------------------------------------------------------------------------

    def _slopes(self) -> tuple[Peak, Peak]:
        """Infimum and supremum of the slope."""
        lows = [self._signed(patch, _search(patch, 1, -1, self.budget())) for patch in self.patches]
        highs = [_search(patch, 1, 1, self.budget()) for patch in self.patches]
        return highest([low.turned() for low in lows]).turned(), highest(highs)

    def _signed(self, patch: Patch, peak: Peak) -> Peak:
        """An infimum beside 0 is not below it where the slope is proved to be positive: rounding left it open."""
        at_zero = peak.lower < 0 <= peak.upper and peak.lower.is_finite()
        if at_zero and keeps_sign(patch.curve(1), patch.lo, patch.hi, self.budget()) == 1:
            return Peak(ZERO, peak.upper, peak.places, peak.attained)
        return peak

    def _extremum(self, peak: Peak, name: str) -> Extremum:
        if not peak.settled:
            lower, upper = float(peak.lower), float(peak.upper)
            known = f"between {lower:.6g} and {upper:.6g}, and no nearer"
            if math.isinf(lower) or math.isinf(upper):
                known = f"at most {upper:.6g}" if math.isinf(lower) else f"at least {lower:.6g}"
            settled = "not settled" if math.isinf(lower) and math.isinf(upper) else f"proved to be {known}"
            self.notes.append(f"The {name} is {settled}.")
        return extremum(peak)

    def _lipschitz(self, slopes: tuple[Peak, Peak], met: bool) -> Extremum:
        jumps = [seam_enclosure(meeting.seam) for meeting in self.meetings if meeting.is_continuous is False]
        if jumps:
            return Extremum(math.inf, math.inf, tuple(Region(seam, seam) for seam in jumps), False)
        steepest = highest([slopes[0].turned(), slopes[1]])
        if met and all(meeting.is_continuous for meeting in self.meetings):
            return extremum(steepest)
        return extremum(Peak(steepest.lower, INFINITY, steepest.places, None))

    def _monotone(self, smallest: Peak, met: bool) -> bool | None:
        jumps = [jump for meeting in self.meetings for jump in meeting.jumps]
        if smallest.upper < 0 or any(jump.hi < 0 for jump in jumps):
            return False
        if smallest.lower >= 0 and met and all(jump.lo >= 0 for jump in jumps):
            return True
        self.notes.append("Whether the function never decreases is not settled.")
        return None

    # -- seams ------------------------------------------------------------------------------------------

    def _smoothness(self) -> float | None:
        order, doubtful = smoothness(self.meetings)
        if doubtful is not None:
            known = f"{doubtful.order} continuous derivatives" if doubtful.order >= 0 else "values that may differ"
            self.notes.append(f"The pieces meet at {doubtful.seam} with {known}; whether that is all is not settled.")
        return order

    # -- zeros ------------------------------------------------------------------------------------------

    def _zeros(self) -> tuple[Region, ...]:
        at_seams = {meeting.seam: meeting.is_zero for meeting in (*self.meetings, *self.crossings)}
        regions: list[Region] = []
        for patch in self.patches:
            start, end = seam_enclosure(patch.start), seam_enclosure(patch.end)
            if is_zero(patch.value) or (patch.is_constant and proves_zero(patch.value)):
                regions.append(Region(start, end, at_seams.get(patch.start, True), at_seams.get(patch.end, True)))
            elif patch.is_constant:
                if constant(patch.value).sign not in (1, -1):
                    raise Unsettled(f"It is not settled whether {patch.value} is 0.")
            else:
                inside = [place for place in zeros(patch, self.budget()) if not _is_end(patch, place)]
                regions += [region(patch, place) for place in inside]
            if at_seams.get(patch.end):
                regions.append(Region(end, end))
        return tidied(regions)

    # -- the hard limit ---------------------------------------------------------------------------------

    def _distance(self, subject: Subject, limit: Pieces) -> Extremum:
        seams, parts = merged(subject.pieces, limit)
        gaps = patches(seams, [ours - theirs for ours, theirs in parts], subject.implicit, self.budget())
        peaks = []
        for patch in gaps:
            peaks.append(_search(patch, 0, 1, self.budget()))
            peaks.append(_search(patch, 0, -1, self.budget()).turned())
        return self._extremum(highest(peaks), "distance to the hard limit")


def _search(patch: Patch, order: int, side: int, budget: Budget) -> Peak:
    return placed(patch, search(patch.curve(order), patch.lo, patch.hi, side, budget))


def _is_end(patch: Patch, place: Span) -> bool:
    return place.is_point and bool(place.lo == patch.lo or place.lo == patch.hi)


# -- the range of an expression on an interval, between proven ends ---------------------------------------


def prove_range(expr: Expr, low: Fraction | float, high: Fraction | float) -> tuple[Extremum, Extremum]:
    """Infimum and supremum of an expression in x on [low, high]; at a jump both one-sided limits count."""
    with working_precision():
        pieces = split_exact(stable(with_exact_numbers(expr)))
        first, last = _exact_end(low), _exact_end(high)
        lows, highs = [], []
        for part, start, end in zip(pieces.parts, [-oo, *pieces.seams], [*pieces.seams, oo], strict=True):
            start, end = (first if _order(start, first) < 0 else start), (last if _order(end, last) > 0 else end)
            if _order(start, end) < 0 or (low == high and _order(start, end) == 0):
                patch = smooth_patch(start, end, part, None, Budget())
                lows.append(_search(patch, 0, -1, Budget()))
                highs.append(_search(patch, 0, 1, Budget()))
        return extremum(highest([low.turned() for low in lows]).turned()), extremum(highest(highs))


def _exact_end(value: Fraction | float) -> Expr:
    if value in (float("inf"), float("-inf")):
        return oo if value > 0 else -oo
    exact = Fraction(value)
    return sympy.Rational(exact.numerator, exact.denominator)


def _order(first: Expr, second: Expr) -> int:
    """-1, 0 or 1 as one number is below, at or above another."""
    if first == second:
        return 0
    a, b = constant(first), constant(second)
    if a.hi < b.lo:
        return -1
    if a.lo > b.hi:
        return 1
    if proves_zero(first - second):
        return 0
    raise Unsettled(f"{first} and {second} are too near to be told apart.")

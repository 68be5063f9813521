"""Everything that is proved of a definition for exact parameters, put together as a certificate."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from sympy.polys.polyerrors import PolynomialError

from ...spec.pieces import Pieces
from .ball_algebra import proves_zero
from .ball_pieces import Patch, Unsettled, keeps_sign, merged, patches
from .ball_places import extremum, placed, region, seam_enclosure, tidied
from .ball_programs import UnknownFunction, constant
from .ball_seams import HIGHEST_ORDER, Meeting, meet, smoothness
from .ball_subjects import Subject
from .ball_zeros import is_zero, zeros
from .balls import INFINITY, ZERO, Span, working_precision
from .branch_and_bound import Budget, Peak, highest, search
from .certificate import Certificate, Extremum, Region

SECONDS = 20.0
"""How long a certificate may take before what is left stays open; functions of the zoo need a second or two."""

Result = TypeVar("Result")
Limit: TypeAlias = Callable[[], tuple[str, Pieces] | None]


def prove(
    make: Callable[[], Subject], name: str, params: Mapping[str, Any], limit: Limit = lambda: None
) -> Certificate:
    """The certificate of a subject; `limit` gives (words, pieces) of its hard limit, or None where it has none."""
    with working_precision():
        return _Proof().certificate(make, name, params, limit)


class _Proof:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.until = time.monotonic() + SECONDS
        self.patches: list[Patch] = []
        self.meetings: list[Meeting] = []
        self.crossings: list[Meeting] = []  # at seams where nothing happens

    def budget(self) -> Budget:
        return Budget(until=self.until)

    def ask(self, question: Callable[[], Result], otherwise: Result) -> Result:
        """An answer, or a note of why there is none."""
        try:
            return question()
        except (Unsettled, UnknownFunction) as reason:
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
        found: tuple[Region, ...] | None = None
        distance: Extremum | None = None
        if subject is not None:
            self.patches = self.ask(lambda: self._patches(subject), [])
        if subject is not None and self.patches:
            self.meetings = self.ask(lambda: self._meetings(subject), [])
            met = len(self.meetings) == len(subject.pieces.seams) - len(subject.invisible)
            slopes = self.ask(self._slopes, None)
            order = self._smoothness() if met else None
            if slopes is not None:
                smallest, largest = self._said(slopes[0], "smallest slope"), self._said(slopes[1], "largest slope")
                lipschitz = self._lipschitz(slopes, met)
                monotone = self._monotone(slopes[0], met)
            found = self.ask(self._zeros, None) if met else None
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
            zeros=found,
            limit=None if hard is None else hard[0],
            distance=distance,
            open=tuple(self.notes),
        )

    def _patches(self, subject: Subject) -> list[Patch]:
        pieces = subject.pieces
        return patches(pieces.seams, pieces.parts, subject.implicit, self.budget(), subject.slopes)

    def _meetings(self, subject: Subject) -> list[Meeting]:
        found = []
        for left, right in itertools.pairwise(self.patches):
            if left.end in subject.invisible:
                self.crossings.append(Meeting(left.end, left.at_end(1, 0), HIGHEST_ORDER, True))
            else:
                found.append(meet(left, right, subject.value_at(left, right)))
        return found

    # -- slopes -----------------------------------------------------------------------------------------

    def _slopes(self) -> tuple[Peak, Peak]:
        """Infimum and supremum of the slope."""
        lows = [self._signed(patch, _search(patch, 1, -1, self.budget())) for patch in self.patches]
        highs = [_search(patch, 1, 1, self.budget()) for patch in self.patches]
        return highest([one.turned() for one in lows]).turned(), highest(highs)

    def _signed(self, patch: Patch, peak: Peak) -> Peak:
        """An infimum beside 0 is not below it where the slope is proved to be positive: rounding left it open."""
        beside = peak.lower < 0 <= peak.upper and peak.lower.is_finite()
        if beside and keeps_sign(patch.curve(1), patch.lo, patch.hi, self.budget()) == 1:
            return Peak(ZERO, peak.upper, peak.places, peak.attained)
        return peak

    def _said(self, peak: Peak, name: str) -> Extremum:
        if not peak.settled:
            ends = f"{float(peak.lower):.6g} and {float(peak.upper):.6g}"
            self.notes.append(f"The {name} is proved to lie between {ends}, and no nearer.")
        return extremum(peak)

    def _lipschitz(self, slopes: tuple[Peak, Peak], met: bool) -> Extremum:
        jumps = [seam_enclosure(one.seam) for one in self.meetings if one.is_continuous is False]
        if jumps:
            return Extremum(math.inf, math.inf, tuple(Region(seam, seam) for seam in jumps), False)
        steepest = highest([slopes[0].turned(), slopes[1]])
        if met and all(one.is_continuous for one in self.meetings):
            return extremum(steepest)
        return extremum(Peak(steepest.lower, INFINITY, steepest.places, None))

    def _monotone(self, smallest: Peak, met: bool) -> bool | None:
        jumps = [jump for one in self.meetings for jump in one.jumps]
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
        at_seams = {one.seam: one.is_zero for one in (*self.meetings, *self.crossings)}
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
        return self._said(highest(peaks), "distance to the hard limit")


def _search(patch: Patch, order: int, side: int, budget: Budget) -> Peak:
    return placed(patch, search(patch.curve(order), patch.lo, patch.hi, side, budget))


def _is_end(patch: Patch, place: Span) -> bool:
    return place.is_point and bool(place.lo == patch.lo or place.lo == patch.hi)

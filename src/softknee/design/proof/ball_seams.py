"""How smoothly two patches meet: the first derivative that jumps, each equality proved by algebra."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...spec.algebra import Expr
from .ball_algebra import proves_zero
from .ball_pieces import Patch, Unsettled
from .ball_programs import constant
from .balls import NOTHING, Span

HIGHEST_ORDER = 24


@dataclass(frozen=True)
class Meeting:
    """Two patches meet at `seam`, where the function has the value `value`.

    order:   the number of continuous derivatives; -1 where the value jumps.
    settled: whether that is all, or at least that many.
    jumps:   how far it jumps before and after the seam.
    """

    seam: Expr
    value: Expr
    order: int
    settled: bool
    jumps: tuple[Span, Span] = (NOTHING, NOTHING)

    @property
    def is_continuous(self) -> bool | None:
        if self.order >= 0:
            return True
        return False if self.settled else None

    @property
    def is_zero(self) -> bool:
        """Whether the function is 0 at the seam."""
        if constant(self.value).sign in (1, -1):
            return False
        if not proves_zero(self.value):
            raise Unsettled(f"It is not settled whether the function is 0 at the seam {self.seam}.")
        return True


def meet(left: Patch, right: Patch, value: Expr) -> Meeting:
    """The meeting of two neighbours, the function having that exact value at their seam."""
    jumps = (_gap(value, left.at_end(1, 0)), -_gap(value, right.at_end(-1, 0)))
    if any(jump.sign != 0 for jump in jumps):
        certain = any(jump.sign in (1, -1) for jump in jumps)
        return Meeting(left.end, value, -1, certain, jumps)
    for order in range(1, HIGHEST_ORDER):
        gap = right.end_value(-1, order) - left.end_value(1, order)
        if gap.sign in (1, -1):
            return Meeting(left.end, value, order - 1, True)
        if not proves_zero(right.at_end(-1, order) - left.at_end(1, order)):
            return Meeting(left.end, value, order - 1, False)
    return Meeting(left.end, value, HIGHEST_ORDER - 1, False)


def _gap(one: Expr, other: Expr) -> Span:
    """The difference of two exact numbers: 0 where algebra shows it."""
    gap = constant(one) - constant(other)
    return NOTHING if gap.sign is None and proves_zero(one - other) else gap


def smoothness(meetings: list[Meeting]) -> tuple[float | None, Meeting | None]:
    """The number of continuous derivatives of the whole, and the meeting that leaves it open where one does."""
    if not meetings:
        return math.inf, None
    least = min((one.order for one in meetings if one.settled), default=math.inf)
    doubtful = [one for one in meetings if not one.settled and one.order < least]
    return (None, doubtful[0]) if doubtful else (least, None)

"""Numbers as text: as many digits as their intervals bear, the same in a whole column, with a true minus sign."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ...measure.estimate import Estimate, Score

DASH = "–"
_DECADES = 100.0  # the ratio from which on no number of decimals suits all of a column


def minus(text: str) -> str:
    return text.replace("-", "−")


def plain(value: float) -> str:
    """A parameter's value: 0.5, 2, 1e−05."""
    return minus(f"{value:.4g}")


def few_epochs(epochs: Sequence[int]) -> bool:
    """Whether there is room for a number at each: an axis would else have numbers between them, too."""
    return max(epochs, default=0) - min(epochs, default=0) <= 8


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade between the two, or the decades where there are many; none if fewer than two lie there.

    An axis of so narrow a range is as good as a linear one, which finds numbers for itself.

    >>> log_ticks(0.3, 2.5), log_ticks(0.44, 0.49)
    ([0.5, 1.0, 2.0], [])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    found = [tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high]
    return found if len(found) > 1 else []


def reach(found: Score | Estimate) -> float | None:
    """How far the interval goes from the value, to the side where nothing bounds it."""
    return None if found.interval is None else max(found.value - found.interval[0], found.interval[1] - found.value)


def decimals(found: Iterable[Score | Estimate], *, scale: float = 1.0) -> int:
    """Digits behind the point for a column: two that count in its typical interval; of none, three in the values."""
    shown = [one for one in found if one is not None]
    widths = sorted(scale * wide for one in shown if (wide := reach(one)))
    if widths:
        return place_of(widths[len(widths) // 2])
    sizes = sorted(abs(scale * one.value) for one in shown if one.value)
    return place_of(sizes[len(sizes) // 2], digits=3) if sizes else 2


def column_places(found: Iterable[Score | Estimate], *, scale: float = 1.0, logarithmic: bool = False) -> int | None:
    """`decimals`, or None for powers of ten: of a quantity that is seen by its order where a column has several."""
    shown = list(found)
    sizes = [abs(one.value) for one in shown if one.value]
    if logarithmic and sizes and (max(sizes) > _DECADES * min(sizes) or max(sizes) < 1 / _DECADES):
        return None
    return decimals(shown, scale=scale)


def place_of(size: float, *, digits: int = 2) -> int:
    """How many decimals show this size with that many digits: 0.034 with two has three."""
    return min(8, max(0, digits - 1 - math.floor(math.log10(size))))


def fixed(value: float, places: int | None, *, signed: bool = False) -> str:
    """A number with that many decimals; what rounds to zero has no sign. None: as a power of ten, 1.0e−02."""
    if places is None:
        return minus(f"{value:+.1e}" if signed else f"{value:.1e}")
    text = f"{value:.{places}f}"
    if float(text) == 0:
        return text.lstrip("-")
    return minus(f"{value:+.{places}f}" if signed else text)


def with_reach(found: Score | Estimate | None, places: int | None, *, scale: float = 1.0) -> str:
    """`97.31 ± 0.22`, the 95 % interval being 0.22 to either side; a dash for None."""
    if found is None:
        return DASH
    wide = reach(found)
    value = fixed(scale * found.value, places)
    return value if wide is None else f"{value} ± {fixed(scale * wide, places)}"


def interval_words(interval: tuple[float, float] | None, places: int | None, *, scale: float = 1.0) -> str:
    """`[97.09, 97.53]`, or a dash."""
    if interval is None:
        return DASH
    return f"[{fixed(scale * interval[0], places)}, {fixed(scale * interval[1], places)}]"


def probability(p: float | None) -> str:
    """A p value: 0.032, < 0.0001, or a dash."""
    if p is None:
        return DASH
    if p < 1e-4:
        return "< 0.0001"
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def duration(seconds: float) -> str:
    """`48 s`, `3 min 5 s`, `2 h 4 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    every = list(words)
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}" if every else ""

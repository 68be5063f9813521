"""What is fitted: a definition, a Python function, or samples; each gives rows to compare on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import InputError, ParameterError
from ...registry import get
from ...spec import Activation, SoftTable
from ...spec.algebra import sympy
from ...spec.precision import to_digits
from ..concrete import concrete
from ..quadrature import _rule
from ..soft_table_fit import curve_of, even, on_panels, values_of

_NODES = 8
_LOOKS = 12  # places per panel at which the error is looked at
_SMALLEST_PANELS = 32


@dataclass(frozen=True, eq=False)
class Rows:
    """Where SQUAF and its target are compared: places with masses for the mean square, places for the largest error."""

    x: Tensor
    y: Tensor
    mass: Tensor
    look_x: Tensor
    look_y: Tensor


@dataclass(frozen=True, eq=False)
class Target:
    """A function on [low, high], or samples of one.

    curve:     the function; of samples, their linear interpolation, from which a table starts.
    seams:     where it may bend.
    lipschitz: a Lipschitz constant, where one is known.
    samples:   (x, y) inside [low, high], or None for a function.
    """

    name: str
    low: float
    high: float
    curve: Callable[[Any], Any]
    seams: tuple[float, ...]
    lipschitz: float | None
    samples: tuple[Tensor, Tensor] | None = None

    @property
    def reach(self) -> float:
        return max(abs(self.low), abs(self.high))

    def edges(self, *, k: int, q: float) -> list[float]:
        """Where SQUAF or the target may bend or jump, and enough between for a target that is not that simple."""
        halves = [q * i / 2 for i in range(-2 * k - 1, 2 * k + 2)]
        evenly = [self.low + (self.high - self.low) * i / _SMALLEST_PANELS for i in range(_SMALLEST_PANELS)]
        inner = (edge for edge in [*halves, *self.seams, *evenly] if self.low < edge < self.high)
        return sorted({self.low, self.high, *inner})

    def rows(self, *, k: int, q: float) -> Rows:
        if self.samples is not None:
            x, y = self.samples
            return Rows(x, y, torch.full_like(x, 1 / len(x)), x, y)
        edges = self.edges(k=k, q=q)
        x, mass = on_panels(edges, *_rule(_NODES))
        look_x, _ = on_panels(edges, *even(_LOOKS))
        values = self.values(torch.cat([x, look_x]))
        return Rows(x, values[: len(x)], mass / (self.high - self.low), look_x, values[len(x) :])

    def values(self, at: Tensor) -> Tensor:
        return values_of(self.curve, at, title="fit")


def read_target(target: Any, *, low: float | None, high: float | None, lipschitz: float | None) -> Target:
    """What the arguments of `fit` mean, or a sentence that says what they should be."""
    if isinstance(target, tuple | list):
        return _of_samples(target, low=low, high=high)
    if low is None or high is None:
        raise ParameterError("fit: low and high say where the function is to be fitted; give both.")
    low, high = _ends(low, high)
    if lipschitz is not None and not 0 <= lipschitz < math.inf:
        raise ParameterError(f"fit: lipschitz must be a finite number of at least 0, and {lipschitz!r} was given.")
    curve, seams = curve_of(target, title="fit")
    name = target if isinstance(target, str) else getattr(target, "name", None) or "the function"
    return Target(name, low, high, curve, seams, _claimed(target) if lipschitz is None else float(lipschitz))


def _ends(low: Any, high: Any) -> tuple[float, float]:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (low, high))
    if not numbers or not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(f"fit: low must be below high, both finite numbers, and {low!r}, {high!r} were given.")
    return float(low), float(high)


def _of_samples(target: Any, *, low: float | None, high: float | None) -> Target:
    try:
        x, y = (torch.as_tensor(one, dtype=torch.float64).detach().cpu().reshape(-1) for one in target)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError("fit: samples are a pair (x, y) of tensors or lists of numbers.") from error
    if len(x) != len(y) or len(x) < 2:
        raise InputError(f"fit: samples need two or more x and as many y, and {len(x)} and {len(y)} were given.")
    for name, values in (("x", x), ("y", y)):
        if len(lost := (~values.isfinite()).nonzero()):
            first = int(lost[0])
            raise InputError(
                f"fit: samples must be finite, and {len(lost)} of {len(values)} {name} are not, the first of them "
                f"{name}[{first}], which is {float(values[first]):g}; leave these samples out."
            )
    low, high = _ends(float(x.min()) if low is None else low, float(x.max()) if high is None else high)
    inside = (x >= low) & (x <= high)
    if int(inside.sum()) < 2:
        raise InputError(f"fit: fewer than two samples lie in [{low:g}, {high:g}]; choose low and high around them.")
    order = x[inside].argsort(stable=True)
    x, y = x[inside][order], y[inside][order]

    def line(at: Tensor) -> Tensor:
        right = torch.searchsorted(x, at).clamp(1, len(x) - 1)
        gap = (x[right] - x[right - 1]).clamp(min=1e-300)
        share = ((at - x[right - 1]) / gap).clamp(0, 1)
        return y[right - 1] + share * (y[right] - y[right - 1])

    return Target("the samples", low, high, line, (), None, (x, y))


def _claimed(target: Any) -> float | None:
    """The Lipschitz constant that a definition claims, at the defaults of its parameters."""
    if not isinstance(target, str | Activation | SoftTable):
        return None
    found = concrete(target)
    definition = get(target) if isinstance(target, str) else target
    if not isinstance(definition, Activation) or definition.claims is None:
        return None
    values = {definition.param(name).symbol: value for name, value in found.params.items()}
    claimed = sympy.sympify(definition.claims.lipschitz).subs(values)
    constant = float(to_digits(claimed, 17)) if claimed.is_number else math.inf
    return constant if math.isfinite(constant) else None

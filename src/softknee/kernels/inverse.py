r"""The inverse of a definition, x from y = f(x): what `save="output"` computes before the slopes.

A definition qualifies where f never falls, or falls to one minimum and rises from there; then one bit says on which
side of the minimum x lies. On each side the line is cut at the seams of the formula (`spec/pieces.py`):

    flat pieces                     any point inside: their slopes are those of the piece
    lines, parabolas, fractions,    solved by algebra, for parameters of any value (`solve`)
    one primitive of a line
    everything else                 a rational first guess and a fixed number of Newton steps (`Branch`)

A branch begins at an anchor A (a seam, a minimum, any point) where f(x) - f(A) grows like t^n, t = |x - A|, and is
guessed from s = h^(1/n) as t = s P(s)/Q(s). The height h is |y - f(A)|, or log |(f(A) - L)/(y - L)| towards a limit L
at infinity. P and Q are fitted when the inverse is made, and the number of steps is the least that recovers the slope
at points all over the branch to the digits of the type. Numbers are those of a function of width 1: f(x; p) =
w f(x/w; 1) for a parameter that scales it (w = p or 1/p); other parameters of such a function must be fixed.

**Error.** y is rounded to eps relative, so that x is known up to the points where f is within eps |y| of y, and the
slope up to its change there: |f''/f'| eps |y|, and at a minimum m with f'' = c at most sqrt(2 c eps |m|).
"""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import DefinitionError, ParameterError
from ..registry import service
from ..spec import Activation, Expm1, Log1p, Sigmoid, Softplus, Tanh, x
from ..spec.activation import Derived, once_per_definition
from ..spec.algebra import Abs, Expr, Max, Min, Piecewise, sympy
from ..spec.emit import PARAMETER, Dialect, Emitter, Local
from ..spec.pieces import split
from ..spec.printers import TORCH, TRITON, body
from . import torch_math
from .generate import load, torch_function


def _element(name: str, **assumptions: bool) -> Local:
    """A symbol that differs from element to element."""
    symbol = Local(name, **assumptions)
    symbol.own = True
    return symbol


Y, SIDE, _GUESS = _element("y", real=True), _element("side"), _element("guess", real=True)
_TINY = sympy.Float(1e-37)
# Half a unit in the last place, relative to the number.
ROUNDING = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_SLOPE_ERROR = {torch.float64: 1e-12, torch.float32: 3e-8, torch.float16: 2e-4, torch.bfloat16: 5e-4}
_MOST_STEPS = 12
_FARTHEST = 3e38  # a float32 number


# -- by algebra ---------------------------------------------------------------------------------------------


def solve(part: Expr, value: Expr) -> Expr | None:
    """The x with part(x) = value, where algebra finds one that is computed without loss; else None.

    >>> solve(2 * sympy.exp(x) + 1, sympy.Symbol("a"))
    log(Max(0, a/2 - 1/2))
    """
    if part == x:
        return value
    if part.is_Add:
        rest, own = part.as_independent(x, as_Add=True)
        if rest != 0 and not own.is_Add:
            return solve(own, value - rest)
    if part.is_Mul:
        factor, own = part.as_independent(x, as_Add=False)
        if factor != 1:
            return solve(own, value / factor)
    for kind, inverse in _INVERSES.items():
        if isinstance(part, kind):
            return solve(part.args[0], inverse(value))
    return _linear_fraction(part, value) or _linear_and_root(part, value)


def _softplus(z: Expr) -> Expr:
    z = Max(z, 0)
    return z + sympy.log(-Expm1(-z))


def _sigmoid(z: Expr) -> Expr:
    z = Min(Max(z, 0), 1)
    return sympy.log(z) - Log1p(-z)


def _tanh(z: Expr) -> Expr:
    z = Min(Max(z, -1), 1)
    return (Log1p(z) - Log1p(-z)) / 2


# Rounding can bring a value to the end of a primitive's range, and a little beyond.
_INVERSES: dict[type, Callable[[Expr], Expr]] = {
    Expm1: lambda z: Log1p(Max(z, -1)),
    Log1p: Expm1,
    Softplus: _softplus,
    Sigmoid: _sigmoid,
    Tanh: _tanh,
    sympy.exp: lambda z: sympy.log(Max(z, 0)),
    sympy.log: sympy.exp,
}


def _linear_fraction(part: Expr, value: Expr) -> Expr | None:
    above, below = sympy.fraction(sympy.together(part))
    if not (above.is_polynomial(x) and below.is_polynomial(x)):
        return None
    if max(sympy.degree(above, x), sympy.degree(below, x)) != 1:
        return None
    a, b = above.coeff(x, 1), above.subs(x, 0)
    c, d = below.coeff(x, 1), below.subs(x, 0)
    return (d * value - b) / (a - c * value)


def _linear_and_root(part: Expr, value: Expr) -> Expr | None:
    """x + sqrt(x^2 + d^2) and the like: squared, an equation in which x^2 cancels."""
    roots = [power for power in part.atoms(sympy.Pow) if power.exp == sympy.Rational(1, 2) and power.has(x)]
    if len(roots) != 1:
        return None
    unknown = sympy.Dummy(real=True)
    expanded = sympy.expand(part.subs(roots[0], unknown))
    factor, rest = expanded.coeff(unknown, 1), expanded.coeff(unknown, 0)
    if factor.has(x) or expanded.has(unknown**2):
        return None
    equation = sympy.expand((value - rest) ** 2 - factor**2 * roots[0].base)
    if not equation.is_polynomial(x) or sympy.degree(equation, x) != 1:
        return None
    return sympy.expand(-equation.coeff(x, 0) / equation.coeff(x, 1))


def _solve_parabola(part: Expr, anchor: Expr, direction: int, slack: Expr) -> Expr:
    """On one side of its beginning: t = 2h/(k + sqrt(k^2 + 4ah)), in which nothing cancels."""
    a = sympy.Poly(part, x).all_coeffs()[0]
    height = sympy.cancel(part.subs(x, anchor))
    slope = sympy.cancel(sympy.diff(part, x).subs(x, anchor)) * direction
    rise = Max(Y - height, 0)
    if slope == 0:
        t = sympy.sqrt(Max(rise, slack * Abs(height) / 4) / a)
    else:
        t = 2 * rise / Max(slope + sympy.sqrt(Max(slope**2 + 4 * a * rise, 0)), _TINY)
    return anchor + direction * t


# -- by Newton's steps --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Branch:
    """f between an anchor and the next seam, limit or infinity, in units of its width.

    x = anchor + direction t, and y moves by `rise` (1 or -1) as t grows. `end` is the last height of the fit: beyond it
    t goes on as a line of slope `slope` from `reach`, or not at all towards a limit.
    """

    anchor: float
    height: float
    direction: int
    rise: int
    order: int
    curvature: float
    limit: float | None
    above: tuple[float, ...]
    below: tuple[float, ...]
    end: float
    reach: float
    slope: float
    far: float

    def guess(self, above: str, below: str, dialect: Dialect) -> list[str]:
        """The statements that guess direction t = above/below from `scaled`, y in units of the width."""
        where, limit, sign = dialect.where, self.limit, float(self.direction)
        if limit is None:
            lines = [
                f"h = maximum({float(self.rise)!r} * (scaled - {self.height!r}), 0.0)",
                f"low = minimum(h, {self.end!r})",
            ]
        else:
            gap, toward = abs(self.height - limit), 1.0 if self.height > limit else -1.0
            smallest = gap * math.exp(-self.end)
            lines = [
                f"low = {math.log(gap)!r} - log(maximum({toward!r} * (scaled - {limit!r}), {smallest!r}))",
                "low = maximum(low, 0.0)",
            ]
        root = {1: "low", 2: "sqrt(low)"}.get(self.order, f"exp({1 / self.order!r} * log(maximum(low, 1e-37)))")
        lines += [
            f"s = {root}",
            f"{above} = s * {_horner([sign * c for c in self.above])}",
            f"{below} = {_horner((1.0, *self.below))}",
        ]
        if limit is None and math.isinf(self.far):
            line = f"{sign * self.reach!r} + (h - {self.end!r}) * {sign * self.slope!r}"
            lines += [
                f"{above} = {where}(h > {self.end!r}, {line}, {above})",
                f"{below} = {where}(h > {self.end!r}, 1.0, {below})",
            ]
        return lines

    def ends(self, rounding: float) -> tuple[float, float]:
        """The least and the largest x."""
        least = 0.5 * (rounding * abs(self.height) / self.curvature) ** (1 / self.order) if self.order > 1 else 0.0
        low, high = sorted([self.anchor + self.direction * least, self.far])
        return max(low, -_FARTHEST), min(high, _FARTHEST)


def _horner(coefficients: Sequence[float]) -> str:
    text = repr(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        text = f"({c!r} + s * {text})"
    return text


class Curve:
    """A definition at some numbers, in float64 on the CPU: values, slopes, and how it leaves a point."""

    def __init__(self, act: Activation, values: Mapping[str, float]) -> None:
        self.function = torch_function(act, (), ("x",))
        self.params = [_numbers(values[p.name]) for p in act.params]

    @torch.no_grad()
    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = self.function(z, *self.params)
        return value.expand_as(z), slope.expand_as(z)

    def value(self, z: float) -> float:
        return self(_numbers(z))[0].item()

    def slope(self, z: float) -> float:
        return self(_numbers(z))[1].item()

    def signs(self, low: float, high: float) -> list[int]:
        """The signs of the slope between two seams, each change once."""
        reach = _geometric(1e-3, 300, 1500)
        if math.isinf(low) and math.isinf(high):
            z = torch.cat([-reach.flip(0), reach])
        elif math.isinf(low):
            z = high - reach.flip(0) * max(1.0, abs(high))
        elif math.isinf(high):
            z = low + reach * max(1.0, abs(low))
        else:
            z = _linear(low, high, 1003)[1:-1]
        slope = self(z)[1]
        return slope[slope.abs() > 1e-14].sign().unique_consecutive().int().tolist()

    def turn(self) -> float:
        """Where the slope changes from minus to plus."""
        z = _linear(-30, 30, 60001)
        slope = self(z)[1]
        change = ((slope[:-1] < 0) & (slope[1:] >= 0)).nonzero().flatten().tolist()
        if len(change) != 1:
            raise _Refusal("the minimum of this one was not found between -30 and 30")
        low, high = z[change[0]].item(), z[change[0] + 1].item()
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if self.slope(middle) < 0 else (low, middle)
        return (low + high) / 2

    def order(self, z: float, other: float) -> tuple[int, float]:
        """(n, c) where f moves away from its value at z like c t^n, t the way towards the other end.

        n is 0 at infinity, and where f is flatter than every power up to the sixth.
        """
        if math.isinf(z):
            return 0, 0.0
        reach = math.copysign(min(1.0, abs(other - z)), other - z)
        height, *moved = self(z + reach * _numbers(0.0, 5e-4, 1e-3))[0].tolist()
        small, large = (abs(value - height) for value in moved)
        power = math.log2(large / small) if small > 0 else 0.0
        if not 0.95 <= power <= 6.05 or abs(power - round(power)) > 0.05:
            return 0, 0.0
        return round(power), large / abs(1e-3 * reach) ** round(power)

    def tail(self, anchor: float, direction: int) -> tuple[float, float | None]:
        """How far to fit towards infinity, and the limit there: None where the function grows without end."""
        near, limit = (self.value(anchor + direction * far) for far in (1e5, 1e8))
        if abs(limit - near) > 1 or not math.isfinite(limit):
            # From where it is a line, it goes on as one.
            reach = _geometric(1, 64, 25)
            slope, last = self(anchor + direction * reach)[1], self.slope(anchor + direction * 1e4)
            straight = reach[(slope - last).abs() <= 1e-5 * abs(last)]
            return straight[0].item() if len(straight) else 64.0, None
        reach, least = _geometric(1, 1e4, 100), 1e-36 * max(1.0, abs(limit) * 1e20)
        alive = reach[(self(anchor + direction * reach)[0] - limit).abs() > least]
        return alive[-1].item() if len(alive) else 1.0, limit


def _numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device="cpu")


def _geometric(first: float, last: float, count: int) -> Tensor:
    return torch.logspace(math.log10(first), math.log10(last), count, dtype=torch.float64, device="cpu")


def _linear(first: float, last: float, count: int) -> Tensor:
    return torch.linspace(first, last, count, dtype=torch.float64, device="cpu")


def _fit(f: Curve, anchor: float, far: float) -> Branch | None:
    """The branch from the anchor to the far end (which may be infinite); None where there is none."""
    direction = 1 if far > anchor else -1
    order, curvature = f.order(anchor, far)
    if order == 0:
        return None
    height, reach, limit = f.value(anchor), abs(far - anchor), None
    if math.isinf(reach):
        reach, limit = f.tail(anchor, direction)
    elif f.order(far, anchor)[0] == 0:
        limit = f.value(far)
    t = torch.cat([_geometric(1e-4, 1, 200), _linear(0.005, 1, 400)]).unique() * reach
    value, slope = f(anchor + direction * t)
    rise = 1 if value[-1] > height else -1
    h = rise * (value - height) if limit is None else ((height - limit) / (value - limit)).abs().log()
    good = h.isfinite() & (h > 0) & (h < 85)
    t, h, slope = t[good], h[good], slope[good]
    if len(t) < 50:
        return None
    s = h ** (1 / order)
    above, below = _rational(s, t / s)
    return Branch(
        anchor=anchor,
        height=height,
        direction=direction,
        rise=rise,
        order=order,
        curvature=curvature,
        limit=limit,
        above=above,
        below=below,
        end=h[-1].item(),
        reach=t[-1].item(),
        slope=1 / slope[-1].abs().clamp(min=1e-30).item(),
        far=far,
    )


def _rational(s: Tensor, ratio: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The coefficients of P, and of Q behind its 1, with P/Q nearest to the ratio: least squares, weighted again."""
    powers, smallest = s[:, None] ** torch.arange(6, device="cpu"), math.inf
    best: tuple[Tensor, Tensor] = ratio.mean()[None], ratio.new_zeros(1)
    for m, k in ((5, 4), (4, 3), (3, 2), (6, 1)):
        weight = 1 / ratio
        for _ in range(12):
            left = torch.cat([powers[:, :m], -ratio[:, None] * powers[:, 1 : k + 1]], dim=1) * weight[:, None]
            size = left.norm(dim=0)
            solution = torch.linalg.lstsq(left / size, (ratio * weight)[:, None], driver="gelsd").solution[:, 0] / size
            q = 1 + powers[:, 1 : k + 1] @ solution[m:]
            error = (powers[:, :m] @ solution[:m] / q / ratio - 1).abs().max().item()
            if bool((q > 0).all()) and error < smallest:
                best, smallest = (solution[:m], solution[m:]), error
            weight = 1 / (ratio * q.abs().clamp(min=1e-3))
    # Ten digits: what a library for least squares leaves in the last ones differs with its threads.
    above, below = (tuple(float(f"{c:.10g}") for c in side.tolist()) for side in best)
    return above, below


# -- the inverse of a definition ----------------------------------------------------------------------------


# Every inverse alive, by a string of its own: what operators can carry.
_by_key: weakref.WeakValueDictionary[str, Inverse] = weakref.WeakValueDictionary()
_count = itertools.count(1)


def inverse_by_key(key: str) -> Inverse:
    """The inverse with that key."""
    return _by_key[key]


@dataclass(frozen=True, eq=False)
class Inverse:
    """x from y and, where there is a minimum, from the side.

    place:    where the minimum is, in the parameters; None for a function that never falls.
    width:    what scales the branches.
    branches: the pieces that are solved by steps.
    select:   an expression that has, for each piece, what a function makes of its branch (or its x, where algebra finds
              it), given the rounding of y.
    steps:    how many steps, per dtype.
    """

    act: Activation
    place: Expr | None
    width: Expr
    branches: tuple[Branch, ...]
    select: Callable[[Callable[[Branch | Expr], Expr], float], Expr]
    steps: Mapping[torch.dtype, int] = field(default_factory=dict)
    key: str = field(init=False)
    derived: Derived = field(default_factory=Derived, init=False, repr=False)

    def __post_init__(self) -> None:
        key = f"{self.act.key}~{next(_count)}"
        object.__setattr__(self, "key", key)
        _by_key[key] = self

    @property
    def is_closed(self) -> bool:
        return not self.branches

    def source(self, dialect: Dialect, dtype: torch.dtype) -> str:
        """The text of `invert(y, side, *parameters)`, and of what it calls."""
        act, rounding = self.act, ROUNDING[dtype]
        params = [PARAMETER + p.name for p in act.params]
        decorator = "@triton.jit\n" if dialect is TRITON else ""
        text, lines = "", ["x = y"]
        if self.branches:
            code = body(act, [(), ("x",)], dialect)
            helper = [f"def value_and_slope({', '.join(['x', *params])}):", *(f"    {line}" for line in code.lines)]
            helper.append(f"    return {', '.join(code.results)}")
            if dialect is TORCH:  # inside, where torch.compile finds it
                lines += helper
            else:
                text = "\n".join(["@triton.jit", *helper, "\n\n"])
            lines += self._steps(dialect, dtype, "".join(f", {p}" for p in params))
        result = _emitted(lines, dialect, self.select(lambda p: _GUESS if isinstance(p, Branch) else p, rounding), "t")
        arguments = ["y", "side", *params]
        if dialect is TORCH:
            arguments.append(f"steps={self.steps.get(dtype, 0)}")
        text += f"{decorator}def invert({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in lines)
        return text + f"    return {dialect.where}(y != y, y, {result})\n\n\n"

    def _steps(self, dialect: Dialect, dtype: torch.dtype, params: str) -> list[str]:
        """A guess for each branch, then Newton's steps from the one that y belongs to."""
        rounding, where = ROUNDING[dtype], dialect.where
        lines: list[str] = []
        for name, expr in (("width", self.width), ("rate", 1 / self.width)):
            lines.append(f"{name} = {_emitted(lines, dialect, expr, 'w')}")
        lines.append("scaled = y * rate")
        names = [[_element(f"{name}{i}", real=True) for i in range(len(self.branches))] for name in ("above", "below")]
        for branch, above, below in zip(self.branches, *names, strict=True):
            lines += branch.guess(above.name, below.name, dialect)
        first, places = self.branches[0], {branch: i for i, branch in enumerate(self.branches)}

        def constant(number: Callable[[Branch], float], prefix: str) -> str:
            """A number of the branch, for each element."""
            if len({number(branch) for branch in self.branches}) == 1:
                return repr(number(first))
            chosen = self.select(lambda p: sympy.Float(number(p if isinstance(p, Branch) else first)), rounding)
            return _emitted(lines, dialect, chosen, prefix)

        above, below = (
            _emitted(lines, dialect, self.select(lambda p, n=n: n[places.get(p, 0)], rounding), "g") for n in names
        )
        ratio = f"{above} * reciprocal({below})" if dialect is TRITON else f"{above} / {below}"
        lines.append(f"guess = ({constant(lambda branch: branch.anchor, 'a')} + {ratio}) * width")
        lines += [
            f"{end} = {constant(lambda branch, i=i: branch.ends(rounding)[i], end)} * width"
            for i, end in enumerate(("least", "most"))
        ]
        lines.append("guess = minimum(maximum(guess, least), most)")
        if dialect is TRITON and not self.steps.get(dtype):
            return lines
        above = below = ""
        tails = [branch for branch in self.branches if branch.limit is not None]
        if tails:
            # As for a logarithm: the step of an exponential ends at its root from wherever it began.
            lines.append(f"limit = {constant(lambda b: b.limit or 0.0, 'l')} * width")
            above, below = "2.0 * (f - limit)", "(y + f - 2.0 * limit)"
            if len(tails) < len(self.branches):
                lines.append(f"tail = {constant(lambda b: float(b.limit is not None), 'k')} > 0.5")
                above, below = f"{where}(tail, {above}, 1.0)", f"{where}(tail, {below}, 1.0)"
            above, below = f" * {above}", f" * {below}"
        count = f"tl.static_range({self.steps.get(dtype, 0)})" if dialect is TRITON else "range(steps)"
        return [
            *lines,
            f"for _ in {count}:",
            f"    f, slope = value_and_slope(guess{params})",
            f"    step = (y - f){above} / (slope{below})",
            f"    guess = guess + {where}(absolute(step) <= {_FARTHEST!r}, step, 0.0)",
            "    guess = minimum(maximum(guess, least), most)",
        ]

    def torch(self, dtype: torch.dtype) -> Callable[..., Tensor]:
        """`invert` in torch operations, for y of that type, given in the working type."""
        return _torch_function(self.act, self, dtype)

    def place_text(self, dialect: Dialect) -> str:
        """The place of the minimum as an expression of the parameters."""
        assert self.place is not None
        emitter = Emitter(dialect, [self.place], prefix="m")
        assert not emitter.lines
        return emitter.names[0]

    def place_function(self) -> Callable[..., Any]:
        """The place of the minimum from the parameters, in torch operations."""
        return _place_function(self.act, self)


@once_per_definition
def _torch_function(act: Activation, inverse: Inverse, dtype: torch.dtype) -> Callable[..., Tensor]:
    label = f"{inverse.key} inverse {dtype}"
    return load(inverse.source(TORCH, dtype), label, vars(torch_math), "invert", torch_math.__name__)


@once_per_definition
def _place_function(act: Activation, inverse: Inverse) -> Callable[..., Any]:
    names = ", ".join(PARAMETER + p.name for p in act.params)
    text = f"def place({names}):\n    return {inverse.place_text(TORCH)}\n"
    return load(text, f"{inverse.key} place", vars(torch_math), "place", torch_math.__name__)


def _emitted(lines: list[str], dialect: Dialect, expr: Expr, prefix: str) -> str:
    """The name of an expression, whose statements are added to the lines."""
    emitter = Emitter(dialect, [expr], prefix=f"{prefix}{len(lines)}_")
    lines += emitter.lines
    return emitter.names[0]


class _Refusal(Exception):
    """Why a definition has no inverse; the sentence is completed by the caller."""


def inverse_of(act: Activation, learned: Sequence[str] = (), fixed: Mapping[str, float] | None = None) -> Inverse:
    """The inverse of a definition whose parameters are learned, or fixed at these values.

    ParameterError says why there is none, and what to do instead.
    """
    fixed = {p.name: p.default for p in act.params if p.name not in learned} | dict(fixed or {})
    # One that is right for all widths need not be made again when a width is set.
    wide = {p.name for p in act.params if p.symbol.is_positive}
    others = tuple((name, value) for name, value in fixed.items() if name not in wide)
    try:
        return _inverse(act, tuple(p.name for p in act.params if p.name not in dict(others)), others)
    except ParameterError:
        if len(others) == len(fixed):
            raise
        return _inverse(act, tuple(learned), tuple(fixed.items()))


@once_per_definition
def _inverse(act: Activation, free: tuple[str, ...], fixed: tuple[tuple[str, float], ...]) -> Inverse:
    """The inverse for these values of some parameters and any values of the free ones."""
    values = {p.name: p.default for p in act.params} | dict(fixed)
    try:
        return _Builder(act, free, values).build()
    except (_Refusal, DefinitionError) as reason:
        text = str(reason).rstrip(".")
        raise ParameterError(
            f"{act.name}: save='output' needs a function whose slope is known from its output, and {text}. Use "
            "save='input', which is the default."
        ) from None


Span = tuple[Expr, Expr, Expr]
"""Where a piece begins and ends (which may be infinite) on the way of rising values, and its expression."""


class _Builder:
    """Makes the inverse of a definition at these values, and at any values of the free parameters."""

    def __init__(self, act: Activation, free: tuple[str, ...], values: dict[str, float]) -> None:
        self.act, self.free, self.values = act, free, values
        self.branches: list[Branch] = []
        if act.implicit is not None:
            raise _Refusal("this one is given by an equation that is solved for its value")
        try:
            self.pieces = split(act.formula)
        except DefinitionError:  # parameters decide the order of its seams
            fixed = {p.symbol: sympy.Float(values[p.name], 20) for p in act.params if p.name not in free}
            self.pieces = split(act.formula.subs(fixed))

    def at(self, expr: Expr, values: Mapping[str, float]) -> float:
        return float(expr.subs({p.symbol: values[p.name] for p in self.act.params}))

    def build(self) -> Inverse:
        f, ends = Curve(self.act, self.values), [-sympy.oo, *self.pieces.seams, sympy.oo]
        spans = list(zip(ends, ends[1:], self.pieces.parts, strict=False))
        signs: list[tuple[int, int]] = []  # of the slope, with the span where it begins
        for index, (low, high, _) in enumerate(spans):
            for sign in f.signs(self.at(low, self.values), self.at(high, self.values)):
                if not signs or signs[-1][0] != sign:
                    signs.append((sign, index))
        shape = [sign for sign, _ in signs]
        if shape == [1]:
            place, left, right = None, [], spans
        elif shape == [-1, 1]:
            place, left, right = self._minimum(spans, signs[1][1])
        else:
            turns = "turns more than once: one output belongs to more than two inputs"
            raise _Refusal(f"this one {turns if 1 in shape else 'never rises'}")
        self._prove(place)
        above = self._side(right, 1)
        below = self._side([(high, low, part) for low, high, part in reversed(left)], -1) if left else above

        def select(payload: Callable[[Branch | Expr], Expr], rounding: float) -> Expr:
            sides = above(payload, rounding), below(payload, rounding)
            return sides[0] if sides[0] == sides[1] else Piecewise((sides[0], SIDE), (sides[1], True), evaluate=False)

        width = self.scale[0] if self.branches else sympy.Integer(1)
        inverse = Inverse(self.act, place, width, tuple(self.branches), select)
        return self._with_steps(inverse) if self.branches else inverse

    # -- shape --------------------------------------------------------------------------------------------

    def _minimum(self, spans: list[Span], index: int) -> tuple[Expr, list[Span], list[Span]]:
        """Where the slope changes its sign, and the spans on its two sides."""
        low, high, part = spans[index]
        signs = Curve(self.act, self.values).signs(self.at(low, self.values), self.at(high, self.values))
        if signs[0] > 0:  # at the seam
            return low, spans[:index], spans[index:]
        if part.is_polynomial(x) and sympy.degree(part, x) == 2:
            place = sympy.solve(sympy.diff(part, x), x)[0]
        else:
            width, unit = self.scale
            place = sympy.Float(Curve(self.act, unit).turn(), 17) * width
        return place, [*spans[:index], (low, place, part)], [(place, high, part), *spans[index + 1 :]]

    def _prove(self, place: Expr | None) -> None:
        """By what the definition claims, or else by a certificate of the function of width 1."""
        claims, f = self.act.claims, Curve(self.act, self.values)
        condition = claims.monotone if claims is not None else None
        if place is not None:
            for seam in (self.at(seam, self.values) for seam in self.pieces.seams):
                near = 1e-9 * max(1.0, abs(seam))
                if abs(f.value(seam + near) - f.value(seam - near)) > 1e-6 * max(1.0, abs(seam)):
                    raise _Refusal(f"this one jumps at {seam:g}")
            condition = claims is not None and claims.one_minimum
        if condition is None or condition is False:
            unit = self.scale[1]
            reason = service("prove_shape")(self.act, unit, None if place is None else self.at(place, unit))
            if reason:
                raise _Refusal(f"no certificate was found that this one has one ({reason})")
            return
        left = sympy.sympify(condition).subs(
            {p.symbol: self.values[p.name] for p in self.act.params if p.name not in self.free}
        )
        if left != sympy.true:
            names = ", ".join(sorted(str(symbol) for symbol in left.free_symbols))
            raise _Refusal(
                f"this one falls for some values of {names} (it never does where {condition}); fix {names}"
                if names
                else f"this one falls, because {condition} does not hold"
            )

    @functools.cached_property
    def scale(self) -> tuple[Expr, dict[str, float]]:
        """The width of the function in its parameters, and values for which it is 1; the others must be fixed."""
        z = torch.cat([-_geometric(1e-2, 20, 40), _geometric(1e-2, 20, 40)])
        for p, power in itertools.product(self.act.params, (1, -1)):
            unit = self.values | {p.name: 1.0}
            one = Curve(self.act, unit)(z)[0]
            wide = [(number**power, Curve(self.act, unit | {p.name: number})) for number in (1.7, 3.1)]
            if p.symbol.is_positive and all(
                torch.allclose(f(width * z)[0], width * one, rtol=1e-11, atol=1e-13) for width, f in wide
            ):
                self._refuse_free({p.name})
                return p.symbol**power, unit
        self._refuse_free(set())
        return sympy.Integer(1), self.values

    def _refuse_free(self, scaling: set[str]) -> None:
        if others := set(self.free) - scaling:
            names = ", ".join(sorted(others))
            raise _Refusal(f"the inverse of this one is made for one value of {names}; fix it instead of learning it")

    # -- pieces -------------------------------------------------------------------------------------------

    def _side(self, spans: Sequence[Span], direction: int) -> Callable[..., Expr]:
        """`Inverse.select` over spans in the order of rising values; each begins where the one before it ends."""
        parts = [part for span in spans for part in self._span(*span, direction)]

        def select(payload: Callable[[Branch | Expr], Expr], rounding: float) -> Expr:
            slack = sympy.Float(rounding)
            chosen = payload(parts[-1].inverse(slack))
            for part, after in reversed(list(itertools.pairwise(parts))):
                # A flat piece has the values that round to its own.
                room = slack * Abs(part.last) * (part.flat - after.flat)
                value = payload(part.inverse(slack))
                if value != chosen:
                    when = Y <= part.last + room if part.flat else Y < part.last + room  # noqa: SIM300
                    chosen = Piecewise((value, when), (chosen, True), evaluate=False)
            return chosen

        return select

    def _span(self, begin: Expr, end: Expr, part: Expr, direction: int) -> Iterator[_Part]:
        if not part.has(x):
            inside = _inside(begin, end)
            yield _Part(lambda slack: inside, part, flat=True)
            return
        degree = sympy.degree(part, x) if part.is_polynomial(x) else 0
        closed = solve(part, Y) if degree not in (1, 2) else None
        if closed is None and (degree not in (1, 2) or (degree == 2 and begin.is_infinite)):
            yield from self._by_steps(begin, end)
            return
        last = end if end.is_infinite else sympy.cancel(part.subs(x, end))
        if degree == 2:
            yield _Part(lambda slack: _solve_parabola(part, begin, direction, slack), last)
            return
        if degree == 1:
            k, c = sympy.Poly(part, x).all_coeffs()
            closed = (Y - c) / k
            if not k.is_nonzero:
                closed = Piecewise((closed, sympy.Ne(k, 0)), (_inside(begin, end), True), evaluate=False)
        yield _Part(lambda slack: closed, last)

    def _by_steps(self, begin: Expr, end: Expr) -> list[_Part]:
        width, unit = self.scale
        f, low, high = Curve(self.act, unit), self.at(begin, unit), self.at(end, unit)
        orders = f.order(low, high)[0], f.order(high, low)[0]
        last = end if end.is_infinite else sympy.Float(f.value(high), 17) * width
        if min(orders) > 1 or max(orders) == 0:  # two ends to begin from, or none
            middle = 0.0 if math.isinf(low - high) else (low + high) / 2
            height = sympy.Float(f.value(middle), 17) * width
            return [self._branch(f, middle, low, height), self._branch(f, middle, high, last)]
        slopes = [abs(f.slope(z)) if order else -1.0 for z, order in zip((low, high), orders, strict=True)]
        from_low = orders[0] > 1 or (orders[1] <= 1 and slopes[0] >= slopes[1])
        return [self._branch(f, *((low, high) if from_low else (high, low)), last)]

    def _branch(self, f: Curve, anchor: float, far: float, last: Expr) -> _Part:
        branch = _fit(f, anchor, far)
        if branch is None:
            raise _Refusal("no way was found to compute the inverse of this one")
        self.branches.append(branch)
        return _Part(lambda slack: branch, last)

    def _with_steps(self, inverse: Inverse) -> Inverse:
        """With the least number of steps that gives slopes to the digits of each type."""
        unit = self.scale[1]
        f, z = Curve(self.act, unit), torch.cat([-_geometric(1e-3, 60, 3000), _geometric(1e-3, 60, 3000)])
        place = -math.inf if inverse.place is None else self.at(inverse.place, unit)
        (value, slope), invert, error = f(z), inverse.torch(torch.float64), math.inf
        counts: dict[torch.dtype, int] = {}
        for count in range(_MOST_STEPS + 1):
            error = (f(invert(value, z > place, *f.params, steps=count))[1] - slope).abs().max().item()
            for dtype, most in _SLOPE_ERROR.items():
                # With 24 bits or more a step takes back what rounding does to the guess.
                if error <= most and count >= (dtype.itemsize >= 4):
                    counts.setdefault(dtype, count)
            if len(counts) == len(_SLOPE_ERROR):
                break
        if torch.float32 not in counts:
            raise _Refusal(f"the steps towards the inverse of this one do not settle (a slope is off by {error:.1g})")
        return replace(inverse, steps={torch.float64: _MOST_STEPS} | counts)


@dataclass(frozen=True)
class _Part:
    """The inverse of a piece (given the rounding of y), its last value, and whether it is flat."""

    inverse: Callable[[Expr], Branch | Expr]
    last: Expr
    flat: bool = False


def _inside(begin: Expr, end: Expr) -> Expr:
    """A point between two ends, one of which may be infinite."""
    if begin.is_infinite and end.is_infinite:
        return sympy.Integer(0)
    if begin.is_infinite or end.is_infinite:
        only, other = (end, begin) if begin.is_infinite else (begin, end)
        return only + sympy.sign(other) * (1 + Abs(only))
    return (begin + end) / 2

r"""How the correlation of two inputs changes with depth in a wide random network.

    1 - c'  =  s/(2 q') E (f(U) - f(V))^2,        U, V ~ N(0, q) of correlation c

where s is the variance of the weights (times the number of inputs). It is 1 - c that is tracked: at depth 2000 it is
1e-5 for ReLU, and c itself would have lost a third of its digits. On the edge of chaos (`edge`) 1 - c falls like a
power of the depth, -2 for ReLU and -1 for smooth functions; elsewhere it falls exponentially or tends to a constant.

Each mean is good to about 1e-15 (`design.gaussian`). Where 1 - c moves slowly the map is interpolated: log(e'/e) as a
polynomial in log e on intervals, held to 1e-12 against the mean itself; so after l layers the error of 1 - c is
below 1e-12 l of it. A layer whose variance q still changes is computed without interpolation, some 20 ms each; with
weights far from the edge a variance may change for ever.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from ..design.concrete import Concrete, concrete
from ..design.gaussian import Resolved, mean_square_difference, resolve
from ..errors import ParameterError, require_count
from .edge import Edge, find_edge, refuse_jumps
from .inputs import as_number

# -- a table of a slow function, made only where it is evaluated often ------------------------------------


class Interpolated:
    """A positive function of a positive number, with a table of it where it is asked for often.

    log f is a polynomial in log x, of degree 19 through Chebyshev points, on intervals that are halved until it is
    right to 1e-12 at points between. An interval costs 25 values of f; while x moves so fast that fewer would be asked
    for in it, f itself is called.
    """

    NODES, TOLERANCE = 20, 1e-12
    WIDTH = 4 * math.log(16.0)
    # The first intervals tried below 3e-5, where the map of 1 - c is nearly straight, and above.
    FIRST_LEVEL, FIRST_LEVEL_ABOVE, LAST_LEVEL = 0, 2, 8

    def __init__(self, function: Callable[[float], float]) -> None:
        self.function = function
        self.tables: dict[tuple[int, int], list[float] | None] = {}
        self.last = math.nan

    def __call__(self, x: float) -> float:
        moved, self.last = abs(math.log(x) - self.last), math.log(x)
        if not moved < self.WIDTH / 128:  # also at the first call
            return self.function(x)
        # Intervals are counted downwards from 2, the largest 1 - c there is.
        place = (math.log(2.0) - math.log(x)) / self.WIDTH
        for level in range(self.FIRST_LEVEL_ABOVE if place < 1 else self.FIRST_LEVEL, self.LAST_LEVEL + 1):
            index = math.floor(place * 2**level)
            if (level, index) not in self.tables:
                self.tables[level, index] = self._table(level, index)
            if (table := self.tables[level, index]) is not None:
                return math.exp(self._between(table, 2 * (place * 2**level - index) - 1))
        return self.function(x)

    def _at(self, level: int, index: int, t: float) -> float:
        """log f at the place t in [-1, 1] of an interval."""
        place = (index + (t + 1) / 2) / 2**level
        return math.log(self.function(math.exp(math.log(2.0) - place * self.WIDTH)))

    def _table(self, level: int, index: int) -> list[float] | None:
        table = [self._at(level, index, t) for t in self._nodes()]
        checks = (-0.98, -0.51, 0.03, 0.55, 0.97)
        good = all(abs(self._between(table, t) - self._at(level, index, t)) <= self.TOLERANCE for t in checks)
        return table if good else None

    def _nodes(self) -> list[float]:
        return [math.cos(math.pi * (k + 0.5) / self.NODES) for k in range(self.NODES)]

    def _between(self, table: list[float], t: float) -> float:
        """The polynomial through the table, by the barycentric formula."""
        above = below = 0.0
        for k, (node, value) in enumerate(zip(self._nodes(), table, strict=True)):
            if t == node:
                return value
            share = (-1) ** k * math.sin(math.pi * (k + 0.5) / self.NODES) / (t - node)
            above += share * value
            below += share
        return above / below


# -- layer by layer ---------------------------------------------------------------------------------------

_CONSTANT = 1e-13  # relative change of the variance below which it is taken as constant
_MERGED = 1e-32  # below this the map is its slope at 1 to the last bit: corrections are of order sqrt(e)
_DEEPEST = 10_000_000  # layers: some minutes, and a gigabyte of numbers
_WIDEST = (1e-38, 1e38)  # what float32 holds: variances beyond are not followed


@dataclass(frozen=True)
class Propagation:
    """Variance and correlation by depth; index 0 is the first layer's pre-activations.

    name, params:    the function.
    depth:           how many layers were asked for.
    edge:            the edge of chaos, or None where there is none or other variances were asked for.
    why:             why there is no edge, or why the layers end early; otherwise empty.
    weight_variance, bias_variance: what was used; None where there was nothing to use.
    slope:           dc'/dc at c = 1 in the last layer: 1 on the edge, below it inputs merge, above it they part.
    variance:        q by depth.
    one_minus_c:     1 - c by depth.
    exponent:        slope of log(1 - c) against log(depth) over the last decade of layers.
    coefficient:     (1 - c) depth^k at the last layer, -k being the exponent in the limit; None off the edge.
    """

    name: str
    params: Mapping[str, Any]
    depth: int
    edge: Edge | None
    why: str
    weight_variance: float | None = None
    bias_variance: float | None = None
    slope: float | None = None
    variance: tuple[float, ...] = ()
    one_minus_c: tuple[float, ...] = ()
    exponent: float | None = None
    coefficient: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, text, lists and mappings, for JSON."""
        params = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in self.params.items()}
        lists = {"variance": list(self.variance), "one_minus_c": list(self.one_minus_c)}
        return {**asdict(self), "params": params, **lists}

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value:g}" for name, value in self.params.items() if isinstance(value, float))
        title = f"{self.name}({values})" if values else self.name
        if self.weight_variance is None:
            return self.why.replace(self.name, title, 1)
        where = f"weight variance {self.weight_variance:.6g}, bias variance {self.bias_variance:.6g}"
        lines = [f"{title}, {'on the edge of chaos' if self.edge else f'slope {self.slope:.6g} at c = 1'}: {where}"]
        last = len(self.one_minus_c) - 1
        lines.append(f"  at depth {last}: variance {self.variance[-1]:.6g}, 1 - c = {self.one_minus_c[-1]:.6g}")
        if self.edge and self.exponent is not None and self.edge.limit_coefficient is not None:
            power = -self.edge.limit_exponent
            lines.append(
                f"  1 - c goes like depth^{self.exponent:.3f} (limit -{power}); (1 - c) depth^{power} = "
                f"{self.coefficient:.6g} (limit {self.edge.limit_coefficient:.6g})"
            )
        if self.edge and self.edge.variance_slope > 1:
            lines.append(
                f"  a variance beside {self.edge.q:g} runs away from it (dq'/dq = {self.edge.variance_slope:.4g})"
            )
        return "\n".join([*lines, *([f"  {self.why}"] if self.why else [])])


def propagation(
    f: Any,
    depth: int,
    *,
    q: float | None = None,
    correlation: float = 0.0,
    one_minus_c: float | None = None,
    weight_variance: float | None = None,
    bias_variance: float | None = None,
    params: Mapping[str, Any] | None = None,
    **more: Any,
) -> Propagation:
    """Correlation of two inputs by depth, on the edge of chaos or for given variances.

    f:               a name or a definition; its parameters follow by name (or in `params`, for one that is called q).
    depth:           the number of layers.
    q:               the variance to have the edge at (default: 1, or the nearest one where there is an edge); with
                     `weight_variance`, the variance at the first layer.
    correlation:     of the two inputs at the first layer; or `one_minus_c`, where it is very near to 1.
    weight_variance: of the weights times the number of inputs, instead of the edge's; `bias_variance` is then 0 if
                     not given.

    >>> import softknee as sk
    >>> print(sk.measure.propagation("relu", 2000))
    relu, on the edge of chaos: weight variance 2, bias variance 0
      at depth 2000: variance 1, 1 - c = 1.09299e-05
      1 - c goes like depth^-1.963 (limit -2); (1 - c) depth^2 = 43.7197 (limit 44.4132)
    """
    e = _read(depth, q=q, correlation=correlation, one_minus_c=one_minus_c)
    if params is not None and not isinstance(params, Mapping):
        raise ParameterError(f"params is a dict of parameters by name, and {type(params).__name__} was given.")
    function = concrete(f, {**(params or {}), **more})
    if weight_variance is None:
        if bias_variance is not None:
            raise ParameterError("bias_variance was given without weight_variance; give both, or neither for the edge.")
        edge = find_edge(function, q=q)
        if not isinstance(edge, Edge):
            return Propagation(function.name, function.params, depth, None, edge.why)
        return _follow(function, depth, edge.q, e, edge.weight_variance, edge.bias_variance, edge)
    bias = 0.0 if bias_variance is None else as_number(bias_variance)
    if not (0 < as_number(weight_variance) < math.inf and 0 <= bias < math.inf):
        raise ParameterError(
            f"weight_variance must be a finite number above 0 and bias_variance one of at least 0; {weight_variance!r} "
            f"and {bias_variance!r} were given."
        )
    refuse_jumps(function)
    return _follow(function, depth, 1.0 if q is None else q, e, weight_variance, bias, None)


def _read(depth: int, *, q: float | None, correlation: float, one_minus_c: float | None) -> float:
    """Refuse what cannot be; return 1 - c at the start."""
    require_count("propagation", "depth", depth, most=_DEEPEST)
    if q is not None and not _WIDEST[0] < as_number(q) < _WIDEST[1]:
        raise ParameterError(f"q is a variance, a finite number above 0, and {q!r} was given.")
    e = 1 - as_number(correlation) if one_minus_c is None else as_number(one_minus_c)
    if not 0 < e < 2:
        raise ParameterError(
            f"The correlation must lie strictly between -1 and 1, and 1 - c is {e!r} at the start. Inputs that are "
            f"equal stay so; for opposite ones take a correlation just above -1."
        )
    return float(e)


def _follow(
    f: Concrete, depth: int, q: float, e: float, weights: float, biases: float, edge: Edge | None
) -> Propagation:
    variances, gaps, why = [q], [e], ""
    panels = _Panels(f)
    squares = Interpolated(lambda q: panels.under(q).mean_square)
    step: Interpolated | None = None
    on = panels.under(q)
    for layer in range(1, depth + 1):
        after = q if edge or step else weights * squares(q) + biases
        if not _WIDEST[0] < after < _WIDEST[1]:
            why = f"The variance is {after:.3g} at layer {layer}, and is not followed further."
            break
        constant = abs(after - q) <= _CONSTANT * q
        if constant and step is None:
            step = Interpolated(_ratio(on, weights, q))
        if e < _MERGED:
            e *= weights * on.mean_square_slope * q / after
        elif constant and step and not f.two_lines:
            e *= step(e)
        else:
            e *= _ratio(on, weights, after)(e)
        if not constant:
            q, on = after, panels.under(after)
        variances.append(q)
        gaps.append(e)
    return Propagation(
        f.name,
        f.params,
        depth,
        edge,
        why,
        weights,
        biases,
        1.0 if edge else weights * on.mean_square_slope,
        tuple(variances),
        tuple(gaps),
        _exponent(gaps),
        gaps[-1] * (len(gaps) - 1) ** -edge.limit_exponent if edge else None,
    )


class _Panels:
    """The panels of a function, shared by variances that differ by less than 2^(1/4)."""

    def __init__(self, f: Concrete) -> None:
        self.f = f
        self.made: dict[int, Resolved] = {}

    def under(self, q: float) -> Resolved:
        step = math.ceil(4 * math.log2(q))
        if step not in self.made:
            self.made[step] = resolve(self.f, 2 ** (step / 4))
        return replace(self.made[step], q=q)


def _ratio(on: Resolved, weights: float, after: float) -> Callable[[float], float]:
    """e'/e as a function of e = 1 - c, from a layer of variance `on.q` to one of variance `after`."""
    return lambda e: weights * mean_square_difference(on, e) / (2 * after * e)


def _exponent(gaps: list[float]) -> float | None:
    """The slope of the straight line through log(1 - c) against log(depth), by least squares over the last decade."""
    last = len(gaps) - 1
    points = [(math.log(k), math.log(gaps[k])) for k in range(max(1, last // 10), last + 1) if gaps[k] > 0]
    return statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else None

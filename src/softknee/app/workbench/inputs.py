"""The density of the inputs: a named one with mean and scale, or uploaded numbers, as a sketch of their quantiles.

A sketch is 256 quantiles, at (i + 1/2)/256, as float32 in base64: small enough for an address, so that a link takes
the uploaded numbers along and the server keeps nothing. What is computed from an upload is computed from these: the
entropy that a function takes or adds, and how two inputs go through depth.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy
import torch
from sympy.core.relational import Relational
from torch import Tensor

from ...design.entropic import densities
from ...design.entropic.densities import FEWEST, Density, of_samples, sorted_samples
from ...design.entropic.entropy import mean_of
from ...design.gaussian import init_gain
from ...errors import DefinitionError, InputError, ParameterError, SoftkneeError, did_you_mean
from ...lab.figures import Function, orders_of, seams_of
from ...measure.propagation import propagation
from ...spec import Activation, SoftTable, x
from ...spec.algebra import Abs, Expr, sympy
from ...spec.pieces import split
from ...spec.primitives import Clip, FiniteLeft, Ramp, Unit
from .reading import ChosenFunction, read

_CORNERS = (Ramp, Clip, Unit, Abs, FiniteLeft, sympy.sign, sympy.Max, sympy.Min)


def seams(function: ChosenFunction) -> list[float] | None:
    """Where the pieces of the function meet, for the page's numbers; None where that is not known.

    >>> from softknee.app.workbench.reading import read
    >>> seams(read({"text": "mollify(hardtanh, box, width=delta)", "values": {"delta": 0.25}}))
    [-1.25, -0.75, 0.75, 1.25]
    """
    act = function.act
    if isinstance(act, SoftTable):
        return []  # the page shows the full sum, which is smooth
    if act.claims is None and _has_denominator(act):
        return None  # poles are looked for where the curve is drawn
    places = seam_places(act)
    if places is None:
        return seams_of(act, function.given)
    return sorted({float(place.xreplace(sympy_numbers(function))) for place in places})


def sympy_numbers(function: ChosenFunction) -> dict[Any, Any]:
    """The values of the parameters by their symbols."""
    return {p.symbol: sympy.Float(function.values[p.name]) for p in function.params}


@lru_cache(maxsize=128)
def _has_denominator(act: Activation) -> bool:
    return any(power.exp.is_negative and power.base.has(x) for power in sympy.sympify(act.formula).atoms(sympy.Pow))


@lru_cache(maxsize=128)
def seam_places(act: Activation) -> tuple[Expr, ...] | None:
    """The seams as expressions in the parameters."""
    formula = sympy.sympify(act.formula)
    try:
        return split(formula).seams
    except DefinitionError:
        pass  # their order hangs on the numbers
    if formula.has(*_CORNERS):
        return None
    places = []
    for relation in formula.atoms(Relational):
        gap = sympy.expand(relation.lhs - relation.rhs)
        slope = gap.coeff(x, 1)
        if slope == 0 or slope.has(x) or sympy.expand(gap - slope * x).has(x):
            return None
        places.append(-sympy.expand(gap - slope * x) / slope)
    return tuple(dict.fromkeys(places))


QUANTILES = 256
BINS = 72
_POINTS = 240
_TEXT = 4 * math.ceil(4 * QUANTILES / 3)


def density_of(choice: Any) -> Density:
    """The density that the page chose: {"kind": "normal", "mean": 0, "scale": 1} or {"kind": "data", "sketch": ...}."""
    if not isinstance(choice, Mapping):
        raise ParameterError("The inputs are a named density or uploaded numbers; neither was sent.")
    kind = choice.get("kind", "normal")
    if kind == "data":
        return of_samples(unpack(choice.get("sketch")))
    if kind not in densities.NAMED:
        near = did_you_mean(kind, densities.NAMED)
        raise ParameterError(f"There is no density {str(kind)[:40]!r}; choose {', '.join(densities.NAMED)}.{near}")
    mean, scale = (_number(choice, name, usual) for name, usual in (("mean", 0.0), ("scale", 1.0)))
    if not 1e-6 <= scale <= 1e6 or abs(mean) > 1e6:
        raise ParameterError("The scale of the inputs lies between 1e-6 and 1e6, and their mean within a million of 0.")
    if kind == "uniform":
        return densities.uniform(low=mean - scale, high=mean + scale)
    named: Any = densities.NAMED[kind]
    return named(mean=mean, scale=scale)


def _number(choice: Mapping[str, Any], name: str, usual: float) -> float:
    value = choice.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParameterError(f"The {name} of the inputs is a finite number.")
    return float(value)


def shape(query: dict[str, Any]) -> dict[str, Any]:
    """What is drawn under the curve between "low" and "high": a density as a line, uploaded numbers as bars."""
    low, high = float(query["low"]), float(query["high"])
    choice = query.get("density")
    if isinstance(choice, Mapping) and choice.get("kind") == "data":
        edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64)
        share = _distribution(unpack(choice.get("sketch")), edges).diff()
        return {"bars": {"low": low, "high": high, "share": share.tolist()}}
    density = density_of(choice)
    x = torch.linspace(low, high, _POINTS, dtype=torch.float64)
    return {"line": {"x": x.tolist(), "y": density.pdf(x).tolist()}, "name": str(density)}


def _distribution(quantiles: Tensor, at: Tensor) -> Tensor:
    """The distribution function that goes straight from quantile to quantile, and half a step beyond the outermost."""
    n = len(quantiles)
    half = 0.5 * (quantiles[-1] - quantiles[0]) / n
    x = torch.cat([quantiles[:1] - half, quantiles, quantiles[-1:] + half])
    y = torch.cat([torch.zeros(1), (torch.arange(n) + 0.5) / n, torch.ones(1)])
    return torch.from_numpy(numpy.interp(at, x, y))


# -- sketches ---------------------------------------------------------------------------------------------


def sketch(samples: Tensor) -> str:
    """The quantiles of samples as a text that an address can hold.

    >>> import torch
    >>> unpack(sketch(torch.arange(256.0)))[:3].tolist()
    [0.0, 1.0, 2.0]
    """
    # Hazen's: the quantiles of 256 samples are the samples.
    places = (numpy.arange(QUANTILES) + 0.5) / QUANTILES
    quantiles = numpy.quantile(samples.reshape(-1).to(torch.float64), places, method="hazen")
    return base64.urlsafe_b64encode(quantiles.astype("<f4").tobytes()).decode().rstrip("=")


def unpack(text: Any) -> Tensor:
    """The quantiles that a sketch holds, or a sentence."""
    if not isinstance(text, str) or len(text) > _TEXT:
        raise InputError("The address says that numbers were uploaded, and does not hold them; upload them again.")
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        quantiles = torch.tensor(numpy.frombuffer(content, "<f4").astype("f8"))
    except (binascii.Error, ValueError) as error:
        raise InputError("The uploaded numbers in the address are damaged; upload them again.") from error
    if len(quantiles) != QUANTILES or not bool(quantiles.isfinite().all()) or not bool((quantiles.diff() >= 0).all()):
        raise InputError("The uploaded numbers in the address are damaged; upload them again.")
    return quantiles


_MAGIC = b"\x93NUMPY"


def uploaded(query: dict[str, Any]) -> dict[str, Any]:
    """{"name", "content"} as a sketch, with count, mean, deviation and range of its numbers."""
    name, content = str(query.get("name", ""))[:120], query.get("content", b"")
    values = _array(content) if content.startswith(_MAGIC) else _table(content)
    finite = values[numpy.isfinite(values)]
    left_out = values.size - finite.size
    if finite.size < FEWEST:
        raise InputError(f"The file has {finite.size} finite numbers, and at least {FEWEST} are needed.")
    samples = sorted_samples(torch.from_numpy(finite.astype("float64")), "The page")
    return {
        "sketch": sketch(samples),
        "name": name,
        "count": int(finite.size),
        "left_out": int(left_out),
        "mean": float(samples.mean()),
        "deviation": float(samples.std()),
        "low": float(samples[0]),
        "high": float(samples[-1]),
    }


def _array(content: bytes) -> Any:
    """The numbers of a .npy file; one that holds Python objects is refused, and one that claims more than it has."""
    stream = io.BytesIO(content)
    heads = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}
    try:
        shape, _, dtype = heads[numpy.lib.format.read_magic(stream)](stream)
    except Exception as error:  # a header is a literal of Python, whose readers raise many kinds
        raise InputError("The file begins like a .npy file, but its header cannot be read; use numpy.save.") from error
    if dtype.hasobject:
        raise InputError("The .npy file holds Python objects, which are never unpickled here; save plain numbers.")
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise InputError(f"The .npy file holds {dtype}, and real numbers of at most 64 bits are read here.")
    if math.prod(shape) * dtype.itemsize > len(content) - stream.tell():
        raise InputError("The .npy file is cut off: it has fewer numbers than it says.")
    return numpy.frombuffer(content, dtype, math.prod(shape), stream.tell()).astype("float64")


def _table(content: bytes) -> Any:
    """The numbers of a .csv file, whatever its shape; a first line of names is left out.

    Numbers stand between commas, semicolons, tabs or blanks. Beside a semicolon or a tab a comma is that of a fraction,
    as the spreadsheets of half the world write it.

    >>> _table(b"a;b\\n0,5;1\\n2,5;3\\n").tolist()
    [0.5, 1.0, 2.5, 3.0]
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("The file is neither a .npy array nor a .csv text.") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if ";" in text or "\t" in text:
        between, fraction = ";", ","
    else:
        between, fraction = ",", "."
    numbers: list[float] = []
    for number, line in lines:
        parts = line.replace("\t", between).replace(between, " ").replace(fraction, ".").split()
        try:
            numbers += [float(part) for part in parts]
        except ValueError as error:
            if number != lines[0][0]:
                raise InputError(f"Line {number} of the .csv file is not numbers: {line[:40]!r}.") from error
    return numpy.array(numbers)


DEPTH = 40
_GRID, _SPREADS, _HALVINGS = 4001, 12.0, 60
_ALL = 1 - 1e-9
_NAMES = {"mean": "the mean", "deviation": "the deviation", "slope_square": "the mean of f′(X)²"}


@dataclass(frozen=True)
class Stretch:
    """Where the slope has one sign: -1, 0 or 1."""

    low: float
    high: float
    sign: int


def entropy(query: dict[str, Any]) -> dict[str, Any]:
    """H(f(X)) - H(X) = E log|f'(X)| of {"function", "density"}, on the whole line or where f is one-to-one.

    A flat stretch sends its share of the inputs into one point, which has no entropy; where f goes up and down the
    formula holds on each side alone. Then the stretch with most of the inputs is taken, and the answer says so.
    """
    function, density = read(query.get("function")), density_of(query.get("density"))
    value, slope, _ = orders_of(function.act, function.given)
    seams = [seam for seam in seams_of(function.act, function.given) or [] if abs(seam) < 1e6]
    mean, square = _mean(value, density, seams), _mean(lambda x: value(x) ** 2, density, seams)
    numbers = {
        "mean": mean,
        "deviation": math.nan if math.isnan(square) else math.sqrt(max(square - mean**2, 0.0)),
        "slope_square": _mean(lambda x: slope(x) ** 2, density, seams),
    }
    lost = value(_grid(density)).isnan()
    if bool((lost[1:] & lost[:-1]).any()):  # a single place, as 0 of 1/x, is no stretch of inputs
        words = "It has no value for some of these inputs, so nothing can be said of its entropy."
        return {**numbers, "change": None, "flat": None, "words": words}
    missing = [name for name, number in numbers.items() if not math.isfinite(number)]
    verb = "does" if len(missing) == 1 else "do"
    *first, last = [_NAMES[name] for name in missing] or [""]
    listed = f"{', '.join(first)} and {last}" if first else last
    gone = f"Of this function {listed} {verb} not exist." if missing else ""
    pieces = [
        (stretch, min(mean_of(torch.zeros_like, density, stretch.low, stretch.high)[1], 1.0))
        for stretch in stretches(slope, density, seams)
    ]
    flat = sum(share for stretch, share in pieces if stretch.sign == 0)
    steep = [(stretch, share) for stretch, share in pieces if stretch.sign]
    if not steep:
        words = f"It is flat wherever these inputs are. {gone}".strip()
        return {**numbers, "change": None, "flat": flat, "words": words}
    best, share = max(steep, key=lambda pair: pair[1])
    change, _ = mean_of(lambda x: torch.log(slope(x).abs().clamp(min=1e-300)), density, best.low, best.high, seams)
    whole, why = share > _ALL, ""
    if flat > 0:
        why = "Flat stretches map the other inputs to single points, which have no entropy."
    elif len(steep) > 1:
        why = "It goes up and down, and E log|f′| is the change only where it is one-to-one."
    return {
        **numbers,
        "change": change if math.isfinite(change) else None,
        "low": None if math.isinf(best.low) else best.low,
        "high": None if math.isinf(best.high) else best.high,
        "whole": whole,
        "share": share,
        "flat": flat,
        "words": f"{'' if whole else why} {gone}".strip(),
    }


def _mean(curve: Function, density: Density, seams: list[float]) -> float:
    return mean_of(curve, density, -math.inf, math.inf, seams)[0]


def _grid(density: Density) -> Tensor:
    """Where these inputs are."""
    reach = _SPREADS * density.spread
    low, high = max(density.reach[0], density.centre - reach), min(density.reach[1], density.centre + reach)
    return torch.linspace(low, high, _GRID, dtype=torch.float64)[1:-1]


def stretches(slope: Function, density: Density, seams: list[float]) -> list[Stretch]:
    """The line cut where the sign of the slope changes, as far as these inputs see it.

    >>> import softknee as sk
    >>> from softknee.design.entropic.densities import normal
    >>> parts = stretches(sk.get("relu").derivative(1), normal(), [0.0])
    >>> [(part.low, part.high, part.sign) for part in parts]
    [(-inf, 0.0, 0), (0.0, inf, 1)]
    """
    grid = _grid(density)
    low, high = grid[0].item(), grid[-1].item()
    near = [seam + side * 1e-9 * (high - low) for seam in seams if low < seam < high for side in (-1, 1)]
    x = torch.cat([grid, torch.tensor(near, dtype=torch.float64)]).sort()[0]
    signs = slope(x).nan_to_num(0.0).sign()
    ends: list[float] = [-math.inf]
    kinds: list[int] = [int(signs[0])]
    for place in torch.nonzero(signs.diff()).flatten().tolist():
        ends.append(_change(slope, x[place], x[place + 1], seams))
        kinds.append(int(signs[place + 1]))
    ends.append(math.inf)
    return [Stretch(a, b, kind) for a, b, kind in zip(ends[:-1], ends[1:], kinds, strict=True) if b > a]


def _change(slope: Function, left: Tensor, right: Tensor, seams: list[float]) -> float:
    """The place between two points at which the sign of the slope changes; a seam where one lies between."""
    for seam in seams:
        if float(left) <= seam <= float(right):
            return seam
    before = slope(left.reshape(1)).sign()
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        if bool(slope(middle.reshape(1)).sign() == before):
            left = middle
        else:
            right = middle
    return float((left + right) / 2)


def depth(query: dict[str, Any]) -> dict[str, Any]:
    """Two inputs through a wide random network of {"function"}, begun at the second moment of {"density"}.

    On the edge of chaos where there is one at that variance; otherwise with the weights that keep the variance.
    """
    function, density = read(query.get("function")), density_of(query.get("density"))
    q = _mean(lambda x: x * x, density, [])
    settings: dict[str, Any] = {"q": q, "params": function.given}
    reply: dict[str, Any] = {"q": q}
    try:
        gain = init_gain(function.act, q=q, params=function.given)
        run = propagation(function.act, DEPTH, **settings)
        on_edge = run.edge is not None
        if not on_edge:
            reply["why"] = run.why
            run = propagation(function.act, DEPTH, weight_variance=gain**2, **settings)
    except SoftkneeError as error:
        name = function.act.name
        why = str(error)
        why = f"The function{why.removeprefix(name)}" if why.startswith(f"{name} ") else why
        return {**reply, "why": why, "one_minus_c": []}
    return {
        **reply,
        "gain": gain,
        "on_edge": on_edge,
        "weights": run.weight_variance,
        "biases": run.bias_variance,
        "slope": run.slope,
        "one_minus_c": list(run.one_minus_c),
        "variance": list(run.variance),
    }

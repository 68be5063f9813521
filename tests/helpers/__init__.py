"""One table of subjects, one table of tolerances, and the draws that every property file shares."""

from __future__ import annotations

import functools
import gc
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mpmath
import pytest
import sympy
import torch
from sympy.core.relational import Relational
from torch import Tensor

import softknee as sk
from softknee.spec import Activation, AtLeastOne, Between, Param, Positive, elementary
from softknee.spec import x as SYMBOL
from softknee.spec.reference import evaluate

# One of each kind: without and with parameters, with each constraint, from pieces, gates and tables, by an inverse.
FEW = (
    "crrelu_exact",
    "gelu",
    "generalized_smelu",
    "lambda_gelu",
    "mish",
    "relu",
    "selu",
    "smelu",
    "srelu",
    "tanh",
    "xielu",
)


def _element_wise() -> dict[str, Activation]:
    # `make test-core` takes these for the whole zoo.
    wanted = FEW if os.environ.get("SOFTKNEE_TESTS") == "few" else sk.names()
    definitions = ((name, sk.get(name)) for name in wanted)
    # An alias gives the definition of another name; it is tested once, under its own.
    return {name: act for name, act in definitions if isinstance(act, Activation) and act.name == name}


def _designed() -> dict[str, Activation]:
    """What the engine of mollification makes, one for each way it computes: of these, too, every property is asked."""
    lam = Param("lam", 0.5, Between(low=0.0, high=2.0))
    edge = lam.symbol
    step = sympy.Piecewise((0, SYMBOL < 0), (1, True))
    shrink = sympy.Piecewise((0, abs(SYMBOL) <= edge), (SYMBOL, True))
    made = [
        sk.design.mollify("leaky_relu", "triangle"),
        sk.design.mollify("hardtanh", "biweight"),
        sk.design.mollify(sk.Activation("hardshrink", shrink, params=(lam,)), "epanechnikov"),
        sk.design.mollify("relu6", "gaussian"),
        sk.design.mollify(sk.Activation("step", step), "logistic"),
        sk.design.mollify("relu", "bump"),
        sk.design.mollify("relu", ("box", "triweight")),
    ]
    return {act.name: act for act in made}


ZOO = _element_wise()
"""Every element-wise activation of the zoo by name. A new one is tested without a new test."""
_DESIGNED = _designed()
SUBJECTS = ZOO | _DESIGNED
every_subject = pytest.mark.parametrize("act", SUBJECTS.values(), ids=SUBJECTS)
KINDS = {name: act for name, act in SUBJECTS.items() if name in FEW or name in _DESIGNED}
"""One of each kind, for what does not depend on the formula: layouts, blocks, copies, transforms of transforms."""
each_kind = pytest.mark.parametrize("act", KINDS.values(), ids=KINDS)
LEARNED = {name: act for name, act in SUBJECTS.items() if act.params}
every_learned = pytest.mark.parametrize("act", LEARNED.values(), ids=LEARNED)
LEARNED_KINDS = {name: act for name, act in KINDS.items() if act.params}
each_learned_kind = pytest.mark.parametrize("act", LEARNED_KINDS.values(), ids=LEARNED_KINDS)


@dataclass(frozen=True)
class Tolerance:
    """A number, its unit, and why it is what it is."""

    value: float
    unit: str
    why: str


F64, F32, BF16, F16 = torch.float64, torch.float32, torch.bfloat16, torch.float16
_REFERENCE = "eps times the bound of `scale`: rounding of the inputs and of the result, a few times over"
_HALF = "ulp beyond a correctly rounded result: float32 work may round to the other neighbour"
_SAME = "eps times the size of the values: the same operations, perhaps contracted or summed in another order"
TOLERANCES: dict[tuple[torch.dtype, str], Tolerance] = {
    (F64, "reference"): Tolerance(4, "eps", _REFERENCE),
    (F32, "reference"): Tolerance(4, "eps", _REFERENCE),
    (BF16, "half"): Tolerance(1, "ulp", _HALF),
    (F16, "half"): Tolerance(1, "ulp", _HALF),
    (F64, "same"): Tolerance(16, "eps", _SAME),
    (F32, "same"): Tolerance(16, "eps", _SAME),
    (F64, "sum"): Tolerance(1e-12, "relative", "a sum of up to 2^18 terms in another order"),
    (F32, "sum"): Tolerance(2e-5, "relative", "a sum of up to 2^18 terms in another order"),
    (F64, "gradcheck"): Tolerance(1e-6, "absolute", "central differences of step 1e-6 keep about nine digits"),
    (F64, "attained"): Tolerance(1e-3, "relative", "the dense grid meets a flat maximum to three digits and more"),
    (F32, "start"): Tolerance(4, "ulp", "the issue's promise for a learned start value"),
}


def tolerance(dtype: torch.dtype, quantity: str) -> float:
    return TOLERANCES[dtype, quantity].value


def rounding(dtype: torch.dtype) -> float:
    """How far apart two ways to one number may end, relative to its size.

    The bits are the same only where one program runs twice on one layout. Which elements a vector instruction takes
    and which the scalar one after it, and so the last bit, depends on strides and on the processor.
    """
    return tolerance(dtype, "same") * torch.finfo(dtype).eps


# -- draws ------------------------------------------------------------------------------------------------

REACH = 50.0
KNOB_RANGE = (1e-6, 1e6)
SLOW_REFERENCE = 24  # points for a definition whose 50-digit value needs a root (3 ms each)


def draw_param(p: Param, count: int, generator: torch.Generator) -> Tensor:
    """Values over everything the constraint allows, in float64."""
    share = torch.rand(count, generator=generator, dtype=F64)
    low, high = map(math.log, KNOB_RANGE)
    if isinstance(p.constraint, Positive):
        return torch.exp(low + (high - low) * share)
    if isinstance(p.constraint, AtLeastOne):
        return torch.exp(high * share)
    if isinstance(p.constraint, Between):
        room = p.constraint.high - p.constraint.low
        return p.constraint.low + room * (0.001 + 0.998 * share)
    sign = torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1
    value = sign * torch.exp(low + (high - low) * share)
    value[torch.rand(count, generator=generator) < 0.1] = 0.0
    return value


# Where the zoo's knees are: at 0, at fixed places, and at small multiples of a width or of its inverse.
_MULTIPLES = torch.tensor([0.0, 1e-3, 0.25, 0.5, 1.0, 1.4142135, 2.0, 3.0, 6.0, 10.0, 20.0, 40.0], dtype=F64)
_FIXED = torch.tensor([0.0, 1e-30, 1e-6, 0.5, 1.0, 1.7320508, 3.0, 6.0, 40.0], dtype=F64)
_OFF = torch.tensor([0.0, 0.0, 1e-15, -1e-15, 1e-7, -1e-7, 1e-3, -1e-3], dtype=F64)


def _pick(table: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return table[torch.randint(0, len(table), (count,), generator=generator)]


def draw(act: Activation, count: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """Points x in [-50, 50] and parameters of the same shape, exact numbers of the type."""
    generator = torch.Generator().manual_seed(seed)
    count = min(count, SLOW_REFERENCE) if act.implicit is not None else count
    params = {p.name: draw_param(p, count, generator).to(dtype) for p in act.params}
    sign = torch.randint(0, 2, (count,), generator=generator, dtype=F64) * 2 - 1
    uniform = REACH * torch.rand(count, generator=generator, dtype=F64)
    small = torch.exp(torch.log(torch.tensor(1e-9)) * torch.rand(count, generator=generator, dtype=F64)) * REACH
    kinds = [uniform, small, _pick(_FIXED, count, generator) * (1 + _pick(_OFF, count, generator))]
    for p in act.params:
        width = params[p.name].double().abs() + 1e-300
        for scale in (width, 1 / width):
            place = _pick(_MULTIPLES, count, generator) * (1 + _pick(_OFF, count, generator))
            kinds.append(scale.clamp(max=1e12) * place)
    which = torch.arange(count) % len(kinds)
    x = (sign * torch.stack(kinds)[which, torch.arange(count)]).clamp(-REACH, REACH)
    return x.to(dtype), params


def defaults(act: Activation, dtype: torch.dtype = F64) -> dict[str, Tensor]:
    """The default parameters as tensors of one number."""
    return {p.name: torch.full((1,), p.start, dtype=dtype) for p in act.params}


# -- the error bound of the project -----------------------------------------------------------------------


@functools.lru_cache(maxsize=1 << 17)
def _exactly(quantity: Activation, at: float, items: tuple[tuple[str, float], ...]) -> mpmath.mpf:
    return evaluate(quantity, at, **dict(items))


def reference(quantity: Activation, at: float, values: dict[str, float]) -> mpmath.mpf:
    """The 50-digit value, worked out once for all types and checks that ask for the same point."""
    return _exactly(quantity, at, tuple(values.items()))


def scale(quantity: Activation, at: float, values: dict[str, float], truth: mpmath.mpf) -> mpmath.mpf:
    """max(1, |f|) + |x df/dx| + sum |p df/dp|, f being the quantity tested."""
    parts = [max(mpmath.mpf(1), abs(truth)), abs(at * reference(quantity.partial("x"), at, values))]
    parts += [abs(number * reference(quantity.partial(name), at, values)) for name, number in values.items()]
    return sum(parts)


def error(quantity: Activation, got: float, at: float, values: dict[str, float], dtype: torch.dtype) -> float:
    """The error at a point in units of eps times the bound there.

    The two sums of the bound cost several references each, so they are added only where max(1, |f|) is not enough.
    """
    eps = torch.finfo(dtype).eps
    truth = reference(quantity, at, values)
    miss = abs(mpmath.mpf(got) - truth) / eps
    ratio = miss / max(mpmath.mpf(1), abs(truth))
    return float(ratio if ratio <= tolerance(dtype, "reference") else miss / scale(quantity, at, values, truth))


def errors(quantity: Activation, got: Tensor, x: Tensor, params: dict[str, Tensor]) -> Iterator[tuple[float, Any]]:
    """The error at each point, with the point for the report; a NaN counts as infinitely wrong."""
    columns = {name: value.expand(x.shape).reshape(-1).tolist() for name, value in params.items()}
    for i, (at, value) in enumerate(zip(x.reshape(-1).tolist(), got.reshape(-1).tolist(), strict=True)):
        values = {name: column[i] for name, column in columns.items()}
        ratio = error(quantity, value, at, values, x.dtype) if math.isfinite(value) else math.inf
        yield ratio, (quantity.name, at, values, value)


def assert_close_to_reference(quantity: Activation, got: Tensor, x: Tensor, params: dict[str, Tensor]) -> None:
    """The computed values of a quantity against 50 digits, within the project's bound."""
    assert got.dtype == x.dtype
    assert got.shape == x.shape
    ratio, where = max(errors(quantity, got, x, params), key=lambda pair: pair[0])
    assert ratio <= tolerance(x.dtype, "reference"), f"error of {ratio:.3g} eps x scale at {where}"


# -- settings: chosen values beside drawn ones ------------------------------------------------------------


def _edges(p: Param) -> list[float]:
    if isinstance(p.constraint, Positive):
        return [1e-6, 0.37, 1e6]
    if isinstance(p.constraint, AtLeastOne):
        return [1.0, 3.7, 1e6]
    if isinstance(p.constraint, Between):
        return [0.99 * p.constraint.low, 0.0, 0.99 * p.constraint.high]
    return [0.0, -1.5, 2.5]


def settings(act: Activation) -> list[dict[str, Tensor]]:
    """The defaults, and each parameter in turn at the ends of its range: float32 numbers, held in float64."""
    start = {p.name: p.start for p in act.params}
    rows = [start] + [start | {p.name: edge} for p in act.params for edge in _edges(p)]
    return [{name: torch.tensor([value], dtype=F32).double() for name, value in row.items()} for row in rows]


def ordinary_values(act: Activation) -> dict[str, float]:
    """Parameters of moderate size, none at its default and none equal to another."""
    moderate = {Positive: 0.7, AtLeastOne: 1.8, Between: 0.4}
    # Each is above the one before it: of two limits the lower comes first.
    return {
        p.name: moderate[type(p.constraint)] * (1 + 0.125 * i)
        if type(p.constraint) in moderate
        else -0.35 * (1 - 0.125 * i)
        for i, p in enumerate(act.params)
    }


def away_from_seams(act: Activation, x: Tensor, values: dict[str, float], gap: float = 1e-3) -> Tensor:
    """Those x whose neighbourhood lies in one piece of the formula."""
    seams = elementary(act.root.formula).atoms(Relational)
    names = [SYMBOL, *(p.symbol for p in act.params)]
    distances = [sympy.lambdify(names, seam.lhs - seam.rhs, "math") for seam in seams]
    keep = [all(abs(d(at, *values.values())) > gap for d in distances) for at in x.tolist()]
    return x[torch.tensor(keep)]


GRANULARITIES = {
    "layer": {},
    "channel": {"per": "channel", "size": 4},
    "channel_last": {"per": "channel", "size": 5, "dim": -1},
    "neuron": {"per": "neuron", "size": (4, 5)},
}


def each_granularity(table: dict[str, Activation]) -> pytest.MarkDecorator:
    """How parameters are shared does not ask for the formula: three functions have each way, the others one."""
    three = ("srelu", "lambda_gelu", "generalized_smelu")
    cases = [(name, way) for name in table for way in GRANULARITIES if way == "neuron" or name in three]
    ids = [f"{name}-{way}" for name, way in cases]
    return pytest.mark.parametrize(("act", "granularity"), [(table[name], way) for name, way in cases], ids=ids)


X = torch.linspace(-3, 3, 60).reshape(3, 4, 5)


@contextmanager
def at_once() -> Iterator[None]:
    """Fails where the block takes two seconds of the processor.

    Not of the clock: others may have the machine. Nor with the collector, which comes when it will.
    """
    gc.disable()
    start = time.thread_time()
    try:
        yield
    finally:
        gc.enable()
    assert time.thread_time() - start < 2


def grid(values: dict[str, float]) -> Tensor:
    """Dense around 0 at the scale of 1, of every width and of its inverse; to +-60, and one point far out each way."""
    sizes = {1.0, 7.5, *(abs(v) for v in values.values() if v), *(1 / abs(v) for v in values.values() if v)}
    near = torch.linspace(-8, 8, 8001, dtype=F64)
    return torch.cat([size * part for size in sorted(sizes) for part in (near, 1e6 * near[::8000])])

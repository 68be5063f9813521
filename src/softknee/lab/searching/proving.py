"""The promises of a candidate: refuted on a grid in microseconds, or proved by a certificate.

>>> from softknee.lab.studies.recipe import Constraints
>>> examine("gelu", Constraints(lipschitz=1.1), seconds=1.0)[0].reason
'its Lipschitz constant is above 1.1'
>>> promises = Constraints(lipschitz=1.0, zeros=True, limit="relu")
>>> [(proved,)] = [examine("srelu", promises, seconds=5.0, values=[{"delta": 0.5}])]
>>> proved.reason, proved.certificate["distance"]["upper"]
(None, '0.09375')
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

import softknee as sk

from ...design.proof.certificate import Certificate
from ...errors import SoftkneeError
from ...measure.record import without_paths
from ...registry import get
from ...spec import Activation
from ...spec.algebra import sympy
from ..studies.recipe import Constraints

UNPROVED = "not proved in time: "
_ROUNDING = 1e-9  # of slopes in float64, which refute nothing by less
# What costs no more than a comparison; every other function of a formula is taken for a transcendental one.
_PLAIN = ("Ramp", "Unit", "Clip", "FiniteLeft", "Line", "Piecewise", "Abs", "sign", "Max", "Min", "Heaviside")


@dataclass(frozen=True)
class Examined:
    """What is known of a candidate before it is trained.

    reason:      why it is dropped; None where everything that is asked for is proved.
    cost:        its cost class; None where there is no definition.
    certificate: as JSON holds it; None where it was dropped before the proof.
    """

    reason: str | None
    cost: int | None = None
    certificate: Mapping[str, Any] | None = None


def examine(
    text: str, constraints: Constraints, *, seconds: float, values: Sequence[Mapping[str, float]] = ({},)
) -> list[Examined]:
    """For each set of values of one function: look for a counterexample, then make a certificate.

    seconds: of each proof, as `certify` takes it; the making of the definition may take four times as long.
    """
    try:
        with _limited(4 * seconds):
            act = get(text)  # and not sk.get, which keeps the last thousand
            act.derivative(1)(_GRID[:1])
    except _OutOfTimeError:
        return [Examined(f"{UNPROVED}the definition")] * len(values)
    except SoftkneeError as error:
        return [Examined(f"no definition: {without_paths(str(error).partition('. ')[0])}"[:200])] * len(values)
    return [_examine(act, given, constraints, seconds) for given in values]


def _examine(act: Activation, values: Mapping[str, float], constraints: Constraints, seconds: float) -> Examined:
    cost = cost_class(act)
    try:
        with _limited(4 * seconds):
            act.check(values)
            if (reason := _counterexample(act, values, constraints, cost)) is not None:
                return Examined(reason, cost)
            certificate = sk.design.certify(act, seconds=seconds, **values)
    except _OutOfTimeError:
        return Examined(f"{UNPROVED}anything", cost)
    except SoftkneeError as error:
        return Examined(f"no certificate: {without_paths(str(error).partition('. ')[0])}"[:200], cost)
    return Examined(_unproved(certificate, constraints), cost, _short(certificate))


def _short(certificate: Certificate) -> dict[str, Any]:
    """What a record holds of a certificate: everything but its names and the places of the extrema."""
    whole = certificate.to_dict()
    for name in ("smallest_slope", "largest_slope", "lipschitz", "distance"):
        whole[name] = None if whole[name] is None else {end: whole[name][end] for end in ("lower", "upper")}
    return {name: part for name, part in whole.items() if name not in ("name", "params")}


def cost_class(act: Activation) -> int:
    """How many different transcendental functions stand in the formula.

    >>> [cost_class(sk.get(name)) for name in ("srelu", "swish", "mish")]
    [0, 1, 2]
    """
    nodes = {node for node in sympy.preorder_traversal(act.formula) if isinstance(node, sympy.Function)}
    powers = {node for node in act.formula.atoms(sympy.Pow) if not node.exp.is_Integer}
    return len([node for node in nodes if type(node).__name__ not in _PLAIN]) + len(powers)


_GRID = torch.cat([torch.linspace(-end, end, 1401, dtype=torch.float64) for end in (30, 4)])


def _counterexample(act: Activation, values: Mapping[str, float], constraints: Constraints, cost: int) -> str | None:
    """Why the function cannot be what is asked for, by its formula or at a point of a grid."""
    if constraints.cost is not None and cost > constraints.cost:
        return f"its formula has more than {constraints.cost} transcendental functions"
    if constraints.limit is not None and act.limit != constraints.limit:
        return f"its hard limit is not {constraints.limit}"
    with torch.no_grad():
        value, slope = act(_GRID, **values), act.derivative(1)(_GRID, **values)
    if not bool(value.isfinite().all() and slope.isfinite().all()):
        return "it is not finite everywhere"
    if constraints.lipschitz is not None and float(slope.abs().max()) > constraints.lipschitz + _ROUNDING:
        return f"its Lipschitz constant is above {constraints.lipschitz:g}"
    if constraints.monotone and float(slope.min()) < -_ROUNDING:
        return "it decreases somewhere"
    return None


def _unproved(proof: Certificate, constraints: Constraints) -> str | None:
    """The first promise that the certificate refutes or leaves open."""
    if constraints.lipschitz is not None and not proof.lipschitz.upper <= constraints.lipschitz:
        above = proof.lipschitz.lower > constraints.lipschitz
        return (
            f"its Lipschitz constant is above {constraints.lipschitz:g}"
            if above
            else f"{UNPROVED}the Lipschitz constant"
        )
    if constraints.monotone and not proof.monotone:
        return f"{UNPROVED}that it never decreases" if proof.monotone is None else "it decreases somewhere"
    if constraints.zeros and not any(not region.is_point for region in proof.zeros or ()):
        return f"{UNPROVED}exact zeros" if proof.zeros is None else "it is exactly 0 on no interval"
    if constraints.smoothness is not None and (proof.smoothness is None or proof.smoothness < constraints.smoothness):
        few = f"it has fewer than {constraints.smoothness} continuous derivatives"
        return f"{UNPROVED}its smoothness" if proof.smoothness is None else few
    if constraints.limit is not None and (proof.distance is None or proof.distance.upper == math.inf):
        return f"{UNPROVED}a finite distance to {constraints.limit}"
    return None


class _OutOfTimeError(Exception):
    """SymPy was still at work on a definition."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `_OutOfTimeError` after so many seconds of processor time; in a main thread alone, where signals arrive."""
    if not hasattr(signal, "SIGPROF") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)

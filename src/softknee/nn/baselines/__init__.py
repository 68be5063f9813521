"""Trainable activations of other papers, with which SQUAF is compared: polynomials, kernels, and a flow."""

from __future__ import annotations

from dataclasses import dataclass

from ...registry import names
from ...spec import VectorParam
from .ditac import DiTAC
from .kaf import KAF
from .polynorm import PolyNorm, PolyReLU
from .vector import OneVector

# Names for `sk.nn.make`. They are not in the zoo: their numbers are vectors, and their formulas sums over them.
BASELINES: dict[str, type[OneVector]] = {"ditac": DiTAC, "kaf": KAF, "polynorm": PolyNorm, "polyrelu": PolyReLU}


@dataclass(frozen=True)
class Baseline:
    """A baseline in the place where surgery has a definition of the zoo: its name, and the class of its modules."""

    name: str
    module: type[OneVector]

    @property
    def params(self) -> tuple[VectorParam, ...]:
        return (self.module.vector,)


def baseline_named(name: object) -> Baseline | None:
    """The baseline of that name; None where there is none, or where a definition of yours has the name."""
    if not isinstance(name, str) or name not in BASELINES or name in names():
        return None
    return Baseline(name, BASELINES[name])


__all__ = ["BASELINES", "KAF", "Baseline", "DiTAC", "PolyNorm", "PolyReLU", "baseline_named"]

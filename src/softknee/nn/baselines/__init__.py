"""Trainable activations of other papers, with which SQUAF is compared: polynomials, kernels, and a flow."""

from __future__ import annotations

from dataclasses import dataclass

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

    @property
    def text_arguments(self) -> tuple[list[str], list[str]]:
        """What a text can set: the arguments that are numbers, and those that may be words."""
        return list(self.module.settings), list(self.module.words)


def baseline_named(name: object) -> Baseline | None:
    """The baseline of that name, or None; `registry.resolve` prefers a definition that has the name."""
    return Baseline(name, BASELINES[name]) if isinstance(name, str) and name in BASELINES else None


__all__ = ["BASELINES", "KAF", "Baseline", "DiTAC", "PolyNorm", "PolyReLU", "baseline_named"]

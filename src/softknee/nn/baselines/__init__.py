"""Trainable activations of other papers, with which SQUAF is compared: polynomials, kernels, and a flow."""

from .ditac import DiTAC
from .kaf import KAF
from .polynorm import PolyNorm
from .polyrelu import PolyReLU

# Names for `sk.nn.make`. They are not in the zoo: their numbers are vectors, and their formulas sums over them.
BASELINES = {"ditac": DiTAC, "kaf": KAF, "polynorm": PolyNorm, "polyrelu": PolyReLU}

__all__ = ["BASELINES", "KAF", "DiTAC", "PolyNorm", "PolyReLU"]

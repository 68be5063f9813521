"""Engines that make new definitions, and the proofs of what was made."""

from .certificate import Certificate
from .certify import certify
from .densities import Density, laplace, logistic, normal, uniform
from .descent import EafoDescent, eafo_descent
from .eafo import Eafo, eafo
from .entropy import entropy, entropy_change, spacing_entropy
from .init_gain import init_gain
from .join import join
from .language import definition
from .mollify import mollify
from .rescu import rescu
from .spline import Spline
from .worst import worst

__all__ = [
    "Certificate",
    "Density",
    "Eafo",
    "EafoDescent",
    "Spline",
    "certify",
    "definition",
    "eafo",
    "eafo_descent",
    "entropy",
    "entropy_change",
    "init_gain",
    "join",
    "laplace",
    "logistic",
    "mollify",
    "normal",
    "rescu",
    "spacing_entropy",
    "uniform",
    "worst",
]

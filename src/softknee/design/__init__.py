"""Engines that make new definitions, and the proofs of what was made."""

from .entropic.densities import Density, laplace, logistic, normal, uniform
from .entropic.descent import EafoDescent, eafo_descent, worst
from .entropic.eafo import Eafo, eafo
from .entropic.entropy import entropy, entropy_change, spacing_entropy
from .entropic.spline import Spline
from .fitting import Fitted, TableFit, fit, fit_table, start
from .gaussian import init_gain
from .joining import join, rescu
from .limits import with_limit
from .proof.certificate import Certificate
from .proof.certify import certify
from .smoothing.mollify import mollify
from .texts.language import definition

__all__ = [
    "Certificate",
    "Density",
    "Eafo",
    "EafoDescent",
    "Fitted",
    "Spline",
    "TableFit",
    "certify",
    "definition",
    "eafo",
    "eafo_descent",
    "entropy",
    "entropy_change",
    "fit",
    "fit_table",
    "init_gain",
    "join",
    "laplace",
    "logistic",
    "mollify",
    "normal",
    "rescu",
    "spacing_entropy",
    "start",
    "uniform",
    "with_limit",
    "worst",
]

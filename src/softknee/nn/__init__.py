"""Modules over definitions: `make` builds one from a name, and every function of the zoo has a class."""

from typing import TYPE_CHECKING, Any

from . import zoo
from .baselines import KAF, DiTAC, PolyNorm, PolyReLU
from .gated import Gated
from .kan import KANLinear, KANPointwise, jacobian_bound
from .make import explain, make
from .module import Pointwise, RowwiseModule
from .rate import RatePenalty
from .row_norm import RowNorm, UnitRows, row_norm
from .squaf import SQUAF, SQUAFP, SQUAFS, Squaf
from .zoo import *  # noqa: F403 - its __all__ lists the classes

if TYPE_CHECKING:
    from .entropic import EntropicSpline


def __getattr__(name: str) -> Any:
    """EntropicSpline is built upon the engines of `sk.design`, which no other module needs."""
    if name != "EntropicSpline":
        raise AttributeError(f"module 'softknee.nn' has no attribute {name!r}")
    from .entropic import EntropicSpline

    return EntropicSpline


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "KAF",
    "SQUAF",
    "SQUAFP",
    "SQUAFS",
    "DiTAC",
    "EntropicSpline",
    "Gated",
    "KANLinear",
    "KANPointwise",
    "Pointwise",
    "PolyNorm",
    "PolyReLU",
    "RatePenalty",
    "RowNorm",
    "RowwiseModule",
    "Squaf",
    "UnitRows",
    "explain",
    "jacobian_bound",
    "make",
    "row_norm",
]
__all__ += zoo.__all__

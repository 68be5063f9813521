"""Modules over definitions: `make` builds one from a name, and every function of the zoo has a class."""

from typing import TYPE_CHECKING, Any

from .baselines import KAF, DiTAC, PolyNorm, PolyReLU
from .make import explain, make
from .module import Pointwise
from .rate import RatePenalty
from .row_norm import RowNorm, UnitRows, row_norm
from .rowwise import RowwiseModule
from .squaf import SQUAF, Squaf
from .squaf_modes import SQUAFP, SQUAFS
from .zoo import (
    CELU,
    ELU,
    GELU,
    GELU10,
    SELU,
    XIELU,
    AsymmetricSmeLU,
    Clamp,
    CRReLU,
    CRReLUExact,
    GeneralizedSmeLU,
    HardMish,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LambdaGELU,
    Laplace,
    LeakyReLU,
    LeakySmeLU,
    LogSigmoid,
    LReLU,
    Mish,
    OriginSmeLU,
    PReLU,
    QuickGELU,
    ReLU,
    ReLU2,
    ReLU6,
    RReLU,
    ShiftedSmeLU,
    Sigmoid,
    SigmoidRESCU,
    SiLU,
    SmeLU,
    SmoothReLU,
    Softplus,
    Softshrink,
    Softsign,
    SparseSigmoid,
    Squareplus,
    SReLU,
    StarReLU,
    Swish,
    Tanh,
    TanhExp,
    Tanhshrink,
    Threshold,
)

if TYPE_CHECKING:
    from .entropic import EntropicSpline


def __getattr__(name: str) -> Any:
    """EntropicSpline is built upon the engines of `sk.design`, which no other module needs."""
    if name != "EntropicSpline":
        raise AttributeError(f"module 'softknee.nn' has no attribute {name!r}")
    from .entropic import EntropicSpline

    return EntropicSpline


__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GELU10",
    "KAF",
    "SELU",
    "SQUAF",
    "SQUAFP",
    "SQUAFS",
    "XIELU",
    "AsymmetricSmeLU",
    "CRReLU",
    "CRReLUExact",
    "Clamp",
    "DiTAC",
    "EntropicSpline",
    "GeneralizedSmeLU",
    "HardMish",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LReLU",
    "LambdaGELU",
    "Laplace",
    "LeakyReLU",
    "LeakySmeLU",
    "LogSigmoid",
    "Mish",
    "OriginSmeLU",
    "PReLU",
    "Pointwise",
    "PolyNorm",
    "PolyReLU",
    "QuickGELU",
    "RReLU",
    "RatePenalty",
    "ReLU",
    "ReLU2",
    "ReLU6",
    "RowNorm",
    "RowwiseModule",
    "SReLU",
    "ShiftedSmeLU",
    "SiLU",
    "Sigmoid",
    "SigmoidRESCU",
    "SmeLU",
    "SmoothReLU",
    "Softplus",
    "Softshrink",
    "Softsign",
    "SparseSigmoid",
    "Squaf",
    "Squareplus",
    "StarReLU",
    "Swish",
    "Tanh",
    "TanhExp",
    "Tanhshrink",
    "Threshold",
    "UnitRows",
    "explain",
    "make",
    "row_norm",
]

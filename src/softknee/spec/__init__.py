"""What an activation is: formula, parameters, knob, claims; and the printers that turn it into code.

Three kinds of definition share the protocol `Definition`: `Activation` (an element-wise formula), `SoftTable`
(soft quantisation) and `Rowwise` (a function of whole rows).
"""

from ..registry import Definition
from .activation import Activation, Claims, Implicit, Inner, by_key, set_engine
from .constraints import AtLeastOne, Between, Constraint, Positive, Real
from .param import Param, positive, real
from .parse import parse
from .primitives import (
    Clip,
    Expm1,
    FiniteLeft,
    Line,
    Log1p,
    Log1pMinus,
    Log1pMinusNear,
    Log1pUnit,
    MishGate,
    NormalCdf,
    NormalPdf,
    Ramp,
    SechSquared,
    Sigmoid,
    Softplus,
    Tanh,
    Unit,
    elementary,
    u,
    v,
    x,
)
from .rowwise import Rowwise
from .soft_table import SoftTable, TableClaims, VectorParam, set_table_engine

__all__ = [
    "Activation",
    "AtLeastOne",
    "Between",
    "Claims",
    "Clip",
    "Constraint",
    "Definition",
    "Expm1",
    "FiniteLeft",
    "Implicit",
    "Inner",
    "Line",
    "Log1p",
    "Log1pMinus",
    "Log1pMinusNear",
    "Log1pUnit",
    "MishGate",
    "NormalCdf",
    "NormalPdf",
    "Param",
    "Positive",
    "Ramp",
    "Real",
    "Rowwise",
    "SechSquared",
    "Sigmoid",
    "SoftTable",
    "Softplus",
    "TableClaims",
    "Tanh",
    "Unit",
    "VectorParam",
    "by_key",
    "elementary",
    "parse",
    "positive",
    "real",
    "set_engine",
    "set_table_engine",
    "u",
    "v",
    "x",
]

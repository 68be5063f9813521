"""A function given by a table: the mean of values z_i under weights that fall with the distance to a grid.

The second kind of definition, beside the element-wise formula (`Activation`) and the function of whole rows
(`Rowwise`). Its formula holds sums over a vector parameter, which no printer unrolls, so the kernels have an
implementation of their own; the mathematics is data here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError, did_you_mean
from ..registry import get, service
from .activation import Claims
from .algebra import Expr, IndexedBase, sympy
from .constraints import Constraint, Real
from .param import Param, check_order, find_param, read_number
from .primitives import x

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class VectorParam:
    """A parameter that is a vector: as `Param`, its default being the name of the function it samples."""

    name: str
    default: str
    constraint: Constraint = field(default_factory=Real)
    about: str = ""

    @property
    def symbol(self) -> Any:
        """The parameter in a formula, indexed by its place."""
        return IndexedBase(self.name, real=True)


@dataclass(frozen=True)
class TableClaims(Claims):
    """Claims with what has to be said beside them, keyed by the claim."""

    notes: Mapping[str, str] = field(default_factory=dict)


# Set once by the kernels, as for `Activation`: this room stays free of devices.
_engine: list[Callable[[SoftTable, Any, Mapping[str, Any]], Any]] = []


def set_table_engine(run: Callable[[SoftTable, Any, Mapping[str, Any]], Any]) -> None:
    """Tell definitions of this kind how to compute themselves on a tensor."""
    _engine[:] = [run]


@dataclass(frozen=True, eq=False)
class SoftTable:
    """A soft-quantisation function as data.

    name:     what it is called.
    formulas: its formula for each kind of weights; the first kind is the usual one.
    claims:   what is claimed of the full sum, for each kind of weights.
    params:   its parameters in order; z is a vector.
    options:  what a call may choose beside them, with the defaults.
    knob:     the parameter that hardens it as it goes to `toward`; `limit` is the name of the function there.
    weights:  which of the kinds this definition is about.
    order:    the order of the derivative by x that this definition is.

    Calling it computes it on a tensor: `act(x, k=16, q=0.25, z=z, window=5)`.
    """

    name: str
    formulas: Mapping[str, Expr]
    params: tuple[Param | VectorParam, ...]
    claims_by_weights: Mapping[str, TableClaims]
    options: Mapping[str, Any]
    knob: str
    toward: Any
    limit: str | None = None
    about: str = ""
    weights: str = "gaussian"
    order: int = 0
    # Derivatives and kinds of weights made so far, shared by all of them: asking twice gives the same one.
    _family: dict[tuple[str, int], SoftTable] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._family[self.weights, self.order] = self

    # -- names ------------------------------------------------------------------------------------------

    @property
    def knobs(self) -> tuple[str, ...]:
        """The knob as a tuple."""
        return (self.knob,)

    @property
    def claims(self) -> TableClaims | None:
        """What is claimed of the function; nothing of its derivatives."""
        return None if self.order else self.claims_by_weights[self.weights]

    def param(self, name: str) -> Param | VectorParam:
        """The parameter of that name, or an error with a did-you-mean."""
        return find_param(self.name, self.params, name)

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse names that do not exist and numbers that are not allowed."""
        from torch import Tensor

        known = [*(p.name for p in self.params), *self.options]
        for name, value in values.items():
            if name not in known:
                raise ParameterError(
                    f"{self.name} has no argument {name!r}; it takes {', '.join(known)}.{did_you_mean(name, known)}"
                )
            if name in self.options or name == "z" or value is None or isinstance(value, Tensor):
                continue
            if name == "alpha" and isinstance(value, str):  # "auto", or refused where it is read
                continue
            constraint = self.param(name).constraint
            if not constraint.allows(read_number(self.name, name, value)):
                words = constraint.words
                raise ParameterError(f"{self.name}: {name} must be {words}, and {value!r} was given.")

    @property
    def text_arguments(self) -> tuple[list[str], list[str]]:
        """What a text can set: the arguments that are numbers, and those that may be words."""
        numbers = [*(p.name for p in self.params), *(name for name in self.options if name != "grid")]
        return numbers, ["z", "alpha", "window", "weights", "mode", "tails"]

    # -- mathematics ------------------------------------------------------------------------------------

    @property
    def formula(self) -> Expr:
        """The full sum (window=None) on the uniform grid, for this definition's weights and order."""
        return sympy.diff(self.formulas[self.weights], x, self.order)

    def with_weights(self, weights: str) -> SoftTable:
        """The same definition for another kind of weights."""
        if not isinstance(weights, str) or weights not in self.formulas:
            kinds = " or ".join(map(repr, self.formulas))
            raise ParameterError(f"{self.name}: weights must be {kinds}, and {weights!r} was given.")
        return self._relative(weights, self.order)

    def derivative(self, order: int = 1) -> SoftTable:
        """The derivative of that order by x, as a definition again."""
        check_order(order)
        return self._relative(self.weights, self.order + order)

    def _relative(self, weights: str, order: int) -> SoftTable:
        relative = self._family.get((weights, order))
        return replace(self, weights=weights, order=order) if relative is None else relative

    def latex(self) -> str:
        """The formula, typeset."""
        prime = "'" * self.order if self.order < 4 else f"^{{({self.order})}}"
        return rf"\operatorname{{{self.name}}}{prime}(x) = {sympy.latex(self.formula)}"

    # -- computing --------------------------------------------------------------------------------------

    def __call__(self, input: Tensor, **values: Any) -> Tensor:
        """Compute the function on a tensor; parameters are numbers or tensors that broadcast against it."""
        if not _engine:
            service("load_engines")()
        return _engine[0](self, input, values)

    def __repr__(self) -> str:
        defaults = ", ".join(f"{p.name}={p.default}" for p in self.params)
        kind = "" if self.weights == next(iter(self.formulas)) else f", {self.weights} weights"
        return f"<activation {self.name}{chr(39) * self.order}({defaults}{kind})>"

    def __deepcopy__(self, memo: dict[int, Any]) -> SoftTable:
        return self  # immutable, and compared by identity

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.name, self.weights, self.order)


def read_window(window: Any, *, title: str = "squaf", auto: bool = False) -> int | None:
    """How many points a mean is taken over, None for all, or a sentence that says what it may be ("auto", too)."""
    whole = isinstance(window, int) and not isinstance(window, bool)
    if window is not None and not (whole and window >= 3 and window % 2 == 1):
        choices = "(3, 5, 7, ...), 'auto'," if auto else "(3, 5, 7, ...)"
        raise ParameterError(
            f"{title}: window must be an odd number of points {choices} or None for all of them, and {window!r} was "
            "given."
        )
    return window


def _restore(name: str, weights: str, order: int) -> SoftTable:
    table: SoftTable = get(name)
    return table.with_weights(weights).derivative(order)

"""What an activation is: a formula, its parameters, its knob and what is claimed of it. Data, no devices.

Everything else (values, derivatives, kernels, modules, references, LaTeX) is derived from an `Activation`.
Two kinds of helper symbols may stand in a formula beside x and the parameters: `inner`, a scaled input such
as beta*x that the formula is naturally written in, and `implicit`, a value given by its inverse.
"""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ..errors import DefinitionError, ParameterError
from ..registry import built, get, remake, restore, service, ships
from . import calculus
from .algebra import Expr, sympy
from .constraints import AtLeastOne
from .param import RESERVED, Param, check_order, check_values, find_param
from .primitives import u, v, x

if TYPE_CHECKING:
    from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Inner:
    """The scaled input u = scale*x + offset.

    Beyond `low` and `high` (numbers, or expressions in the parameters) the derivatives have their limits to the last
    bit, so u is clipped there: products such as u*exp(-u) then have a limit at infinity instead of being 0 times
    infinity.
    """

    value: Expr
    low: float | Expr = -math.inf
    high: float | Expr = math.inf

    @property
    def as_x(self) -> Expr:
        """x written in u."""
        scale = sympy.diff(self.value, x)
        return sympy.expand((u - self.value.subs(x, 0)) / scale)


@dataclass(frozen=True)
class Implicit:
    """v(x), given by its increasing inverse: inverse(v) = x, with low(x) <= v <= high(x)."""

    inverse: Expr
    low: Expr
    high: Expr


@dataclass(frozen=True)
class Claims:
    """What is claimed of a function; the tests hold every claim against the function.

    smoothness: the number of continuous derivatives; `math.inf` for C-infinity, -1 for a function that jumps.
    monotone:   whether it never decreases: True, False, or the condition on its parameters.
    lipschitz:  the least Lipschitz constant as a SymPy expression in the parameters; infinite where there is none.
    zeros:      the set of x where it is exactly 0 whatever the parameters, as a SymPy set.
    distance:   the least upper bound of |f - hard limit| as an expression in the parameters; None where there is no
                hard limit or where nothing is claimed.
    one_minimum: whether it falls to one minimum and rises from there, whatever the parameters.
    """

    smoothness: float
    monotone: Any
    lipschitz: Any
    zeros: Any = sympy.S.EmptySet
    distance: Any = None
    one_minimum: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "lipschitz", sympy.sympify(self.lipschitz))
        if self.distance is not None:
            object.__setattr__(self, "distance", sympy.sympify(self.distance))


# Set once by the kernels: how a definition is computed on tensors. Keeping it a slot keeps this room free
# of devices while `act(x)` works.
_engine: list[Callable[[Activation, Any, Mapping[str, Any]], Any]] = []


def set_engine(run: Callable[[Activation, Any, Mapping[str, Any]], Any]) -> None:
    """Tell definitions how to compute themselves on a tensor."""
    _engine[:] = [run]


# Every definition alive, by a string of its own: what operators and compiled graphs can carry.
_by_key: weakref.WeakValueDictionary[str, Activation] = weakref.WeakValueDictionary()


def _own_key(act: Activation) -> str:
    # No dot in it: torch.compile reads one as a path.
    key = "__".join([act.root.key, *act.index]) if act.index else act.name
    while key in _by_key:
        key = f"{act.name}#{next(_numbers)}"
    _by_key[key] = act
    return key


_numbers = itertools.count(2)


def by_key(key: str) -> Activation:
    """The definition with that key."""
    return _by_key[key]


class Derived:
    """What other rooms have made of a definition; it goes when the definition goes.

    The kernels keep their Functions here as an attribute: torch.compile reads a dictionary once per trace, an attribute
    each time.
    """

    def __init__(self) -> None:
        self.results: dict[Any, Any] = {}
        self.runtime: Any = None
        self.traced: Any = None


def once_per_definition(function: Callable[Concatenate[Activation, P], T]) -> Callable[Concatenate[Activation, P], T]:
    """As functools.cache, for a function of a definition: what it gave is kept as long as the definition lives."""

    @functools.wraps(function)
    def cached(act: Activation, *arguments: P.args, **options: P.kwargs) -> T:
        key = (function, arguments, *options.items())
        if key not in act.derived.results:
            act.derived.results[key] = function(act, *arguments, **options)
        return act.derived.results[key]

    return cached


@dataclass(frozen=True, eq=False)
class Activation:
    """An element-wise activation function as data.

    name:     what it is called.
    formula:  a SymPy expression in `x`, the parameters' symbols, and `u`, `v` where bound.
    params:   its parameters in order.
    claims:   what is claimed of it, or None for a definition without claims.
    inner:    the scaled input that `u` stands for.
    implicit: the inverse that `v` solves.
    worked:   the same function in the form that derivatives are taken from, where that is not `formula`.
    stable:   expressions to compute instead of the derived ones, keyed by what was differentiated:
              () is the value, ("x",) the first derivative. Same function, better rounding. Or a function from that
              key to the expression, None where there is no better one.
    knob:     the parameter (or parameters) that hardens it as it goes to `toward`; `limit` is the
              name of the function reached there, `limit_params` that function's parameters in ours.
    variants: a named choice between definitions, such as gelu's `approximate`.
    groups:   one name for several parameters that are given and learned together, as a vector.
    presets:  named sets of values beside the defaults: "paper" has those that a paper's experiments used.
    recipe:   the text that makes it again, where an engine of `design` made it.
    about:    one sentence with the reference.

    Calling it computes it on a tensor: `act(x, delta=0.1)`.
    """

    name: str
    formula: Expr
    params: tuple[Param, ...] = ()
    claims: Claims | None = None
    inner: Inner | None = None
    implicit: Implicit | None = None
    worked: Expr | None = None
    stable: Mapping[tuple[str, ...], Expr] | Callable[[tuple[str, ...]], Expr | None] = field(default_factory=dict)
    knob: str | tuple[str, ...] | None = None
    toward: float = 0.0
    limit: str | None = None
    limit_params: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    recipe: str = ""
    about: str = ""
    bound_formula: Expr = field(init=False, repr=False)
    key: str = field(init=False, repr=False)
    derived: Derived = field(default_factory=Derived, init=False, repr=False)
    _partials: dict[tuple[str, ...], Activation] = field(default_factory=dict, init=False, repr=False)
    _root: Activation | None = field(default=None, repr=False)
    _index: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.formula, str):
            # SymPy would run a text as Python code.
            raise DefinitionError(
                f"The formula of {self.name!r} is a text; give a SymPy expression in softknee.spec.x, or read the text "
                f"with softknee.spec.parse(text, params=...)."
            )
        object.__setattr__(self, "key", _own_key(self))
        given = sympy.sympify(self.formula)
        bound = given if self.worked is None else sympy.sympify(self.worked)
        object.__setattr__(self, "bound_formula", bound)
        object.__setattr__(self, "formula", given.subs(u, self.inner.value) if self.inner else given)
        known = {
            x,
            *(p.symbol for p in self.params),
            *([u] if self.inner else []),
            *([v] if self.implicit else []),
        }
        for p in self.params:
            if p.name in RESERVED or not p.name.isidentifier():
                raise DefinitionError(
                    f"A parameter of {self.name!r} is called {p.name!r}, which is taken or not an identifier; "
                    f"choose another name (taken are {', '.join(sorted(RESERVED))})."
                )
            if not p.constraint.allows(p.default):
                raise DefinitionError(
                    f"{p.name} of {self.name!r} must be {p.constraint.words}, and its default is {p.default!r}."
                )
        for preset in self.presets.values():
            for name, value in preset.items():
                if not self.param(name).constraint.allows(value):
                    raise DefinitionError(
                        f"{name} of {self.name!r} must be {self.param(name).constraint.words}, and a preset gives "
                        f"{value!r}."
                    )
        if len({p.name for p in self.params}) != len(self.params):
            raise DefinitionError(f"Two parameters of {self.name!r} have the same name; rename one of them.")
        if strange := bound.free_symbols - known:
            names = ", ".join(sorted(map(str, strange)))
            raise DefinitionError(
                f"The formula of {self.name!r} uses {names}, which it does not bind. Declare each as a Param, and "
                f"use softknee.spec.x for the input and each parameter's .symbol in the formula."
            )

    # -- names ------------------------------------------------------------------------------------------

    @property
    def knobs(self) -> tuple[str, ...]:
        """The knob as a tuple, empty where there is none."""
        return (self.knob,) if isinstance(self.knob, str) else tuple(self.knob or ())

    @property
    def root(self) -> Activation:
        """The activation that this is a derivative of, or itself."""
        return self._root or self

    @property
    def index(self) -> tuple[str, ...]:
        """What `root` was differentiated by to get this; empty for an activation itself."""
        return self._index

    def param(self, name: str) -> Param:
        """The parameter of that name, or an error with a did-you-mean."""
        return find_param(self.name, self.params, name)

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse names that do not exist and numbers that are not allowed."""
        check_values(self.name, self.params, values)

    def configured(self, values: Mapping[str, Any]) -> tuple[tuple[Param, ...], dict[str, Any]]:
        """The parameters with the settings of their constraints (lambda's temperature), and the other values.

        A setting says how a parameter is learned and has no effect on a value.
        """
        left = dict(values)
        params = []
        for p in self.params:
            if isinstance(p.constraint, AtLeastOne) and "temperature" in left:
                value = left.pop("temperature")
                if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
                    raise ParameterError(
                        f"{self.name}: temperature must be a finite number above 0, and {value!r} was given."
                    )
                p = replace(p, constraint=AtLeastOne(temperature=float(value)))
            params.append(p)
        return tuple(params), left

    def spread(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values with each group of parameters given one by one."""
        left = dict(values)
        for group, names in self.groups.items():
            if group in left:
                vector = left.pop(group)
                each = list(vector.unbind(-1) if hasattr(vector, "unbind") else vector)
                if len(each) != len(names):
                    raise ParameterError(
                        f"{self.name}: {group} takes {len(names)} numbers ({', '.join(names)}), and {len(each)} were "
                        f"given."
                    )
                left |= dict(zip(names, each, strict=True))
        return left

    @property
    def text_arguments(self) -> tuple[list[str], list[str]]:
        """What a text can set: the arguments that are numbers, and those that are words."""
        temperature = ["temperature"] if any(isinstance(p.constraint, AtLeastOne) for p in self.params) else []
        return [*(p.name for p in self.params), *temperature], list(self.variants)

    def choose_variant(
        self, values: Mapping[str, Any], find: Callable[[str], Any] = get
    ) -> tuple[Activation, dict[str, Any]]:
        """The definition that a variant such as approximate="tanh" selects, and the values without it."""
        act, left = self, dict(values)
        for option, choices in self.variants.items():
            if option in left:
                chosen = left.pop(option)
                if not isinstance(chosen, str) or chosen not in choices:
                    known = ", ".join(map(repr, choices))
                    raise ParameterError(f"{self.name}: {option} must be one of {known}, and {chosen!r} was given.")
                act = find(choices[chosen])
        return act, left

    def with_defaults(self, **values: Any) -> Activation:
        """The same definition with these values as the defaults of its parameters."""
        act, values = self.choose_variant(values)
        params, numbers = act.configured(values)
        act.check(numbers)
        changed = (
            replace(p, default=float(numbers[p.name]), learned_default=None) if p.name in numbers else p for p in params
        )
        return act.with_(params=tuple(changed), recipe=act.recipe or act.name)

    # -- mathematics ------------------------------------------------------------------------------------

    def partial(self, *names: str) -> Activation:
        """The derivative by "x" or parameters, in any order, as a definition again."""
        for name in names:
            if name != "x":
                self.param(name)
        root, index = self.root, tuple(sorted((*self._index, *names), key=self._rank))
        if not index:
            return root
        if index not in root._partials:
            root._partials[index] = Activation(
                name=f"{root.name}_{''.join(index) if set(index) == {'x'} else '_'.join(index)}",
                formula=calculus.partial(root, index),
                params=root.params,
                inner=root.inner,
                implicit=root.implicit,
                _root=root,
                _index=index,
            )
        return root._partials[index]

    def derivative(self, order: int = 1) -> Activation:
        """The derivative of that order by x, as a definition again."""
        check_order(order)
        return self.partial(*["x"] * order)

    @functools.cached_property
    def computed(self) -> Expr:
        """The expression that kernels evaluate: the stable one where one is given."""
        stable = self.root.stable
        better = stable(self._index) if callable(stable) else stable.get(self._index)
        return self.bound_formula if better is None else sympy.sympify(better)

    def latex(self) -> str:
        """The formula, typeset."""
        left = self.root.name.replace("_", r"\_")
        tail = "".join(self._index)
        prime = {"": "", "x": "'", "xx": "''"}.get(tail, rf"_{{{', '.join(self._index)}}}")
        names = {p.symbol: p.letter for p in self.params}
        text = rf"\operatorname{{{left}}}{prime}(x) = {sympy.latex(self.formula, symbol_names=names)}"
        if self.implicit is None:
            return text
        return rf"{text},\quad v:\; {sympy.latex(self.implicit.inverse, symbol_names=names)} = x"

    def _rank(self, name: str) -> int:
        return -1 if name == "x" else [p.name for p in self.params].index(name)

    # -- computing --------------------------------------------------------------------------------------

    def __call__(self, input: Tensor, **values: Any) -> Tensor:
        """Compute the function on a tensor; parameters are numbers or tensors that broadcast against it."""
        if not _engine:
            service("load_engines")()  # for someone who made it with nothing but this room
        return _engine[0](self, input, values)

    def __repr__(self) -> str:
        defaults = ", ".join(f"{p.name}={p.default:g}" for p in self.params)
        return f"<activation {self.name}({defaults})>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Activation:
        return self  # immutable, and compared by identity

    def with_(self, **changes: Any) -> Activation:
        """The same definition with other fields, such as `name` or `params`; another function loses its recipe."""
        if self._index:
            raise DefinitionError(f"{self.name!r} is a derivative; change the activation that it belongs to.")
        another = not changes.keys().isdisjoint({"formula", "inner", "implicit", "worked", "stable"})
        arguments = self._fields()
        arguments["recipe"] = "" if another else self.recipe
        return Activation(**(arguments | changes))

    def _fields(self) -> dict[str, Any]:
        """What it was made from. `formula` has u written out by now; the form with u is the bound one."""
        arguments = {
            entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init and entry.name[0] != "_"
        }
        return arguments | ({} if self.worked is not None else {"formula": self.bound_formula})

    def __reduce__(self) -> tuple[Any, ...]:
        root = self.root
        if ships(root):
            return restore, (root.name, self._index)
        # Others need not have it under its name, registered here or not: it travels as its recipe, or whole.
        if root.recipe:
            key = (root.recipe, root.name, root.params)
            _remembered.setdefault(key, root)
            return remake, (*key, self._index)
        return rebuild, (root._fields(), self._index)


# Definitions that went into a pickle as a recipe or came out of one: the same recipe gives the same definition.
_remembered: weakref.WeakValueDictionary[tuple[Any, ...], Activation] = weakref.WeakValueDictionary()


def remembered(key: tuple[Any, ...], make: Callable[[], Activation]) -> Activation:
    """The definition that these words stand for, made if nobody has it."""
    activation = _remembered.get(key)
    if activation is None:
        here = built(key[1])
        same = isinstance(here, Activation) and (here.recipe, here.name, here.params) == key
        _remembered[key] = activation = here if same else make()
    return activation


def rebuild(arguments: Mapping[str, Any], index: tuple[str, ...]) -> Activation:
    """The (derivative of the) definition with these fields; how one without a recipe is unpickled.

    Where the same definition is registered it is that one.
    """
    here = built(arguments["name"])
    same = isinstance(here, Activation) and here._fields() == arguments
    activation = here if same else Activation(**arguments)
    return activation.partial(*index) if index else activation

"""Thin modules over definitions, element-wise and of rows: they hold the parameters, learned or fixed, and call it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
import torch.fx
from torch import Tensor

from ..errors import ParameterError, require_choice, require_number
from ..kernels import call, find, fit_shape, prepare
from ..kernels.calls import Calls, call_with_tensors, has_kernels, lifted
from ..kernels.inverse import Inverse, inverse_of
from ..kernels.layout import like
from ..kernels.pointwise import check_input
from ..kernels.saving import call_saving_output, eager_function
from ..registry import with_preset
from ..spec import Activation, Rowwise, by_key
from ..spec.param import read_number
from .parameters import Granularity, Parameterised, choose_learned, leaf_of_graph

# -- the arguments of torch's modules as arguments of ours ------------------------------------------------
#
# One table per class says what each of them is called here, in torch's order, so that LeakyReLU(0.2) works:
#
#     LeakyReLU: {"negative_slope": "slope", "inplace": "inplace"}
#
# A value of the table is the name of an argument of ours, or a function that makes several of them from the number.

Table = Mapping[str, str | Callable[[Any], Mapping[str, Any]]]
# What Pointwise takes beside the parameters, with its defaults.
OPTIONS: Mapping[str, Any] = {
    "per": "layer",
    "size": None,
    "dim": 1,
    "inplace": False,
    "save": "input",
    "device": None,
    "dtype": None,
}


def translate(
    title: str, table: Table, positional: Sequence[Any], options: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options and the parameters' values, with torch's arguments among them under our names."""
    if len(positional) > len(table):
        most = f"at most {len(table)} arguments without a name ({', '.join(table)})"
        raise ParameterError(f"{title} takes {most}, and {len(positional)} were given.")
    arguments = dict(zip(table, positional, strict=False))
    options, left = dict(options), dict(values)
    for name in table:
        if name in left and table[name] != name:
            if name in arguments:
                raise ParameterError(f"{title}: {name} was given twice, by its place and by its name.")
            arguments[name] = left.pop(name)
    for name, value in arguments.items():
        ours = table[name]
        for target, number in ({ours: value} if isinstance(ours, str) else ours(value)).items():
            twice = options[target] != OPTIONS[target] if target in OPTIONS else target in left
            if twice:
                also = f", which {target} says too" if target != name else ""
                raise ParameterError(f"{title}: {name} was given twice{also}; leave one of them out.")
            (options if target in OPTIONS else left)[target] = number
    return options, left


def channels(count: Any) -> Mapping[str, Any]:
    """torch's num_parameters: one number for the layer, or one per channel of dimension 1."""
    return {} if count == 1 and not isinstance(count, bool) else {"per": "channel", "size": count}


def linear_from(threshold: Any) -> Mapping[str, Any]:
    """torch's softplus is x from a threshold on, which only a low threshold shows; ours is right there, too."""
    number = read_number("softplus", "threshold", threshold)
    if not number >= LEAST_THRESHOLD:
        raise ParameterError(
            f"softplus: threshold={number:g} would make the function jump by {math.log1p(math.exp(-number)):.2g}/beta "
            f"where beta x = {number:g}. softknee computes softplus itself on the whole line; leave threshold out, or "
            f"give {LEAST_THRESHOLD:g} or more, where torch's is the same to six digits."
        )
    return {}


LEAST_THRESHOLD = 15.0


def squared(b: Any) -> Mapping[str, Any]:
    """Keras's b of squareplus is the square of our delta."""
    number = read_number("squareplus", "b", b)
    require_number("squareplus", "b", number)
    return {"delta": math.sqrt(number)}


# -- a module as a function of its tensors: what it computes, and what torch.fx writes down for it ----------
#
# Inside a model a call of the module is one node. A module that is traced by itself has no name in a model to call it
# by; its graph then has its tensors as attributes, under the names they have in the module, and one call of
# `pointwise`.


def fitted(act: Activation, input: Tensor, values: Sequence[Tensor], granularity: Granularity) -> list[Tensor]:
    """The effective parameters in shapes that broadcast against this input."""
    check_input(act, input)
    shaped = [granularity.shaped(value, input, act.name) for value in values]
    return [fit_shape(act, p.name, value, input) for p, value in zip(act.params, shaped, strict=True)]


def compute(act: Activation, input: Tensor, params: Sequence[Tensor], *, inplace: bool, drawn: str) -> Tensor:
    """The definition on the input; with `drawn`, that one with a parameter drawn between ours for each element."""
    if not drawn:
        return call(act, input, params, inplace=inplace)
    low, high = params
    values = input.values() if input.is_nested else input  # torch 2.6 has no rand_like of a nested tensor
    share = torch.rand_like(values, dtype=torch.promote_types(input.dtype, torch.float32))
    share = like(share, input) if input.is_nested else share
    return call(find(drawn), input, [low + (high - low) * share], inplace=inplace)


def node_of(module: Pointwise, input: torch.fx.Proxy, drawn: str) -> Any:
    """What a symbolic trace writes down for a call of the module."""
    tracer: Any = input.tracer
    if tracer.path_of_module(module):
        return leaf_of_graph(module, input)
    tensors = (*module._parameters, *module._buffers)  # pyright: ignore[reportPrivateUsage] - by their stored names
    held = {name: tracer.create_proxy("get_attr", name, (), {}) for name in tensors}
    plan = (module.granularity.per, module.granularity.shape, module.granularity.dim)
    return pointwise(input, module.definition.key, module.learned, plan, module.inplace, drawn, **held)


def pointwise(
    input: Any,
    key: str,
    learned: tuple[str, ...],
    plan: tuple[str, tuple[int, ...], int],
    inplace: bool,
    drawn: str,
    **held: Any,
) -> Any:
    """What a module computes, from the key of its definition and the tensors that it holds."""
    if isinstance(input, torch.fx.Proxy):
        arguments = (input, key, learned, plan, inplace, drawn)
        proxy = input.tracer.create_proxy("call_function", pointwise, arguments, held)
        proxy.node.meta["softknee_definition"] = by_key(key)  # it lives as long as the graph that has its key
        return proxy
    act = by_key(key)
    values = [
        lifted(p.constraint, held[f"raw_{p.name}"], held.get(f"anchor_{p.name}"))
        if p.name in learned and p.constraint.lifted
        else held[p.name]
        for p in act.params
    ]
    return compute(act, input, fitted(act, input, values, Granularity(*plan)), inplace=inplace, drawn=drawn)


# -- the modules ------------------------------------------------------------------------------------------


class Pointwise(Parameterised):
    """An activation function as a module.

    A class that torch.nn has too takes torch's own arguments, by their place or by their names: LeakyReLU(0.2).

    A constrained parameter is trained through a raw one (`raw_beta`) that may take any value; `module.beta`
    is always the effective value, a tensor.
    """

    activation: ClassVar[str] = ""
    # The definition with parameters where `activation` has constants; taken where one of them is given.
    general: ClassVar[str] = ""
    # The definition computed in training, its one parameter drawn for each element between the two of this module.
    drawn: ClassVar[str] = ""
    learns: ClassVar[bool] = False
    torch_arguments: ClassVar[Table] = {}
    save: str = "input"
    _inverse: Inverse | None = None

    def __init__(
        self,
        *positional: Any,
        learn: bool | str | Iterable[str] | None = None,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        inplace: bool = False,
        save: str = "input",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **values: Any,
    ) -> None:
        """Make the module.

        Args:
            positional: torch's arguments in torch's order, for a class that torch.nn has too; a `Pointwise` of your own
                takes its definition here.
            learn: the parameters to train: a name, several names, or True for all. The others are buffers. PReLU alone
                learns where nothing is given here, as torch's does.
            per: "layer" for one value of each parameter, "channel" for one per channel, "neuron" for one per element of
                the input without the batch.
            size: with per="channel" the number of channels, with per="neuron" the trailing shape of the input.
            dim: with per="channel" the input's dimension that the channels lie along.
            inplace: overwrite the input where no gradient is needed; elsewhere it has no effect.
            save: what is kept for the backward pass: "input", or "output", which the next layer holds anyway. Then the
                gradients are computed from the output, for a function that never falls, or falls to one minimum and
                rises again: such a one keeps one bit per element more. Their error is stated in `docs/speed.md`.
            device, dtype: of the parameters, as in torch.nn. A value that the type cannot hold (1e6 in float16) is
                refused, here, by .half(), by set_ and by load_state_dict.
            values: the parameters by name, numbers or tensors; a missing one has its default. preset="paper" stands for
                the values of the paper, where its definition has such.
        """
        super().__init__()
        options = {"per": per, "size": size, "dim": dim, "inplace": inplace, "device": device, "dtype": dtype}
        options["save"] = save
        named, others = self._named(positional)
        title = type(self).__name__
        options, values = translate(title, self.torch_arguments, others, options, values)
        if self.general and any(p.name in values for p in find(self.general).params):
            named = find(self.general)
        definition, values = named.choose_variant(values, find)
        values = definition.spread(with_preset(definition, values))
        self.definition = definition
        self.inplace, self.save = options.pop("inplace"), self._read_save(options.pop("save"))
        device, dtype = options.pop("device"), options.pop("dtype")
        granularity = Granularity.read(definition.name, **options)
        params, values = definition.configured(values)
        definition.check(values)
        _refuse_crossed(title, values)
        to_learn = _spread_names(definition, self.learns if learn is None else learn)
        learned = choose_learned(definition.name, names=[p.name for p in params], learn=to_learn)
        starts = {p.name: values.get(p.name, p.start if p.name in learned else p.default) for p in params}
        self._hold(definition.name, params, starts, learned, granularity, device=device, dtype=dtype)
        prepare(definition.key)
        self._inverse = self._find_inverse(self._starts)

    def _read_save(self, save: Any) -> str:
        require_choice(type(self).__name__, "save", save, ("input", "output"))
        if save == "output" and self.drawn:
            raise ParameterError(
                f"{type(self).__name__}: save='output' needs one function, and this one draws its parameter for each "
                "element in training. Use save='input', which is the default."
            )
        return save

    def saved_output(self) -> str:
        """How the input is recovered from the output, in words."""
        inverse = self._inverse
        assert inverse is not None
        bit = "" if inverse.place is None else " and one bit per element"
        how = "by algebra" if inverse.is_closed else f"by {inverse.steps[torch.float32]} of Newton's steps in float32"
        return f"the output{bit} is saved for the backward pass, which recovers the input from it {how}"

    def _find_inverse(self, values: Mapping[str, Any]) -> Inverse | None:
        """What recovers the input from the output, where that is what is saved; an error where there is none."""
        if self.save == "input":
            return None
        fixed, free = {}, list(self.learned)
        for p in self.params:
            value = values[p.name]
            if p.name in self.learned or (isinstance(value, Tensor) and value.is_meta):
                continue
            numbers = value.detach().double().unique().tolist() if isinstance(value, Tensor) else [float(value)]
            if len(numbers) == 1:
                fixed[p.name] = numbers[0]
            else:
                free.append(p.name)  # right for each of several values: for any
        return inverse_of(self.definition, free, fixed)

    def _renew_inverse(self, **values: Any) -> None:
        if self.save == "output":
            held = {p.name: self._held(p.name) for p in self.params if p.name not in self.learned}
            inverse = self._find_inverse({p.name: None for p in self.params} | held | values)
            if inverse is not self._inverse:
                self._inverse = inverse
                self.__dict__.pop("_calls", None)

    def _named(self, positional: Sequence[Any]) -> tuple[Activation, Sequence[Any]]:
        """The definition that is meant, and the other arguments without a name."""
        first = positional[0] if positional else None
        if isinstance(first, Activation):
            return first, positional[1:]
        if not self.activation:
            raise ParameterError(
                f"{type(self).__name__} takes a definition first, and {first!r} was given; sk.nn.make takes a "
                "name, for instance sk.nn.make('srelu', delta=0.1)."
            )
        own = find(self.activation)
        if positional and not self.torch_arguments:
            names = [*(p.name for p in own.params), *own.variants]
            has = f"its own are {', '.join(names)}" if names else "it has no parameters"
            raise ParameterError(f"{type(self).__name__} takes its arguments by name, and {first!r} was given; {has}.")
        return own, positional

    def fitted(self, input: Tensor) -> list[Tensor]:
        """The effective parameters in shapes that broadcast against this input."""
        values = [self.effective(p) for p in self.params]
        return fitted(self.definition, input, values, self.granularity)

    def forward(self, input: Tensor) -> Tensor:
        drawn = self.drawn if self.training else ""
        if not drawn and not torch.compiler.is_compiling() and type(input) is Tensor:
            calls = self._calls
            call = calls.get(input.shape) if calls and not input.is_nested else None
            result = None if call is None else call.run(input, self.inplace, self._parameters, self._buffers)
            if result is not None or (result := self._run_first(input)) is not None:
                return result
        if isinstance(input, torch.fx.Proxy):
            return node_of(self, input, drawn)
        if self._inverse is not None:
            return call_saving_output(self._inverse, input, self.fitted(input), inplace=self.inplace)
        return compute(self.definition, input, self.fitted(input), inplace=self.inplace, drawn=drawn)

    # torch.fx writes these into the code that it generates, where the name of a type would not do.
    forward.__annotations__.update({"input": Tensor, "return": Tensor})

    def __getstate__(self) -> dict[str, Any]:
        """The inverse is found again from the definition."""
        return {name: value for name, value in super().__getstate__().items() if name != "_inverse"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._renew_inverse()

    def _run_first(self, input: Tensor) -> Tensor | None:
        """What a call gives that is prepared for inputs like this one; None where the general way must be taken."""
        if self.granularity.per != "layer" or not has_kernels(input):
            return None
        raw = [p for p in self.params if p.name in self.learned and p.constraint.lifted]
        sources = tuple(p.constraint if p in raw else None for p in self.params)
        names = [self._raw_name(p) if p.name in self.learned else p.name for p in self.params]
        names += [f"anchor_{p.name}" for p in raw]
        tensors = [self._parameters.get(name, self._buffers.get(name)) for name in names]
        prepare(self.definition.key)
        inverse = self._inverse
        saving = {} if inverse is None else {"inverse": inverse, "function": eager_function(self.definition, inverse)}
        call = call_with_tensors(self.definition, input, sources, names, tensors, **saving)
        if call is None:
            return None
        self.__dict__.setdefault("_calls", Calls()).add(input.shape, call)
        return call.run(input, self.inplace, self._parameters, self._buffers)

    def set_(self, **values: Any) -> Self:
        """Give parameters new effective values in place; a group such as a mixture's `weights` as one vector."""
        values = self.definition.spread(values)
        self._renew_inverse(**{name: value for name, value in values.items() if name not in self.learned})
        return super().set_(**values)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self._inverse is not None:
            self._renew_inverse()

    def _load_from_state_dict(self, *arguments: Any, **named: Any) -> None:
        super()._load_from_state_dict(*arguments, **named)
        self._renew_inverse()

    def __getattr__(self, name: str) -> Any:
        definition = self.__dict__.get("definition")
        if definition is not None and name in definition.groups:
            return torch.stack([getattr(self, member) for member in definition.groups[name]], dim=-1)
        return super().__getattr__(name)

    def extra_repr(self) -> str:
        # A class shows its own name; another definition than its own (gelu's tanh form) is named beside it.
        parts = [] if self.definition.name == self.activation else [repr(self.definition.name)]
        parts += self._shown()
        parts += ["save='output'"] * (self.save == "output")
        return ", ".join([*parts, "inplace=True"] if self.inplace else parts)


def _spread_names(definition: Activation, learn: bool | str | Iterable[str]) -> Any:
    """The names to learn, with those of a group in the place of the group's."""
    if isinstance(learn, bool) or not isinstance(learn, Iterable):
        return learn  # what is none of these is refused where the names are chosen
    groups = {name: list(members) for name, members in definition.groups.items()}
    names = [learn] if isinstance(learn, str) else learn
    return [member for name in names for member in (groups.get(name, [name]) if isinstance(name, str) else [name])]


def _refuse_crossed(title: str, values: Mapping[str, Any]) -> None:
    for names in (("low", "high"), ("lower", "upper")):
        low, high = (values.get(name, math.nan) for name in names)
        if not isinstance(low, Tensor) and not isinstance(high, Tensor) and low > high:
            raise ParameterError(f"{title}: the lower limit {low!r} is above the upper limit {high!r}; swap them.")


class RowwiseModule(Parameterised):
    """A row-wise activation (gated, norm-based) as a module.

    Args:
        definition: the `spec.Rowwise`; `sk.nn.make(name)` passes a registered one.
        learn: the parameters to train: a name, several names, or True for all. The others are buffers.
        per: "layer" for one value of each parameter, or "channel" for one per channel.
        size: with per="channel" the number of channels.
        dim: with per="channel" the input's dimension that the channels lie along, other than the rows'.
        inplace: accepted and without effect: a row's result needs the whole row.
        device, dtype: of the parameters, as in torch.nn.
        values: the parameters by name, numbers or tensors; a missing one has its default.
    """

    def __init__(
        self,
        definition: Rowwise,
        *,
        learn: bool | str | Iterable[str] = False,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        inplace: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **values: Any,
    ) -> None:
        super().__init__()
        self.definition = definition
        self.inplace = inplace
        granularity = Granularity.read(definition.name, per=per, size=size, dim=dim)
        if per == "neuron" or (per == "channel" and dim == definition.dim):
            raise ParameterError(
                f"{definition.name}: it works on rows along dimension {definition.dim}, so a row has one "
                f"value of each parameter; use per='layer', or per='channel' with dim= another dimension."
            )
        definition.check(values)
        params = definition.params
        learned = choose_learned(definition.name, names=[p.name for p in params], learn=learn)
        starts = {p.name: values.get(p.name, p.start if p.name in learned else p.default) for p in params}
        self._hold(definition.name, params, starts, learned, granularity, device=device, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        if (node := leaf_of_graph(self, input)) is not None:
            return node
        shaped = {p.name: self.granularity.shaped(self.effective(p), input, self.title) for p in self.params}
        return self.definition(input, **shaped)

    def extra_repr(self) -> str:
        parts = [repr(self.title), *self._shown()]
        return ", ".join([*parts, "inplace=True"] if self.inplace else parts)

"""A thin module over an element-wise definition: holds its parameters, learned or fixed, and calls it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
import torch.fx
from torch import Tensor

from ..errors import ParameterError
from ..kernels import find, prepare, resolve
from ..spec import Activation
from . import graph
from .granularity import Granularity
from .parameters import Parameterised, choose_learned
from .torch_arguments import Table, translate


class Pointwise(Parameterised):
    """An activation function as a module.

    A class that torch.nn has too takes torch's own arguments, by their place or by their names: LeakyReLU(0.2).

    Args:
        learn: the parameters to train: a name, several names, or True for all. The others are buffers. PReLU alone
            learns where nothing is given here, as torch's does.
        per: "layer" (one value), "channel" (with `size`; along `dim`, 1 by default) or "neuron" (with `size`,
            the whole trailing shape of the input without the batch).
        size, dim: see `per`.
        inplace: overwrite the input where no gradient is needed; elsewhere it has no effect.
        device, dtype: of the parameters, as in torch.nn. A value that the type cannot hold (1e6 in float16) is refused,
            here, by .half(), by set_ and by load_state_dict.
        values: the parameters by name, numbers or tensors; a missing one has its default.

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

    def __init__(
        self,
        *positional: Any,
        learn: bool | str | Iterable[str] | None = None,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        inplace: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **values: Any,
    ) -> None:
        super().__init__()
        options = {"per": per, "size": size, "dim": dim, "inplace": inplace, "device": device, "dtype": dtype}
        named, given = self._named(positional)
        title = type(self).__name__
        options, values = translate(title, self.torch_arguments, given, options, values)
        if self.general and any(p.name in values for p in find(self.general).params):
            named = find(self.general)
        definition, values = resolve(named, values)
        values = definition.spread(values)
        self.definition = definition
        self.inplace = options.pop("inplace")
        device, dtype = options.pop("device"), options.pop("dtype")
        granularity = Granularity.read(definition.name, **options)
        params, values = definition.configured(values)
        definition.check(values)
        _refuse_crossed(title, [p.name for p in params], values)
        to_learn = _spread_names(definition, self.learns if learn is None else learn)
        learned = choose_learned(definition.name, names=[p.name for p in params], learn=to_learn)
        starts = {p.name: values.get(p.name, p.start if p.name in learned else p.default) for p in params}
        self._hold(
            definition.name,
            params=params,
            starts=starts,
            learned=learned,
            granularity=granularity,
            device=device,
            dtype=dtype,
        )
        prepare(definition.key)

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
        return graph.fitted(self.definition, input, values, self.granularity)

    def forward(self, input: Tensor) -> Tensor:
        drawn = self.drawn if self.training else ""
        if isinstance(input, torch.fx.Proxy):
            return graph.node_of(self, input, drawn)
        return graph.compute(self.definition, input, self.fitted(input), inplace=self.inplace, drawn=drawn)

    # torch.fx writes these into the code that it generates, where the name of a type would not do.
    forward.__annotations__.update({"input": Tensor, "return": Tensor})

    def set_(self, **values: Any) -> Self:
        """Give parameters new effective values in place; a group such as a mixture's `weights` as one vector."""
        return super().set_(**self.definition.spread(values))

    def __getattr__(self, name: str) -> Any:
        definition = self.__dict__.get("definition")
        if definition is not None and name in definition.groups:
            return torch.stack([getattr(self, one) for one in definition.groups[name]], dim=-1)
        return super().__getattr__(name)

    def extra_repr(self) -> str:
        # A class shows its own name; another definition than its own (gelu's tanh form) is named beside it.
        parts = [] if self.definition.name == self.activation else [repr(self.definition.name)]
        parts += self._shown()
        return ", ".join([*parts, "inplace=True"] if self.inplace else parts)


def _spread_names(definition: Activation, learn: bool | str | Iterable[str]) -> Any:
    """The names to learn, with those of a group in the place of the group's."""
    if isinstance(learn, bool) or not isinstance(learn, Iterable):
        return learn  # what is none of these is refused where the names are chosen
    asked = [learn] if isinstance(learn, str) else list(learn)
    groups = definition.groups
    return [one for name in asked for one in (groups[name] if isinstance(name, str) and name in groups else [name])]


# Two parameters of which the first is the lower limit of something.
_LIMITS = (("low", "high"), ("lower", "upper"))


def _refuse_crossed(title: str, names: Sequence[str], values: Mapping[str, Any]) -> None:
    for low, high in _LIMITS:
        if low in names and not any(isinstance(values.get(name), Tensor) for name in (low, high)):
            given = {p: values[p] for p in (low, high) if p in values}
            if len(given) == 2 and given[low] > given[high]:
                raise ParameterError(
                    f"{title}: the lower limit {given[low]!r} is above the upper limit {given[high]!r}; swap them."
                )

"""A thin module over an element-wise definition: holds its parameters, learned or fixed, and calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ..errors import ParameterError
from ..kernels import call, find, fit_shape, prepare, resolve
from ..kernels.pointwise import check_input
from ..spec import Activation
from .granularity import Granularity
from .parameters import Parameterised, choose_learned, leaf_of_graph


class Pointwise(Parameterised):
    """An activation function as a module.

    Args:
        learn: the parameters to train: a name, several names, or True for all. The others are buffers.
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

    def __init__(
        self,
        definition: Activation | None = None,
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
        named = self._named(definition)
        definition, values = resolve(named, values)
        values = definition.spread(values)
        self.definition = definition
        self.inplace = inplace
        granularity = Granularity.read(definition.name, per=per, size=size, dim=dim)
        params, values = definition.configured(values)
        definition.check(values)
        learn = _spread_names(definition, learn)
        learned = choose_learned(definition.name, names=[p.name for p in params], learn=learn)
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

    def _named(self, definition: Any) -> Activation:
        """The definition that is meant; what else comes first is refused: torch's modules take numbers there."""
        if definition is None and self.activation:
            return find(self.activation)
        if isinstance(definition, Activation):
            return definition
        if definition is None or not self.activation:
            raise ParameterError(
                f"{type(self).__name__} takes a definition first, and {definition!r} was given; sk.nn.make takes a "
                "name, for instance sk.nn.make('srelu', delta=0.1)."
            )
        names = [*(p.name for p in find(self.activation).params), *find(self.activation).variants]
        has = f"its own are {', '.join(names)}" if names else "it has no parameters"
        raise ParameterError(f"{type(self).__name__} takes its arguments by name, and {definition!r} was given; {has}.")

    def fitted(self, input: Tensor) -> list[Tensor]:
        """The effective parameters in shapes that broadcast against this input."""
        act = self.definition
        check_input(act, input)
        shaped = [self.granularity.shaped(self.effective(p), input, act.name) for p in self.params]
        return [fit_shape(act, p.name, value, input) for p, value in zip(self.params, shaped, strict=True)]

    def forward(self, input: Tensor) -> Tensor:
        if (node := leaf_of_graph(self, input)) is not None:
            return node
        return call(self.definition, input, self.fitted(input), inplace=self.inplace)

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

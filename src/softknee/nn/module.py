"""A thin module over an element-wise definition: holds its parameters, learned or fixed, and calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

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
        device, dtype: of the parameters, as in torch.nn.
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
        named: Activation = find(self.activation) if definition is None else definition
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
        parts = [repr(self.definition.name)] if type(self) is Pointwise else []
        parts += self._shown()
        return ", ".join([*parts, "inplace=True"] if self.inplace else parts)


def _spread_names(definition: Activation, learn: bool | str | Iterable[str]) -> bool | list[str]:
    """The names to learn, with those of a group in the place of the group's."""
    if isinstance(learn, bool):
        return learn
    asked = [learn] if isinstance(learn, str) else list(learn)
    return [one for name in asked for one in definition.groups.get(name, (name,))]

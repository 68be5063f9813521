"""A module over a function of rows: holds its parameters, learned or fixed, and calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ParameterError
from ..spec import Rowwise
from .parameters import Granularity, Parameterised, choose_learned, leaf_of_graph


class RowwiseModule(Parameterised):
    """A row-wise activation (gated, norm-based) as a module.

    Args:
        definition: the `spec.Rowwise`; `sk.nn.make(name)` passes a registered one.
        learn: the parameters to train: a name, several names, or True for all. The others are buffers.
        per: "layer", or "channel" with `size`, along a dimension `dim` other than the one rows lie along.
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
        learned = choose_learned(definition.name, names=[p.name for p in definition.params], learn=learn)
        params = definition.params
        self._hold(
            definition.name,
            params=params,
            starts={p.name: values.get(p.name, p.start if p.name in learned else p.default) for p in params},
            learned=learned,
            granularity=granularity,
            device=device,
            dtype=dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        if (node := leaf_of_graph(self, input)) is not None:
            return node
        shaped = {p.name: self.granularity.shaped(self.effective(p), input, self.title) for p in self.params}
        return self.definition(input, **shaped)

    def extra_repr(self) -> str:
        parts = [repr(self.title), *self._shown()]
        return ", ".join([*parts, "inplace=True"] if self.inplace else parts)
